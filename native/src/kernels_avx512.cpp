#include "simd/avx512.hpp"
#define HEADSTART_LANES avx512
#include "kernels_impl.hpp"

constinit const headstart::Kernels headstart::kAvx512Kernels = headstart::avx512::make_kernels();
