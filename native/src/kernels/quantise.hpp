// Rows to 8 bits. Part of kernels_impl.hpp.
#pragma once
#include "lane_math.hpp"

namespace headstart::HEADSTART_LANES {
namespace {

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
    const int32_t part = sum_lanes(code);
    if (half_sums != nullptr) half_sums[i / 16] = part;
    sum += part;
  }
  return sum;
}

void quantise_groups(const float* row, int k, int r, const QuantisedRows& to) {
  const int num_groups = k / kGroup;
  for (int g = 0; g < num_groups; ++g) {
    const float* x = row + g * kGroup;
    const float largest = highest_lane(largest_magnitude(x, kGroup));
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
  const float largest = highest_lane(largest_magnitude(row, k));
  to.row_sums[r] = quantise_span(row, k, largest > 0.0f ? 127.0f / largest : 0.0f,
                                 to.row_codes + static_cast<size_t>(r) * k, nullptr);
  to.row_scales[r] = largest / 127.0f;
}

}  // namespace
}  // namespace headstart::HEADSTART_LANES
