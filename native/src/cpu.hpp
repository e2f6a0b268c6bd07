// What this processor can do.
#pragma once
#include <string>

namespace headstart {

struct CpuFeatures {
  bool avx2 = false;        // with FMA and F16C, and the system saves the wide registers
  bool avx512vnni = false;  // F, BW, VL, DQ, VNNI
  bool amx = false;         // with AVX-512: tiles of INT8, which the system granted this process
};
CpuFeatures cpu_features();

constexpr int kMostThreads = 1024;

// that this process may use at once: by its affinity and its container's quota, at least 1 and at most kMostThreads
int usable_cores();

}  // namespace headstart
