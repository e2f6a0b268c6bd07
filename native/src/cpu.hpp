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
int usable_cores();

}  // namespace headstart
