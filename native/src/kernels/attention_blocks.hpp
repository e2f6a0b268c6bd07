// Attention over one block of sixteen keys. Part of kernels_impl.hpp.
#pragma once
#include "float_products.hpp"

namespace headstart::HEADSTART_LANES {
namespace {

// Keys and values are stored as floats or halves: FloatWeight and HalfWeight tell how to read them.

template <class Stored, int kQueries>
inline void score_some(const float* queries, int query_stride, const typename Stored::Stored* keys, int head_dim,
                       float* scores, int score_stride) {
  // two chains for even and odd dimensions, since one would wait for itself with few queries
  Floats even[kQueries], odd[kQueries];
  for (int q = 0; q < kQueries; ++q) even[q] = odd[q] = splat(0.0f);
  for (int d = 0; d < head_dim; d += 2) {
    const Floats first = Stored::get(keys + d * 16), second = Stored::get(keys + d * 16 + 16);
    for (int q = 0; q < kQueries; ++q) {
      even[q] = fma(splat(queries[q * query_stride + d]), first, even[q]);
      odd[q] = fma(splat(queries[q * query_stride + d + 1]), second, odd[q]);
    }
  }
  for (int q = 0; q < kQueries; ++q) store(scores + static_cast<size_t>(q) * score_stride, add(even[q], odd[q]));
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
  some.template operator()<6>();
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
  const Floats top = splat(highest_lane(highest));
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

}  // namespace
}  // namespace headstart::HEADSTART_LANES
