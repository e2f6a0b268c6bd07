// What choosing a token does over a whole vocabulary. Part of kernels_impl.hpp.
#pragma once
#include "../noise.hpp"
#include "lane_math.hpp"

namespace headstart::HEADSTART_LANES {
namespace {

int argmax(const float* x, int count) {
  // the highest value first (exact in any order), then the first place it stands
  Floats highest = splat(-__builtin_inff()), checked = splat(0.0f);
  int i = 0;
  for (; i + 16 <= count; i += 16) {
    const Floats v = load(x + i);
    highest = max(v, highest);
    checked = add(checked, sub(v, v));  // NaN where v is NaN or infinite
  }
  float top = highest_lane(highest);
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

void divide(const double* x, double divisor, int count, double* out) {
  for (int i = 0; i < count; ++i) out[i] = x[i] / divisor;
}

template <class Number>
inline int find_at_least(const Number* x, int count, Number limit, int32_t* out) {
  constexpr int kChunk = 64;  // looked at as a whole first
  int found = 0, i = 0;
  for (; i + kChunk <= count; i += kChunk) {
    int any = 0;
    for (int j = 0; j < kChunk; ++j) any |= x[i + j] >= limit;
    if (any == 0) continue;
    for (int j = i; j < i + kChunk; ++j) {
      if (x[j] >= limit) out[found++] = j;
    }
  }
  for (; i < count; ++i) {
    if (x[i] >= limit) out[found++] = i;
  }
  return found;
}

int at_least(const double* x, int count, double limit, int32_t* out) { return find_at_least(x, count, limit, out); }

int bits_at_least(const uint32_t* x, int count, uint32_t limit, int32_t* out) {
  return find_at_least(x, count, limit, out);
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

uint64_t read(const uint8_t* p, size_t num_bytes) {
  uint64_t sums[32] = {};
  for (size_t i = 0; i + sizeof sums <= num_bytes; i += sizeof sums) {
    uint64_t words[32];
    __builtin_memcpy(words, p + i, sizeof words);
    for (int lane = 0; lane < 32; ++lane) sums[lane] += words[lane];
  }
  for (int lane = 1; lane < 32; ++lane) sums[0] += sums[lane];
  return sums[0];
}

void noise_bits(uint64_t key, int count, uint32_t* out) {
  const uint32_t low = static_cast<uint32_t>(key), high = static_cast<uint32_t>(key >> 32);
  for (int i = 0; i < count; ++i) out[i] = token_noise(low, high, static_cast<uint32_t>(i));
}

}  // namespace
}  // namespace headstart::HEADSTART_LANES
