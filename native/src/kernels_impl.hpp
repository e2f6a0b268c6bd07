// Every kernel, written once over sixteen lanes. A file that includes this has included one of
// simd/*.hpp and named its namespace in HEADSTART_LANES; nothing here has external linkage, so
// code of different instruction sets cannot be mixed up by the linker.
//
// Order of sums (the contract): a product adds its groups of 32 inputs in ascending order, one
// fused multiply-add for the scale and one for the minimum; float products add inputs in ascending
// order; norms and softmax add lane by lane, then fold the lanes pairwise.
#pragma once
#include "kernels.hpp"

namespace headstart::HEADSTART_LANES {
namespace {

// ---- small things -------------------------------------------------------------------------

// lane i + lane i+8, then +4, +2, +1: the same tree everywhere
inline float fold_sum(Floats v) {
  float lane[16];
  store(lane, v);
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lane[i] += lane[i + width];
  }
  return lane[0];
}

inline float fold_max(Floats v) {
  float lane[16];
  store(lane, v);
  float highest = lane[0];
  for (int i = 1; i < 16; ++i) highest = lane[i] > highest ? lane[i] : highest;
  return highest;
}

inline int32_t fold_int(Ints v) {
  int32_t lane[16], sum = 0;
  store_int(lane, v);
  for (int i = 0; i < 16; ++i) sum += lane[i];
  return sum;
}

// e^x for x <= 0 (0 below -87) and for moderate positive x: 2^n * polynomial on [-ln2/2, ln2/2].
// Coefficients: Cephes expf. Relative error below 2e-7.
inline Floats exponential(Floats x) {
  const Floats lowest = splat(-87.0f);
  const Floats clamped = min(splat(87.0f), max(lowest, x));  // in this order NaN comes through
  const Floats n = round_even(mul(clamped, splat(1.44269504088896341f)));
  Floats r = fma(n, splat(-0.693359375f), clamped);
  r = fma(n, splat(2.12194440e-4f), r);
  Floats y = splat(1.9875691500e-4f);
  y = fma(y, r, splat(1.3981999507e-3f));
  y = fma(y, r, splat(8.3334519073e-3f));
  y = fma(y, r, splat(4.1665795894e-2f));
  y = fma(y, r, splat(1.6666665459e-1f));
  y = fma(y, r, splat(5.0000001201e-1f));
  y = fma(y, mul(r, r), r);
  y = add(y, splat(1.0f));
  return zero_where_below(x, lowest, scale_by_power(y, to_int(n)));
}

// ---- activations --------------------------------------------------------------------------

inline Floats largest_magnitude(const float* x, int count) {
  Floats largest = splat(0.0f);
  for (int i = 0; i < count; i += 16) largest = max(abs(load(x + i)), largest);
  return largest;
}

// codes of `count` inputs at one scale; returns the sum of each 16 through `half_sums` if given
inline int32_t quantise_span(const float* x, int count, float inverse, int8_t* codes, int32_t* half_sums) {
  const Floats factor = splat(inverse);
  int32_t sum = 0;
  for (int i = 0; i < count; i += 16) {
    const Ints code = to_int(mul(load(x + i), factor));
    store_bytes(codes + i, code);
    const int32_t part = fold_int(code);
    if (half_sums != nullptr) half_sums[i / 16] = part;
    sum += part;
  }
  return sum;
}

void quantise_groups(const float* row, int k, int r, const QuantisedRows& to) {
  const int num_groups = k / kGroup;
  for (int g = 0; g < num_groups; ++g) {
    const float* x = row + g * kGroup;
    const float largest = fold_max(largest_magnitude(x, kGroup));
    const size_t at = static_cast<size_t>(r) * num_groups + g;
    const float scale = largest / 127.0f;
    const int32_t sum = quantise_span(x, kGroup, largest > 0.0f ? 127.0f / largest : 0.0f, to.codes + at * kGroup,
                                      to.half_sums + at * 2);
    to.scales[at] = scale;
    to.sums[at] = sum;
    to.scaled_sums[at] = scale * static_cast<float>(sum);
  }
}

void quantise_row(const float* row, int k, int r, const QuantisedRows& to) {
  const float largest = fold_max(largest_magnitude(row, k));
  to.row_sums[r] = quantise_span(row, k, largest > 0.0f ? 127.0f / largest : 0.0f,
                                 to.row_codes + static_cast<size_t>(r) * k, nullptr);
  to.row_scales[r] = largest / 127.0f;
}

constexpr int kAhead = 4096;  // bytes between what is read and what is asked of memory

// ---- matrix products: 8-bit activations in groups -----------------------------------------

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
    const uint8_t* scales = weights.data + static_cast<size_t>(tile) * weights.tile_bytes;
    const uint8_t* codes = scales + weights.codes_at;
    Floats sums[kRows];
    for (int r = 0; r < kRows; ++r) sums[r] = splat(0.0f);
    for (size_t g = 0; g < num_groups; ++g, scales += kAllScaleBytes, codes += kCodeBytes) {
      for (int line = 0; line < kCodeBytes; line += 64) prefetch(codes + kAhead + line);
      accumulate<kRows>(scales, codes, rows, g, num_groups, weights.zero_point, sums);
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
      prefetch(codes + kAhead);
      prefetch(codes + kAhead + 64);
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

template <class Format, int kRows>
inline int run_blocks(const MatrixView& weights, const QuantisedRows& rows, int r, int num_rows, int tile,
                      const Destination& to) {
  if constexpr (kRows <= Format::kMostRows) {
    for (; r + kRows <= num_rows; r += kRows) Format::template block_of_rows<kRows>(weights, rows, r, tile, to);
  }
  return r;
}

template <class Format>
void matmul_quantised(const MatrixView& weights, const QuantisedRows& rows, int num_rows, int tile_begin, int tile_end,
                      const Destination& to) {
  for (int tile = tile_begin; tile < tile_end; ++tile) {
    int r = run_blocks<Format, 16>(weights, rows, 0, num_rows, tile, to);
    r = run_blocks<Format, 8>(weights, rows, r, num_rows, tile, to);
    r = run_blocks<Format, 4>(weights, rows, r, num_rows, tile, to);
    r = run_blocks<Format, 2>(weights, rows, r, num_rows, tile, to);
    run_blocks<Format, 1>(weights, rows, r, num_rows, tile, to);
  }
}

// ---- matrix products: floats --------------------------------------------------------------

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

void matmul(const MatrixView& w, const QuantisedRows& quantised, const float* rows, int row_stride, int num_rows,
            int tile_begin, int tile_end, const Destination& to) {
  const auto groups = [&]<class Format>(Format) {
    matmul_quantised<Format>(w, quantised, num_rows, tile_begin, tile_end, to);
  };
  const auto floats = [&]<class Weight>(Weight) {
    matmul_float<Weight>(w, rows, row_stride, num_rows, tile_begin, tile_end, to);
  };
  switch (w.layout) {
    case Layout::kNibbleHalf: return groups(GroupFormat<true, true, 1, false>{});
    case Layout::kNibbleHalfMin: return groups(GroupFormat<true, true, 1, true>{});
    case Layout::kByteHalf: return groups(GroupFormat<false, true, 1, false>{});
    case Layout::kByteHalfMin: return groups(GroupFormat<false, true, 1, true>{});
    case Layout::kNibbleFloatMin: return groups(GroupFormat<true, false, 1, true>{});
    case Layout::kByteFloatMin: return groups(GroupFormat<false, false, 1, true>{});
    case Layout::kByteFloatPair: return groups(GroupFormat<false, false, 2, false>{});
    case Layout::kByteRow: return groups(RowFormat{});
    case Layout::kFloat: return floats(FloatWeight{});
    case Layout::kHalf: return floats(HalfWeight{});
    case Layout::kBfloat: return floats(BfloatWeight{});
  }
}

// ---- between the products -----------------------------------------------------------------

void rms_norm(const float* x, const float* weight, float eps, int k, float* out) {
  Floats squares = splat(0.0f);
  for (int i = 0; i < k; i += 16) {
    const Floats v = load(x + i);
    squares = fma(v, v, squares);
  }
  const float mean = fold_sum(squares) / static_cast<float>(k);
  const Floats factor = splat(1.0f / __builtin_sqrtf(mean + eps));
  for (int i = 0; i < k; i += 16) store(out + i, mul(mul(load(x + i), factor), load(weight + i)));
}

void silu_gate(const float* gate, const float* up, int k, float* out) {
  const Floats one = splat(1.0f), zero = splat(0.0f);
  for (int i = 0; i < k; i += 16) {
    const Floats g = load(gate + i);
    store(out + i, mul(div(g, add(one, exponential(sub(zero, g)))), load(up + i)));
  }
}

void add_rows(const float* x, const float* y, int k, float* out) {
  for (int i = 0; i < k; i += 16) store(out + i, add(load(x + i), load(y + i)));
}

void scale_row(float* x, int k, float factor) {
  const Floats f = splat(factor);
  for (int i = 0; i < k; i += 16) store(x + i, mul(load(x + i), f));
}

void rotate(float* head, const float* cosine, const float* sine, int half) {
  int i = 0;
  for (; i + 16 <= half; i += 16) {
    const Floats a = load(head + i), b = load(head + half + i), c = load(cosine + i), s = load(sine + i);
    store(head + i, sub(mul(a, c), mul(b, s)));
    store(head + half + i, add(mul(b, c), mul(a, s)));
  }
  for (; i < half; ++i) {
    const float a = head[i], b = head[half + i];
    head[i] = a * cosine[i] - b * sine[i];
    head[half + i] = b * cosine[i] + a * sine[i];
  }
}

void floats_to_halves(const float* in, int count, uint16_t* out) {
  for (int i = 0; i < count; i += 16) store_f16(out + i, load(in + i));
}

// ---- attention ----------------------------------------------------------------------------

// Keys and values are stored as floats or halves: FloatWeight and HalfWeight tell how to read them.

template <class Stored, int kQueries>
inline void score_some(const float* queries, int query_stride, const typename Stored::Stored* keys, int head_dim,
                       float* scores, int score_stride) {
  Floats sums[kQueries];
  for (int q = 0; q < kQueries; ++q) sums[q] = splat(0.0f);
  for (int d = 0; d < head_dim; ++d) {
    const Floats key = Stored::get(keys + d * 16);
    for (int q = 0; q < kQueries; ++q) sums[q] = fma(splat(queries[q * query_stride + d]), key, sums[q]);
  }
  for (int q = 0; q < kQueries; ++q) store(scores + static_cast<size_t>(q) * score_stride, sums[q]);
}

template <class Stored>
inline void score_all(const float* queries, int num_queries, int query_stride, const void* keys, int head_dim,
                      float* scores, int score_stride) {
  int q = 0;
  const auto some = [&]<int kQueries>() {
    for (; q + kQueries <= num_queries; q += kQueries) {
      score_some<Stored, kQueries>(queries + static_cast<size_t>(q) * query_stride, query_stride,
                                   static_cast<const typename Stored::Stored*>(keys), head_dim,
                                   scores + static_cast<size_t>(q) * score_stride, score_stride);
    }
  };
  some.template operator()<8>();
  some.template operator()<4>();
  some.template operator()<3>();
  some.template operator()<2>();
  some.template operator()<1>();
}

void score_block(const float* queries, int num_queries, int query_stride, const void* keys, bool half, int head_dim,
                 float* scores, int score_stride) {
  if (half) {
    score_all<HalfWeight>(queries, num_queries, query_stride, keys, head_dim, scores, score_stride);
  } else {
    score_all<FloatWeight>(queries, num_queries, query_stride, keys, head_dim, scores, score_stride);
  }
}

float softmax(float* scores, int begin, int end) {
  const int first = begin / 16 * 16, last = (end + 15) / 16 * 16;
  const Floats nothing = splat(-__builtin_inff());
  Floats highest = nothing;
  for (int i = first; i < last; i += 16) {
    Floats v = load(scores + i);
    if (i < begin) v = keep_from(v, begin - i, nothing);
    if (i + 16 > end) v = keep_below(v, end - i, nothing);
    store(scores + i, v);
    highest = max(v, highest);
  }
  const Floats top = splat(fold_max(highest));
  Floats total = splat(0.0f);
  for (int i = first; i < last; i += 16) {
    const Floats weight = exponential(sub(load(scores + i), top));
    store(scores + i, weight);
    total = add(total, weight);
  }
  return fold_sum(total);
}

// kQueries rows of weights, 16 * kParts dimensions of the values
template <class Stored, int kQueries, int kParts>
inline void mix_some(const float* weights, int weight_stride, const typename Stored::Stored* values, int head_dim,
                     int begin, int end, float* outs, int out_stride) {
  Floats sums[kQueries][kParts];
  for (int q = 0; q < kQueries; ++q) {
    for (int d = 0; d < kParts; ++d) sums[q][d] = load(outs + q * out_stride + d * 16);
  }
  for (int lane = begin; lane < end; ++lane) {
    Floats value[kParts];
    for (int d = 0; d < kParts; ++d) value[d] = Stored::get(values + lane * head_dim + d * 16);
    for (int q = 0; q < kQueries; ++q) {
      const Floats weight = splat(weights[static_cast<size_t>(q) * weight_stride + lane]);
      for (int d = 0; d < kParts; ++d) sums[q][d] = fma(weight, value[d], sums[q][d]);
    }
  }
  for (int q = 0; q < kQueries; ++q) {
    for (int d = 0; d < kParts; ++d) store(outs + q * out_stride + d * 16, sums[q][d]);
  }
}

template <class Stored>
inline void mix_all(const float* weights, int num_queries, int weight_stride, const void* stored, int head_dim,
                    int begin, int end, float* outs, int out_stride) {
  const auto* values = static_cast<const typename Stored::Stored*>(stored);
  int q = 0;
  const auto some = [&]<int kQueries>() {
    for (; q + kQueries <= num_queries; q += kQueries) {
      const float* w = weights + static_cast<size_t>(q) * weight_stride;
      float* out = outs + static_cast<size_t>(q) * out_stride;
      int d = 0;
      for (; d + 64 <= head_dim; d += 64) {
        mix_some<Stored, kQueries, 4>(w, weight_stride, values + d, head_dim, begin, end, out + d, out_stride);
      }
      for (; d < head_dim; d += 16) {
        mix_some<Stored, kQueries, 1>(w, weight_stride, values + d, head_dim, begin, end, out + d, out_stride);
      }
    }
  };
  some.template operator()<4>();
  some.template operator()<3>();
  some.template operator()<2>();
  some.template operator()<1>();
}

void mix_block(const float* weights, int num_queries, int weight_stride, const void* values, bool half, int head_dim,
               int begin, int end, float* outs, int out_stride) {
  if (half) {
    mix_all<HalfWeight>(weights, num_queries, weight_stride, values, head_dim, begin, end, outs, out_stride);
  } else {
    mix_all<FloatWeight>(weights, num_queries, weight_stride, values, head_dim, begin, end, outs, out_stride);
  }
}

// ---- choosing -----------------------------------------------------------------------------

int argmax(const float* x, int count) {
  // the highest value first (exact in any order), then the first place it stands
  Floats highest = splat(-__builtin_inff()), checked = splat(0.0f);
  int i = 0;
  for (; i + 16 <= count; i += 16) {
    const Floats v = load(x + i);
    highest = max(v, highest);
    checked = add(checked, sub(v, v));  // NaN where v is NaN or infinite
  }
  float top = fold_max(highest);
  bool doubtful = fold_sum(checked) != 0.0f;
  for (; i < count; ++i) {
    top = x[i] > top ? x[i] : top;
    doubtful |= x[i] != x[i];
  }
  if (doubtful) {  // -infinity is allowed, NaN is not
    for (int j = 0; j < count; ++j) {
      if (x[j] != x[j]) return -1;
    }
  }
  for (int j = 0; j < count; ++j) {
    if (x[j] == top) return j;
  }
  return 0;
}

// Plain loops that the compiler turns into vectors: no fused operations, so the bits are the same.
double exponentials(const double* x, double top, int count, double* out) {
  constexpr double kRound = 0x1.8p52;  // adding it leaves the nearest integer in the low bits
  for (int i = 0; i < count; ++i) {
    const double v = x[i] - top;
    const double clamped = v < -708.0 ? -708.0 : v;
    const double shifted = clamped * 1.4426950408889634 + kRound;
    const double n = shifted - kRound;
    const double r = (clamped - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
    double y = 1.0 / 6227020800.0;  // Taylor series: its next term is below 4e-18
    y = y * r + 1.0 / 479001600.0;
    y = y * r + 1.0 / 39916800.0;
    y = y * r + 1.0 / 3628800.0;
    y = y * r + 1.0 / 362880.0;
    y = y * r + 1.0 / 40320.0;
    y = y * r + 1.0 / 5040.0;
    y = y * r + 1.0 / 720.0;
    y = y * r + 1.0 / 120.0;
    y = y * r + 1.0 / 24.0;
    y = y * r + 1.0 / 6.0;
    y = y * r + 0.5;
    y = y * r + 1.0;
    y = y * r + 1.0;
    uint64_t bits;
    __builtin_memcpy(&bits, &shifted, 8);
    bits = (bits + 1023) << 52;
    double power;
    __builtin_memcpy(&power, &bits, 8);
    out[i] = v < -708.0 ? 0.0 : y * power;
  }
  double sums[8] = {};
  int i = 0;
  for (; i + 8 <= count; i += 8) {
    for (int lane = 0; lane < 8; ++lane) sums[lane] += out[i + lane];
  }
  for (; i < count; ++i) sums[0] += out[i];
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

inline uint32_t mix32(uint32_t h) {  // the finaliser of 32-bit MurmurHash3
  h = (h ^ h >> 16) * 0x85EBCA6Bu;
  h = (h ^ h >> 13) * 0xC2B2AE35u;
  return h ^ h >> 16;
}

void noise_bits(uint64_t key, int count, uint32_t* out) {
  const uint32_t low = static_cast<uint32_t>(key), high = static_cast<uint32_t>(key >> 32);
  for (int i = 0; i < count; ++i) out[i] = mix32(mix32((static_cast<uint32_t>(i) * 0x9E3779B1u) ^ low) ^ high);
}

Kernels make_kernels() {
  return {kName, matmul, quantise_groups, quantise_row, rms_norm, silu_gate, add_rows, rotate, floats_to_halves,
          score_block, softmax, mix_block, scale_row, argmax,
          exponentials, noise_bits};
}

}  // namespace
}  // namespace headstart::HEADSTART_LANES
