// Products of 8-bit rows with 8-bit codes on tile registers (AMX), for matrices with one scale an
// output. The sums are exact integers, so the bits are those of RowFormat.
//
// `Tiles` is the hardware (simd/amx.hpp) or its imitation (simd/emulated_tiles.hpp), by which this
// file is tested on machines without it. A tile product is sixteen rows by sixteen outputs over
// sixty-four inputs: the layout of codes, [step of 4 inputs][output][4 inputs], is what it reads.
#pragma once
#include "products.hpp"

namespace headstart::HEADSTART_LANES {
namespace {

constexpr int kTileRows = 16;
constexpr int kTileInputs = 64;
constexpr int kFewestTileRows = 4;  // below, tiles are mostly empty and vectors are as fast

template <class Tiles>
void tile_block(const MatrixView& weights, const QuantisedRows& all, int first_row, int num_rows, int tile,
                const Destination& to) {
  const int8_t* activations = all.row_codes + static_cast<size_t>(first_row) * weights.k;
  const uint8_t* codes = weights.data + static_cast<size_t>(tile) * weights.tile_bytes;
  Tiles::clear();
  int i = 0;
  for (; i + kTileInputs <= weights.k; i += kTileInputs) {
    Tiles::multiply(activations + i, weights.k, codes + static_cast<size_t>(i) * kTile);
  }
  if (i < weights.k) Tiles::multiply_half(activations + i, weights.k, codes + static_cast<size_t>(i) * kTile);
  alignas(64) int32_t dots[kTileRows * kTile];
  Tiles::store(dots);
  const Floats scale = load(weights.row_scales + tile * kTile);
  for (int r = 0; r < num_rows; ++r) {
    const int row = first_row + r;
    const Ints dot = add_int(load_int(dots + r * kTile), splat_int(-weights.zero_point * all.row_sums[row]));
    write(to, row, tile, mul(to_float(dot), mul(scale, splat(all.row_scales[row]))));
  }
}

template <class Tiles>
void matmul_tiles(const MatrixView& weights, const QuantisedRows& rows, int num_rows, int tile_begin, int tile_end,
                  const Destination& to) {
  for (int r = 0; r < num_rows; r += kTileRows) {
    const int block_rows = num_rows - r < kTileRows ? num_rows - r : kTileRows;
    Tiles::configure(block_rows);
    for (int tile = tile_begin; tile < tile_end; ++tile) tile_block<Tiles>(weights, rows, r, block_rows, tile, to);
  }
  Tiles::release();
}

}  // namespace
}  // namespace headstart::HEADSTART_LANES
