// What a guess does over a row of logits. Part of kernels_impl.hpp.
#pragma once
#include "lane_math.hpp"

namespace headstart::HEADSTART_LANES {
namespace {

void lane_maxima(const float* x, int count, float* out) {
  constexpr int kSpan = kMaximumRows * 16;
  for (int begin = 0; begin < count; begin += kSpan, out += 16) {
    const int end = count - begin < kSpan ? count : begin + kSpan;
    Floats highest = load(x + begin);
    for (int i = begin + 16; i < end; i += 16) highest = max(load(x + i), highest);
    store(out, highest);
  }
}

float exponential_sum(const float* x, int count, float top, float factor) {
  const Floats highest = splat(top), by = splat(factor);
  Floats sums[4];  // chains, so that one addition need not wait for the one before
  for (Floats& sum : sums) sum = splat(0.0f);
  int i = 0;
  for (; i + 64 <= count; i += 64) {
#pragma GCC unroll 4
    for (int chain = 0; chain < 4; ++chain) {
      sums[chain] = add(sums[chain], exponential(mul(sub(load(x + i + 16 * chain), highest), by)));
    }
  }
  for (; i < count; i += 16) sums[0] = add(sums[0], exponential(mul(sub(load(x + i), highest), by)));
  return fold_sum(add(add(sums[0], sums[1]), add(sums[2], sums[3])));
}

}  // namespace
}  // namespace headstart::HEADSTART_LANES
