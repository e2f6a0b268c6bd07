// Sixteen lanes on AVX2 with FMA and F16C: two registers of eight. See portable.hpp.
#pragma once
#include <immintrin.h>

#include <cstdint>

namespace headstart::avx2 {

constexpr const char* kName = "avx2";
constexpr int kMaxRows = 4;

struct Floats {
  __m256 lo, hi;
};
struct Ints {
  __m256i lo, hi;
};
using Bytes = Ints;

inline Floats load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void store(float* p, Floats v) {
  _mm256_storeu_ps(p, v.lo);
  _mm256_storeu_ps(p + 8, v.hi);
}
inline Floats splat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Floats add(Floats a, Floats b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
inline Floats sub(Floats a, Floats b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
inline Floats mul(Floats a, Floats b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
inline Floats div(Floats a, Floats b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
inline Floats fma(Floats a, Floats b, Floats c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
inline Floats max(Floats a, Floats b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
inline Floats min(Floats a, Floats b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
inline Floats round_even(Floats a) {
  constexpr int kMode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(a.lo, kMode), _mm256_round_ps(a.hi, kMode)};
}
inline Floats load_f16(const uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
inline Floats load_bf16(const uint16_t* p) {
  auto half = [](const uint16_t* q) {
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(q)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
  };
  return {half(p), half(p + 8)};
}
inline void store_f16(uint16_t* p, Floats v) {
  constexpr int kMode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v.lo, kMode));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(v.hi, kMode));
}

inline Ints splat_int(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline Ints add_int(Ints a, Ints b) { return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)}; }
inline Floats to_float(Ints a) { return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }
inline Ints to_int(Floats a) { return {_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)}; }
inline void store_int(int32_t* p, Ints v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v.lo);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 8), v.hi);
}
inline Ints load_int(const int32_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 8))};
}
inline int32_t sum_lanes(Ints v) {
  const __m256i eight = _mm256_add_epi32(v.lo, v.hi);
  __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0b01001110));
  return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0b10110001)));
}
inline Ints magnitude_bits(Floats a) {
  const __m256i mask = _mm256_set1_epi32(0x7fffffff);
  return {_mm256_and_si256(_mm256_castps_si256(a.lo), mask), _mm256_and_si256(_mm256_castps_si256(a.hi), mask)};
}
inline Ints max_int(Ints a, Ints b) { return {_mm256_max_epi32(a.lo, b.lo), _mm256_max_epi32(a.hi, b.hi)}; }
inline int32_t highest_int(Ints v) {
  const __m256i eight = _mm256_max_epi32(v.lo, v.hi);
  __m128i four = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0b01001110));
  return _mm_cvtsi128_si32(_mm_max_epi32(four, _mm_shuffle_epi32(four, 0b10110001)));
}
inline float highest_lane(Floats v) {
  const __m256 eight = _mm256_max_ps(v.lo, v.hi);
  __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  four = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}
inline Floats scale_by_power(Floats a, Ints e) {
  auto half = [](__m256 x, __m256i n) {
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x), _mm256_slli_epi32(n, 23)));
  };
  return {half(a.lo, e.lo), half(a.hi, e.hi)};
}
inline void store_bytes(int8_t* p, Ints v) {
  alignas(32) int32_t wide[16];
  store_int(wide, v);
  for (int i = 0; i < 16; ++i) {
    const int32_t x = wide[i];
    p[i] = static_cast<int8_t>(x < -128 ? -128 : x > 127 ? 127 : x);
  }
}
namespace detail {
// all-ones in lanes below `count`
inline Floats lanes_below(int count) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return {_mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(count), lane)),
          _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(count - 8), lane))};
}
}  // namespace detail
inline Floats keep_below(Floats a, int count, Floats other) {
  const Floats mask = detail::lanes_below(count);
  return {_mm256_blendv_ps(other.lo, a.lo, mask.lo), _mm256_blendv_ps(other.hi, a.hi, mask.hi)};
}
inline Floats keep_from(Floats a, int first, Floats other) { return keep_below(other, first, a); }
inline Floats zero_where_below(Floats a, Floats limit, Floats value) {
  return {_mm256_and_ps(_mm256_cmp_ps(a.lo, limit.lo, _CMP_NLT_UQ), value.lo),
          _mm256_and_ps(_mm256_cmp_ps(a.hi, limit.hi, _CMP_NLT_UQ), value.hi)};
}

inline Bytes load_codes(const uint8_t* p) {
  return {_mm256_load_si256(reinterpret_cast<const __m256i*>(p)),
          _mm256_load_si256(reinterpret_cast<const __m256i*>(p + 32))};
}
inline Bytes low_nibbles(Bytes v) {
  const __m256i mask = _mm256_set1_epi8(15);
  return {_mm256_and_si256(v.lo, mask), _mm256_and_si256(v.hi, mask)};
}
inline Bytes high_nibbles(Bytes v) {
  const __m256i mask = _mm256_set1_epi8(15);
  return {_mm256_and_si256(_mm256_srli_epi16(v.lo, 4), mask), _mm256_and_si256(_mm256_srli_epi16(v.hi, 4), mask)};
}
namespace detail {
inline __m256i dot4_narrow(__m256i sum, __m256i codes, __m256i four) {
  return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(codes, four), _mm256_set1_epi16(1)));
}
// maddubs saturates its 16-bit pairs once codes pass 127, so wide codes go as two nibbles
inline __m256i dot4_wide(__m256i sum, __m256i codes, __m256i four) {
  const __m256i mask = _mm256_set1_epi8(15), one = _mm256_set1_epi16(1);
  const __m256i low = _mm256_maddubs_epi16(_mm256_and_si256(codes, mask), four);
  const __m256i high = _mm256_maddubs_epi16(_mm256_and_si256(_mm256_srli_epi16(codes, 4), mask), four);
  const __m256i wide = _mm256_slli_epi32(_mm256_madd_epi16(high, one), 4);
  return _mm256_add_epi32(sum, _mm256_add_epi32(_mm256_madd_epi16(low, one), wide));
}
}  // namespace detail
template <bool kWide>
inline Ints dot4(Ints sum, Bytes codes, const int8_t* activations) {
  int32_t packed;
  __builtin_memcpy(&packed, activations, 4);
  const __m256i four = _mm256_set1_epi32(packed);
  if constexpr (kWide) {
    return {detail::dot4_wide(sum.lo, codes.lo, four), detail::dot4_wide(sum.hi, codes.hi, four)};
  } else {
    return {detail::dot4_narrow(sum.lo, codes.lo, four), detail::dot4_narrow(sum.hi, codes.hi, four)};
  }
}
// into the second level: what is asked for long before it is read would drive out of the first what is read meanwhile
inline void prefetch(const uint8_t* p) { _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1); }

}  // namespace headstart::avx2
