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

// Rows of one block at most: with two tiles their sums fill the registers. Fewer rows leave room for four tiles, chains
// that do not wait for each other.
constexpr int kMostFloatRows = kMaxRows >= 8 ? 12 : 2;
constexpr int kMostFourTileRows = kMaxRows >= 8 ? 6 : 2;

// kRows rows by kTiles tiles at once; each sum is one chain over the inputs. The first rows to come by also fetch the
// next tiles: the hardware follows one stream of addresses better than as many as there are tiles.
template <class Weight, int kRows, int kTiles, bool kFetches>
void float_block(const MatrixView& weights, const float* rows, int row_stride, int first_row, int tile,
                 const Destination& to) {
  using Stored = typename Weight::Stored;
  constexpr size_t kBytes = kTiles * kTile * sizeof(Stored);  // of one input
  const float* x = rows + static_cast<size_t>(first_row) * row_stride;
  const Stored* w[kTiles];
  Floats sums[kRows][kTiles];
  for (int t = 0; t < kTiles; ++t) {
    w[t] = reinterpret_cast<const Stored*>(weights.data + static_cast<size_t>(tile + t) * weights.tile_bytes);
    for (int r = 0; r < kRows; ++r) sums[r][t] = splat(0.0f);
  }
  const uint8_t* next = weights.data + static_cast<size_t>(tile + kTiles) * weights.tile_bytes;
  for (int i = 0; i < weights.k; ++i) {
    if constexpr (kFetches) {
      for (size_t line = 0; line < kBytes; line += 64) prefetch(next + static_cast<size_t>(i) * kBytes + line);
    }
    Floats column[kTiles];
    for (int t = 0; t < kTiles; ++t) column[t] = Weight::get(w[t] + i * kTile);
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      const Floats value = splat(x[static_cast<size_t>(r) * row_stride + i]);
      for (int t = 0; t < kTiles; ++t) sums[r][t] = fma(value, column[t], sums[r][t]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < kTiles; ++t) write(to, first_row + r, tile + t, sums[r][t]);
  }
}

// `height` rows, at most kRows, by kTiles tiles
template <class Weight, int kRows, int kTiles>
void float_rows(const MatrixView& weights, const float* rows, int row_stride, int first_row, int height, int tile,
                const Destination& to) {
  if constexpr (kRows > 1) {
    if (height < kRows) {
      return float_rows<Weight, kRows - 1, kTiles>(weights, rows, row_stride, first_row, height, tile, to);
    }
  }
  if constexpr (kTiles > 2 && kRows > kMostFourTileRows) {
    float_rows<Weight, kRows, kTiles / 2>(weights, rows, row_stride, first_row, height, tile, to);
    float_rows<Weight, kRows, kTiles / 2>(weights, rows, row_stride, first_row, height, tile + kTiles / 2, to);
  } else {
    if (first_row == 0) {
      float_block<Weight, kRows, kTiles, true>(weights, rows, row_stride, first_row, tile, to);
    } else {
      float_block<Weight, kRows, kTiles, false>(weights, rows, row_stride, first_row, tile, to);
    }
  }
}

template <class Weight, int kTiles>
void float_tiles(const MatrixView& weights, const float* rows, int row_stride, int num_rows, int tile,
                 const Destination& to) {
  for (int r = 0; r < num_rows;) {
    const int height = block_height(num_rows - r, kMostFloatRows);
    float_rows<Weight, kMostFloatRows, kTiles>(weights, rows, row_stride, r, height, tile, to);
    r += height;
  }
}

template <class Weight>
void matmul_float(const MatrixView& weights, const float* rows, int row_stride, int num_rows, int tile_begin,
                  int tile_end, const Destination& to) {
  int tile = tile_begin;
  for (; tile + 4 <= tile_end; tile += 4) float_tiles<Weight, 4>(weights, rows, row_stride, num_rows, tile, to);
  for (; tile < tile_end; ++tile) float_tiles<Weight, 1>(weights, rows, row_stride, num_rows, tile, to);
}

}  // namespace
}  // namespace headstart::HEADSTART_LANES
