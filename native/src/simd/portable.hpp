// Sixteen lanes in plain C++: the meaning of each function, and the fallback.
//
// Kernels are written once over these lanes (kernels_impl.hpp) and compiled once for each
// instruction set. Every function works lane by lane with IEEE rounding, so all instruction
// sets give the same bits; `fma` rounds once everywhere.
#pragma once
#include <cmath>
#include <cstdint>

#include "../half.hpp"

namespace headstart::portable {

constexpr const char* kName = "portable";
constexpr int kMaxRows = 4;

struct Floats {
  float lane[16];
};
struct Ints {
  int32_t lane[16];
};
struct Bytes {
  uint8_t lane[64];
};

namespace detail {
template <class F>
inline Floats each(F f) {
  Floats r;
  for (int i = 0; i < 16; ++i) r.lane[i] = f(i);
  return r;
}
template <class F>
inline Ints each_int(F f) {
  Ints r;
  for (int i = 0; i < 16; ++i) r.lane[i] = f(i);
  return r;
}
}  // namespace detail

inline Floats load(const float* p) {
  return detail::each([&](int i) { return p[i]; });
}
inline void store(float* p, const Floats& v) {
  for (int i = 0; i < 16; ++i) p[i] = v.lane[i];
}
inline Floats splat(float x) {
  return detail::each([&](int) { return x; });
}
inline Floats add(const Floats& a, const Floats& b) {
  return detail::each([&](int i) { return a.lane[i] + b.lane[i]; });
}
inline Floats sub(const Floats& a, const Floats& b) {
  return detail::each([&](int i) { return a.lane[i] - b.lane[i]; });
}
inline Floats mul(const Floats& a, const Floats& b) {
  return detail::each([&](int i) { return a.lane[i] * b.lane[i]; });
}
inline Floats div(const Floats& a, const Floats& b) {
  return detail::each([&](int i) { return a.lane[i] / b.lane[i]; });
}
inline Floats fma(const Floats& a, const Floats& b, const Floats& c) {
  return detail::each([&](int i) { return std::fmaf(a.lane[i], b.lane[i], c.lane[i]); });
}
// like the x86 instruction: the second operand where either is NaN
inline Floats max(const Floats& a, const Floats& b) {
  return detail::each([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
}
inline Floats min(const Floats& a, const Floats& b) {
  return detail::each([&](int i) { return a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; });
}
inline Floats round_even(const Floats& a) {
  return detail::each([&](int i) { return std::nearbyintf(a.lane[i]); });
}
inline Floats load_f16(const uint16_t* p) {
  return detail::each([&](int i) { return half_to_float(p[i]); });
}
inline Floats load_bf16(const uint16_t* p) {
  return detail::each([&](int i) { return bfloat_to_float(p[i]); });
}
inline void store_f16(uint16_t* p, const Floats& v) {
  for (int i = 0; i < 16; ++i) p[i] = float_to_half(v.lane[i]);
}

inline Ints splat_int(int32_t x) {
  return detail::each_int([&](int) { return x; });
}
inline Ints add_int(const Ints& a, const Ints& b) {
  return detail::each_int([&](int i) { return a.lane[i] + b.lane[i]; });
}
inline Floats to_float(const Ints& a) {
  return detail::each([&](int i) { return static_cast<float>(a.lane[i]); });
}
// nearest even; what has no integer becomes the least one
inline Ints to_int(const Floats& a) {
  return detail::each_int([&](int i) {
    const float x = std::nearbyintf(a.lane[i]);
    return x >= -2147483648.0f && x < 2147483648.0f ? static_cast<int32_t>(x) : INT32_MIN;
  });
}
inline Ints load_int(const int32_t* p) {
  return detail::each_int([&](int i) { return p[i]; });
}
// exact in any order; of floats, no lane may be NaN
inline int32_t sum_lanes(const Ints& v) {
  int32_t sum = 0;
  for (int i = 0; i < 16; ++i) sum += v.lane[i];
  return sum;
}
// the bits of |a| order like |a| itself, with NaN above infinity
inline Ints magnitude_bits(const Floats& a) {
  return detail::each_int([&](int i) {
    int32_t bits;
    __builtin_memcpy(&bits, &a.lane[i], 4);
    return bits & 0x7fffffff;
  });
}
inline Ints max_int(const Ints& a, const Ints& b) {
  return detail::each_int([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
}
inline int32_t highest_int(const Ints& v) {
  int32_t highest = v.lane[0];
  for (int i = 1; i < 16; ++i) highest = v.lane[i] > highest ? v.lane[i] : highest;
  return highest;
}
inline float highest_lane(const Floats& v) {
  float highest = v.lane[0];
  for (int i = 1; i < 16; ++i) highest = v.lane[i] > highest ? v.lane[i] : highest;
  return highest;
}
// a * 2^exponent, for results that are normal numbers
inline Floats scale_by_power(const Floats& a, const Ints& exponent) {
  return detail::each([&](int i) {
    uint32_t bits;
    __builtin_memcpy(&bits, &a.lane[i], 4);
    bits += static_cast<uint32_t>(exponent.lane[i]) << 23;
    float r;
    __builtin_memcpy(&r, &bits, 4);
    return r;
  });
}
// saturating
inline void store_bytes(int8_t* p, const Ints& v) {
  for (int i = 0; i < 16; ++i) {
    const int32_t x = v.lane[i];
    p[i] = static_cast<int8_t>(x < -128 ? -128 : x > 127 ? 127 : x);
  }
}
// lanes below `count` from a, the rest from other
inline Floats keep_below(const Floats& a, int count, const Floats& other) {
  return detail::each([&](int i) { return i < count ? a.lane[i] : other.lane[i]; });
}
inline Floats keep_from(const Floats& a, int first, const Floats& other) { return keep_below(other, first, a); }
// `value`, but 0 in lanes where a < limit (NaN is not below)
inline Floats zero_where_below(const Floats& a, const Floats& limit, const Floats& value) {
  return detail::each([&](int i) { return a.lane[i] < limit.lane[i] ? 0.0f : value.lane[i]; });
}

inline Bytes load_codes(const uint8_t* p) {
  Bytes r;
  __builtin_memcpy(r.lane, p, 64);
  return r;
}
inline Bytes low_nibbles(const Bytes& v) {
  Bytes r;
  for (int i = 0; i < 64; ++i) r.lane[i] = v.lane[i] & 15;
  return r;
}
inline Bytes high_nibbles(const Bytes& v) {
  Bytes r;
  for (int i = 0; i < 64; ++i) r.lane[i] = v.lane[i] >> 4;
  return r;
}
// sum + codes[4i..4i+3] . activations[0..3] in lane i, exact; kWide: codes may pass 127
template <bool kWide>
inline Ints dot4(const Ints& sum, const Bytes& codes, const int8_t* activations) {
  return detail::each_int([&](int i) {
    int32_t r = sum.lane[i];
    for (int j = 0; j < 4; ++j) r += static_cast<int32_t>(codes.lane[4 * i + j]) * activations[j];
    return r;
  });
}
inline void prefetch(const uint8_t*) {}

}  // namespace headstart::portable
