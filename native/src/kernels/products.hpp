// Matrix products of 8-bit rows with quantised weights. Part of kernels_impl.hpp.
#pragma once
#include "lane_math.hpp"

namespace headstart::HEADSTART_LANES {
namespace {

// Bytes between what is read and what is asked of memory. Between 8 and 128 KiB it makes no difference.
constexpr int kAhead = 16384;
// From so many rows on weights are asked for: with one row the hardware alone reads faster (25 against 19 GB/s a core),
// more rows leave gaps in which it loses the trail.
constexpr int kLeastFetchingRows = 3;

// Rows of the next block of `left`: blocks as few and as even as can be, for each reads and unpacks all weights anew.
inline int block_height(int left, int most) {
  const int blocks = (left + most - 1) / most;
  return (left + blocks - 1) / blocks;
}

inline Floats load_scale(const uint8_t* p, bool half) {
  return half ? load_f16(reinterpret_cast<const uint16_t*>(p)) : load(reinterpret_cast<const float*>(p));
}

inline void write(const Destination& to, int r, int tile, Floats value) {
  float* out = to.out + static_cast<size_t>(r) * to.stride + tile * kTile;
  if (to.bias != nullptr) value = add(value, load(to.bias + tile * kTile));
  if (to.accumulate) value = add(load(out), value);
  store(out, value);
}

template <bool kNibbles, bool kHalfScales, int kScales, bool kMin>
struct GroupFormat {
  static constexpr int kMostRows = kMaxRows;
  static constexpr int kScaleBytes = kHalfScales ? 32 : 64;
  static constexpr int kAllScaleBytes = kScaleBytes * (kScales + (kMin ? 1 : 0));
  static constexpr int kCodeBytes = kNibbles ? 256 : 512;
  static constexpr int kBlockBytes = 2 * (kAllScaleBytes + kCodeBytes);

  // One group for kRows rows: unpack the codes once, then each row's exact integer dot product
  // and its scaling.
  template <int kRows>
  static inline void accumulate(const uint8_t* scales, const uint8_t* packed, const QuantisedRows& rows, size_t group,
                                size_t row_groups, int zero_point, Floats* sums) {
    Bytes codes[8];
    for (int s = 0; s < 4; ++s) {
      if constexpr (kNibbles) {
        const Bytes both = load_codes(packed + s * 64);
        codes[s] = low_nibbles(both);
        codes[s + 4] = high_nibbles(both);
      } else {
        codes[s] = load_codes(packed + s * 64);
        codes[s + 4] = load_codes(packed + (s + 4) * 64);
      }
    }
    const Floats scale = load_scale(scales, kHalfScales);
    const Floats second = kScales == 2 ? load_scale(scales + kScaleBytes, kHalfScales) : scale;
    const Floats minimum = kMin ? load_scale(scales + kScaleBytes * kScales, kHalfScales) : scale;
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const size_t at = r * row_groups + group;
      const int8_t* activations = rows.codes + at * kGroup;
      const Floats activation_scale = splat(rows.scales[at]);
      if constexpr (kScales == 2) {
        Ints low = splat_int(-zero_point * rows.half_sums[2 * at]);
        Ints high = splat_int(-zero_point * rows.half_sums[2 * at + 1]);
#pragma GCC unroll 4
        for (int s = 0; s < 4; ++s) {
          low = dot4<!kNibbles>(low, codes[s], activations + 4 * s);
          high = dot4<!kNibbles>(high, codes[s + 4], activations + 16 + 4 * s);
        }
        sums[r] = fma(to_float(low), mul(scale, activation_scale), sums[r]);
        sums[r] = fma(to_float(high), mul(second, activation_scale), sums[r]);
      } else {
        Ints dot = splat_int(kMin ? 0 : -zero_point * rows.sums[at]);
#pragma GCC unroll 8
        for (int s = 0; s < 8; ++s) dot = dot4<!kNibbles>(dot, codes[s], activations + 4 * s);
        sums[r] = fma(to_float(dot), mul(scale, activation_scale), sums[r]);
        if constexpr (kMin) sums[r] = fma(minimum, splat(rows.scaled_sums[at]), sums[r]);
      }
    }
  }

