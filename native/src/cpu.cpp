#include "cpu.hpp"

#include <sched.h>

#include <algorithm>
#include <thread>

namespace headstart {

CpuFeatures cpu_features() {
  CpuFeatures features;
#ifdef HEADSTART_X86
  // __builtin_cpu_supports also asks the system (XGETBV) whether it saves the registers
  __builtin_cpu_init();
  features.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  features.avx512vnni = features.avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                        __builtin_cpu_supports("avx512vnni");
#endif
  return features;
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
}

}  // namespace headstart
