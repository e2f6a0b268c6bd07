#include "simd/portable.hpp"
#define HEADSTART_LANES portable
#include "kernels_impl.hpp"

const headstart::Kernels headstart::kPortableKernels = headstart::portable::make_kernels();
