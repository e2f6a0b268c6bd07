#include "kernels.hpp"

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "cpu.hpp"

namespace headstart {

const std::vector<const Kernels*>& available_kernels() {
  static const std::vector<const Kernels*> available = [] {
    std::vector<const Kernels*> found;
#ifdef HEADSTART_X86
    const CpuFeatures features = cpu_features();
    if (features.amx) found.push_back(&kAmxKernels);
    if (features.avx512vnni) found.push_back(&kAvx512Kernels);
    if (features.avx2) found.push_back(&kAvx2Kernels);
#endif
    found.push_back(&kPortableKernels);
    return found;
  }();
  return available;
}

const Kernels& kernels_by_name(std::string_view name) {
  std::string known;
  for (const Kernels* kernels : available_kernels()) {
    if (name == kernels->name) return *kernels;
    known += std::string(known.empty() ? "" : ", ") + kernels->name;
  }
  if (name == kEmulatedTileKernels.name) return kEmulatedTileKernels;
  throw std::invalid_argument("the instruction set '" + std::string(name) + "' is not available here; there are " +
                              known);
}

const Kernels& best_kernels() {
  const char* wanted = std::getenv("HEADSTART_ISA");
  return wanted != nullptr && *wanted != '\0' ? kernels_by_name(wanted) : *available_kernels().front();
}

}  // namespace headstart
