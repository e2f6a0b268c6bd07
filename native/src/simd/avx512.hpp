// Sixteen lanes on AVX-512 with VNNI. See portable.hpp for what each function promises.
#pragma once
#include <immintrin.h>

#include <cstdint>

namespace headstart::avx512 {

constexpr const char* kName = "avx512vnni";
constexpr int kMaxRows = 16;  // rows of one matmul block: 32 registers hold 8 weights and 16 sums

using Floats = __m512;
using Ints = __m512i;
using Bytes = __m512i;

inline Floats load(const float* p) { return _mm512_loadu_ps(p); }
inline void store(float* p, Floats v) { _mm512_storeu_ps(p, v); }
inline Floats splat(float x) { return _mm512_set1_ps(x); }
inline Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
inline Floats sub(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
inline Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
inline Floats div(Floats a, Floats b) { return _mm512_div_ps(a, b); }
inline Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
inline Floats max(Floats a, Floats b) { return _mm512_max_ps(a, b); }
inline Floats min(Floats a, Floats b) { return _mm512_min_ps(a, b); }
inline Floats round_even(Floats a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline Floats load_f16(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline Floats load_bf16(const uint16_t* p) {
  __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
inline void store_f16(uint16_t* p, Floats v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

inline Ints splat_int(int32_t x) { return _mm512_set1_epi32(x); }
inline Ints add_int(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
inline Floats to_float(Ints a) { return _mm512_cvtepi32_ps(a); }
inline Ints to_int(Floats a) { return _mm512_cvtps_epi32(a); }
inline Ints load_int(const int32_t* p) { return _mm512_loadu_si512(p); }
inline int32_t sum_lanes(Ints v) { return _mm512_reduce_add_epi32(v); }
inline Ints magnitude_bits(Floats a) { return _mm512_and_si512(_mm512_castps_si512(a), _mm512_set1_epi32(0x7fffffff)); }
inline Ints max_int(Ints a, Ints b) { return _mm512_max_epi32(a, b); }
inline int32_t highest_int(Ints v) { return _mm512_reduce_max_epi32(v); }
inline float highest_lane(Floats v) { return _mm512_reduce_max_ps(v); }
inline Floats scale_by_power(Floats a, Ints exponent) {
  return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a), _mm512_slli_epi32(exponent, 23)));
}
inline void store_bytes(int8_t* p, Ints v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(v));
}
inline Floats keep_below(Floats a, int count, Floats other) {
  return _mm512_mask_blend_ps(static_cast<__mmask16>((1u << count) - 1), other, a);
}
inline Floats keep_from(Floats a, int first, Floats other) {
  return _mm512_mask_blend_ps(static_cast<__mmask16>((1u << first) - 1), a, other);
}
inline Floats zero_where_below(Floats a, Floats limit, Floats value) {
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a, limit, _CMP_NLT_UQ), value);
}

inline Bytes load_codes(const uint8_t* p) { return _mm512_load_si512(p); }
inline Bytes low_nibbles(Bytes v) { return _mm512_and_si512(v, _mm512_set1_epi8(15)); }
inline Bytes high_nibbles(Bytes v) { return _mm512_and_si512(_mm512_srli_epi16(v, 4), _mm512_set1_epi8(15)); }
template <bool kWide>
inline Ints dot4(Ints sum, Bytes codes, const int8_t* activations) {
  int32_t four;
  __builtin_memcpy(&four, activations, 4);
  return _mm512_dpbusd_epi32(sum, codes, _mm512_set1_epi32(four));
}
// into the second level: what is asked for long before it is read would drive out of the first what is read meanwhile
inline void prefetch(const uint8_t* p) { _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1); }

}  // namespace headstart::avx512
