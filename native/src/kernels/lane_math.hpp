// Small things over sixteen lanes. Part of kernels_impl.hpp.
#pragma once
#include "../kernels.hpp"

namespace headstart::HEADSTART_LANES {
namespace {

// lane i + lane i+8, then +4, +2, +1: the same tree everywhere
inline float fold_sum(Floats v) {
  float lane[16];
  store(lane, v);
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lane[i] += lane[i + width];
  }
  return lane[0];
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

}  // namespace
}  // namespace headstart::HEADSTART_LANES
