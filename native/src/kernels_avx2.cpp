#include "simd/avx2.hpp"
#define HEADSTART_LANES avx2
#include "kernels_impl.hpp"

constinit const headstart::Kernels headstart::kAvx2Kernels = headstart::avx2::make_kernels();