  template <int kRows>
  static void block_of_rows(const MatrixView& weights, const QuantisedRows& all, int first_row, int tile,
                            const Destination& to) {
    const size_t num_groups = static_cast<size_t>(weights.k) / kGroup;
    QuantisedRows rows = all;
    const size_t skip = static_cast<size_t>(first_row) * num_groups;
    rows.codes += skip * kGroup;
    rows.scales += skip;
    rows.scaled_sums += skip;
    rows.sums += skip;
    rows.half_sums += 2 * skip;
    const uint8_t* block = weights.data + static_cast<size_t>(tile) * weights.tile_bytes;
    Floats sums[kRows];
    for (int r = 0; r < kRows; ++r) sums[r] = splat(0.0f);
    for (size_t g = 0; g < num_groups; g += 2, block += kBlockBytes) {
      if (kRows >= kLeastFetchingRows && first_row == 0) {
        for (int line = 0; line < kBlockBytes; line += 64) prefetch(block + kAhead + line);
      }
      const uint8_t* codes = block + 2 * kAllScaleBytes;
      accumulate<kRows>(block, codes, rows, g, num_groups, weights.zero_point, sums);
      if (g + 1 < num_groups) {
        accumulate<kRows>(block + kAllScaleBytes, codes + kCodeBytes, rows, g + 1, num_groups, weights.zero_point,
                          sums);
      }
    }
    for (int r = 0; r < kRows; ++r) write(to, first_row + r, tile, sums[r]);
  }
};

// 8-bit codes with one scale for an output and one for a row: no float inside the sum.
struct RowFormat {
  static constexpr int kMostRows = kMaxRows < 8 ? kMaxRows : 8;  // two sums a row

  template <int kRows>
  static void block_of_rows(const MatrixView& weights, const QuantisedRows& all, int first_row, int tile,
                            const Destination& to) {
    const int8_t* activations = all.row_codes + static_cast<size_t>(first_row) * weights.k;
    const uint8_t* codes = weights.data + static_cast<size_t>(tile) * weights.tile_bytes;
    Ints even[kRows], odd[kRows];  // two chains: exact, so their order is free
    for (int r = 0; r < kRows; ++r) {
      even[r] = splat_int(-weights.zero_point * all.row_sums[first_row + r]);
      odd[r] = splat_int(0);
    }
    for (int i = 0; i < weights.k; i += 8, codes += 128) {
      const Bytes first = load_codes(codes), second = load_codes(codes + 64);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const int8_t* a = activations + static_cast<size_t>(r) * weights.k + i;
        even[r] = dot4<true>(even[r], first, a);
        odd[r] = dot4<true>(odd[r], second, a + 4);
      }
    }
    const Floats scale = load(weights.row_scales + tile * kTile);
    for (int r = 0; r < kRows; ++r) {
      const Floats sum = to_float(add_int(even[r], odd[r]));
      write(to, first_row + r, tile, mul(sum, mul(scale, splat(all.row_scales[first_row + r]))));
    }
  }
};

// `height` rows by one tile, at most kRows
template <class Format, int kRows>
inline void quantised_rows(const MatrixView& weights, const QuantisedRows& rows, int first_row, int height, int tile,
                           const Destination& to) {
  if constexpr (kRows > 1) {
    if (height < kRows) return quantised_rows<Format, kRows - 1>(weights, rows, first_row, height, tile, to);
  }
  Format::template block_of_rows<kRows>(weights, rows, first_row, tile, to);
}

template <class Format>
void matmul_quantised(const MatrixView& weights, const QuantisedRows& rows, int num_rows, int tile_begin, int tile_end,
                      const Destination& to) {
  for (int tile = tile_begin; tile < tile_end; ++tile) {
    for (int r = 0; r < num_rows;) {
      const int height = block_height(num_rows - r, Format::kMostRows);
      quantised_rows<Format, Format::kMostRows>(weights, rows, r, height, tile, to);
      r += height;
    }
  }
}

}  // namespace
}  // namespace headstart::HEADSTART_LANES
