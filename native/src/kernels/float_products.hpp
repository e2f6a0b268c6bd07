// Matrix products of float rows with float weights. Part of kernels_impl.hpp.
#pragma once
#include "products.hpp"

namespace headstart::HEADSTART_LANES {
namespace {

struct FloatWeight {
  using Stored = float;
  static Floats get(const Stored* p) { return load(p); }
};
struct HalfWeight {
  using Stored = uint16_t;
  static Floats get(const Stored* p) { return load_f16(p); }
};
struct BfloatWeight {
  using Stored = uint16_t;
  static Floats get(const Stored* p) { return load_bf16(p); }
};

// kRows rows by kTiles tiles at once; each sum is one chain over the inputs
template <class Weight, int kRows, int kTiles>
void float_block(const MatrixView& weights, const float* rows, int row_stride, int first_row, int tile,
                 const Destination& to) {
  using Stored = typename Weight::Stored;
  const float* x = rows + static_cast<size_t>(first_row) * row_stride;
  const Stored* w[kTiles];
  Floats sums[kRows][kTiles];
  for (int t = 0; t < kTiles; ++t) {
    w[t] = reinterpret_cast<const Stored*>(weights.data + static_cast<size_t>(tile + t) * weights.tile_bytes);
    for (int r = 0; r < kRows; ++r) sums[r][t] = splat(0.0f);
  }
  for (int i = 0; i < weights.k; ++i) {
    Floats column[kTiles];
    for (int t = 0; t < kTiles; ++t) {
      if constexpr (kRows <= 2) prefetch(reinterpret_cast<const uint8_t*>(w[t] + i * kTile) + 2048);
      column[t] = Weight::get(w[t] + i * kTile);
    }
    for (int r = 0; r < kRows; ++r) {
      const Floats value = splat(x[static_cast<size_t>(r) * row_stride + i]);
      for (int t = 0; t < kTiles; ++t) sums[r][t] = fma(value, column[t], sums[r][t]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < kTiles; ++t) write(to, first_row + r, tile + t, sums[r][t]);
  }
}

template <class Weight, int kTiles>
void float_rows(const MatrixView& weights, const float* rows, int row_stride, int num_rows, int tile,
                const Destination& to) {
  int r = 0;
  if constexpr (kMaxRows >= 8) {
    for (; r + 8 <= num_rows; r += 8) {
      if constexpr (kTiles == 4) {  // 8 x 4 sums would not fit the registers
        for (int t = 0; t < 4; t += 2) float_block<Weight, 8, 2>(weights, rows, row_stride, r, tile + t, to);
      } else {
        float_block<Weight, 8, kTiles>(weights, rows, row_stride, r, tile, to);
      }
    }
  }
  for (; r + 2 <= num_rows; r += 2) float_block<Weight, 2, kTiles>(weights, rows, row_stride, r, tile, to);
  for (; r < num_rows; ++r) float_block<Weight, 1, kTiles>(weights, rows, row_stride, r, tile, to);
}

template <class Weight>
void matmul_float(const MatrixView& weights, const float* rows, int row_stride, int num_rows, int tile_begin,
                  int tile_end, const Destination& to) {
  int tile = tile_begin;
  for (; tile + 4 <= tile_end; tile += 4) float_rows<Weight, 4>(weights, rows, row_stride, num_rows, tile, to);
  for (; tile < tile_end; ++tile) float_rows<Weight, 1>(weights, rows, row_stride, num_rows, tile, to);
}

}  // namespace
}  // namespace headstart::HEADSTART_LANES
