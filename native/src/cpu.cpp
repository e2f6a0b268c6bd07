#include "cpu.hpp"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#ifdef HEADSTART_X86
#include <cpuid.h>
#endif

#include <algorithm>
#include <thread>

#include "limits.hpp"

namespace headstart {

#ifdef HEADSTART_X86
namespace {

// AMX-TILE and AMX-INT8, state that the system saves, and its leave to use it (Linux gives large
// state to those who ask)
bool amx_granted() {
  unsigned eax, ebx, ecx, edx;
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) || !(edx >> 24 & 1) || !(edx >> 25 & 1)) return false;
  unsigned saved_low, saved_high;
  __asm__("xgetbv" : "=a"(saved_low), "=d"(saved_high) : "c"(0));
  constexpr unsigned kTileState = 1u << 17 | 1u << 18;
  if ((saved_low & kTileState) != kTileState) return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace
#endif

CpuFeatures cpu_features() {
  CpuFeatures features;
#ifdef HEADSTART_X86
  // __builtin_cpu_supports also asks the system (XGETBV) whether it saves the registers
  __builtin_cpu_init();
  features.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  features.avx512vnni = features.avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                        __builtin_cpu_supports("avx512vnni");
  static const bool granted = features.avx512vnni && amx_granted();
  features.amx = granted;
#endif
  return features;
}

int usable_cores() {
  int cores = static_cast<int>(std::thread::hardware_concurrency());
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) cores = CPU_COUNT(&set);
  // threads wait for each other in every phase: one that the container's quota holds up holds up all
  if (const double quota = container_limits().cores; quota > 0) cores = std::min(cores, static_cast<int>(quota));
  return std::clamp(cores, 1, kMostThreads);
}

}  // namespace headstart
