#include "kernels.hpp"

#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

#include "cpu.hpp"

namespace headstart {

const Kernels* kernels_by_name(const char* name) {
  const CpuFeatures features = cpu_features();
#ifdef HEADSTART_X86
  if (features.amx && std::strcmp(name, kAmxKernels.name) == 0) return &kAmxKernels;
  if (features.avx512vnni && std::strcmp(name, kAvx512Kernels.name) == 0) return &kAvx512Kernels;
  if (features.avx2 && std::strcmp(name, kAvx2Kernels.name) == 0) return &kAvx2Kernels;
#endif
  static_cast<void>(features);
  for (const Kernels* kernels : {&kPortableKernels, &kEmulatedTileKernels}) {
    if (std::strcmp(name, kernels->name) == 0) return kernels;
  }
  return nullptr;
}

const Kernels& best_kernels() {
  if (const char* wanted = std::getenv("HEADSTART_ISA"); wanted != nullptr && *wanted != '\0') {
    if (const Kernels* kernels = kernels_by_name(wanted)) return *kernels;
    throw std::invalid_argument("HEADSTART_ISA = '" + std::string(wanted) +
                                "' is not available here; known are amx, avx512vnni, avx2 and portable");
  }
  for (const char* name : {"amx", "avx512vnni", "avx2"}) {
    if (const Kernels* kernels = kernels_by_name(name)) return *kernels;
  }
  return kPortableKernels;
}

}  // namespace headstart
