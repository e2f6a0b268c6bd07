#include "simd/emulated_tiles.hpp"
#include "simd/portable.hpp"
#define HEADSTART_LANES portable
#include "kernels_impl.hpp"

constinit const headstart::Kernels headstart::kPortableKernels = headstart::portable::make_kernels();
constinit const headstart::Kernels headstart::kEmulatedTileKernels =
    headstart::portable::with_tiles<headstart::EmulatedTiles>("emulated-tiles");
