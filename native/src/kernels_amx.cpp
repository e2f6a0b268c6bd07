// AVX-512 kernels, with products of int8 rows on AMX tiles.
#include "simd/amx.hpp"
#include "simd/avx512.hpp"
#define HEADSTART_LANES avx512
#include "kernels_impl.hpp"

constinit const headstart::Kernels headstart::kAmxKernels = headstart::avx512::with_tiles<headstart::AmxTiles>("amx");
