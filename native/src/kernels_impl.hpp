// Every kernel, written once over sixteen lanes. A file that includes this has included one of
// simd/*.hpp and named its namespace in HEADSTART_LANES; nothing here has external linkage, so
// code of different instruction sets cannot be mixed up by the linker.
//
// Order of sums (the contract): a product adds its groups of 32 inputs in ascending order, one
// fused multiply-add for the scale and one for the minimum; float products add inputs in ascending
// order; scores add even and odd dimensions apart; norms and softmax add lane by lane, then fold the
// lanes pairwise.
#pragma once
#include "kernels/attention_blocks.hpp"
#include "kernels/choosing.hpp"
#include "kernels/float_products.hpp"
#include "kernels/guessing.hpp"
#include "kernels/products.hpp"
#include "kernels/quantise.hpp"
#include "kernels/row_operations.hpp"
#include "kernels/tile_products.hpp"

namespace headstart::HEADSTART_LANES {
namespace {

void matmul(const MatrixView& w, const QuantisedRows& quantised, const float* rows, int row_stride, int num_rows,
            int tile_begin, int tile_end, const Destination& to) {
  const auto groups = [&]<class Format>(Format) {
    matmul_quantised<Format>(w, quantised, num_rows, tile_begin, tile_end, to);
  };
  const auto floats = [&]<class Weight>(Weight) {
    matmul_float<Weight>(w, rows, row_stride, num_rows, tile_begin, tile_end, to);
  };
  switch (w.layout) {
    case Layout::kNibbleHalf:
      return groups(GroupFormat<true, true, 1, false>{});
    case Layout::kNibbleHalfMin:
      return groups(GroupFormat<true, true, 1, true>{});
    case Layout::kByteHalf:
      return groups(GroupFormat<false, true, 1, false>{});
    case Layout::kByteHalfMin:
      return groups(GroupFormat<false, true, 1, true>{});
    case Layout::kNibbleFloatMin:
      return groups(GroupFormat<true, false, 1, true>{});
    case Layout::kByteFloatMin:
      return groups(GroupFormat<false, false, 1, true>{});
    case Layout::kByteFloatPair:
      return groups(GroupFormat<false, false, 2, false>{});
    case Layout::kByteRow:
      return groups(RowFormat{});
    case Layout::kFloat:
      return floats(FloatWeight{});
    case Layout::kHalf:
      return floats(HalfWeight{});
    case Layout::kBfloat:
      return floats(BfloatWeight{});
  }
}

constexpr Kernels make_kernels() {
  return {kName,           matmul, quantise_groups,  quantise_row,     rms_norm,      silu,         silu_gate,
          add_rows,        rotate, floats_to_halves, halves_to_floats, score_block,   softmax,      mix_block,
          scale_row,       argmax, divide,           at_least,         bits_at_least, exponentials, lane_maxima,
          exponential_sum, read,   noise_bits};
}

// The same kernels under another name, with products of int8 rows on tile registers.
template <class Tiles>
[[maybe_unused]] constexpr Kernels with_tiles(const char* name) {
  Kernels kernels = make_kernels();
  kernels.name = name;
  kernels.matmul = [](const MatrixView& weights, const QuantisedRows& quantised, const float* rows, int row_stride,
                      int num_rows, int tile_begin, int tile_end, const Destination& to) {
    if (weights.layout == Layout::kByteRow && num_rows >= kFewestTileRows) {
      matmul_tiles<Tiles>(weights, quantised, num_rows, tile_begin, tile_end, to);
    } else {
      matmul(weights, quantised, rows, row_stride, num_rows, tile_begin, tile_end, to);
    }
  };
  return kernels;
}

}  // namespace
}  // namespace headstart::HEADSTART_LANES
