// Rows to 8 bits. Part of kernels_impl.hpp.
#pragma once
#include "lane_math.hpp"

namespace headstart::HEADSTART_LANES {
namespace {

// NaN if any value is NaN, which the order of magnitude bits sees to
inline float largest_magnitude(const float* x, int count) {
  Ints largest = splat_int(0);
  for (int i = 0; i < count; i += 16) largest = max_int(magnitude_bits(load(x + i)), largest);
  const int32_t bits = highest_int(largest);
  float magnitude;
  __builtin_memcpy(&magnitude, &bits, 4);
  return magnitude;
}

// Codes of `count` values at the scale that is returned; `half_sums`, if given, takes the sum of
// each 16 codes. Values that are not finite give a scale of NaN, so that they cannot pass unseen.
inline float quantise_span(const float* x, int count, int8_t* codes, int32_t* half_sums, int32_t* sum) {
  const float largest = largest_magnitude(x, count);
  const bool finite = largest < __builtin_inff();
  const float inverse = 127.0f / largest;
  const bool coded = finite && inverse < __builtin_inff();  // else zeros, or too small to divide by
  const Floats factor = splat(inverse);
  *sum = 0;
  for (int i = 0; i < count; i += 16) {
    const Ints code = coded ? to_int(mul(load(x + i), factor)) : splat_int(0);
    store_bytes(codes + i, code);
    const int32_t part = sum_lanes(code);
    if (half_sums != nullptr) half_sums[i / 16] = part;
    *sum += part;
  }
  if (!finite) return __builtin_nanf("");
  return coded ? largest / 127.0f : 0.0f;
}

void quantise_groups(const float* row, int k, int r, const QuantisedRows& to) {
  const int num_groups = k / kGroup;
  for (int g = 0; g < num_groups; ++g) {
    const size_t at = static_cast<size_t>(r) * num_groups + g;
    const float scale =
        quantise_span(row + g * kGroup, kGroup, to.codes + at * kGroup, to.half_sums + at * 2, to.sums + at);
    to.scales[at] = scale;
    to.scaled_sums[at] = scale * static_cast<float>(to.sums[at]);
  }
}

void quantise_row(const float* row, int k, int r, const QuantisedRows& to) {
  to.row_scales[r] = quantise_span(row, k, to.row_codes + static_cast<size_t>(r) * k, nullptr, to.row_sums + r);
}

}  // namespace
}  // namespace headstart::HEADSTART_LANES
