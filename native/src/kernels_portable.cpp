#include "simd/emulated_tiles.hpp"
#include "simd/portable.hpp"
#define HEADSTART_LANES portable
#include "kernels_impl.hpp"

const headstart::Kernels headstart::kPortableKernels = headstart::portable::make_kernels();
const headstart::Kernels headstart::kEmulatedTileKernels =
    headstart::portable::with_tiles<headstart::EmulatedTiles>("emulated-tiles");
