// simd.hpp for AVX-512 (F, BW, VL, DQ): 16 floats a vector.
#pragma once

#include <immintrin.h>

#include "core.hpp"

ACTZIP_BEGIN

constexpr int kLanes = 16;
using F = __m512;
using Bytes = __m256i;

ACTZIP_INLINE F set1(float x) { return _mm512_set1_ps(x); }
ACTZIP_INLINE F vadd(F a, F b) { return _mm512_add_ps(a, b); }
ACTZIP_INLINE F vsub(F a, F b) { return _mm512_sub_ps(a, b); }
ACTZIP_INLINE F vmul(F a, F b) { return _mm512_mul_ps(a, b); }
ACTZIP_INLINE F vmin(F a, F b) { return _mm512_min_ps(a, b); }  // b when either is NaN
ACTZIP_INLINE F vmax(F a, F b) { return _mm512_max_ps(a, b); }
ACTZIP_INLINE F vabs(F a) { return _mm512_abs_ps(a); }
ACTZIP_INLINE F vrint(F a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
ACTZIP_INLINE F vor(F a, F b) { return _mm512_or_ps(a, b); }
ACTZIP_INLINE F vsign(F a) { return _mm512_and_ps(a, set1(-0.0f)); }
// a where c is not zero, else +0.
ACTZIP_INLINE F where_nonzero(F c, F a) {
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(c, _mm512_setzero_ps(), _CMP_NEQ_UQ), a);
}
// a with zeros turned to NaN, which vmin(a, b) and vmax(a, b) leave out.
ACTZIP_INLINE F hide_zeros(F a) {
  const __mmask16 zero = _mm512_cmp_ps_mask(a, _mm512_setzero_ps(), _CMP_EQ_OQ);
  return _mm512_mask_mov_ps(a, zero, _mm512_castsi512_ps(_mm512_set1_epi32(-1)));
}
ACTZIP_INLINE uint32_t bits_nonzero(F a) {
  return _mm512_cmp_ps_mask(a, _mm512_setzero_ps(), _CMP_NEQ_UQ);
}
ACTZIP_INLINE uint32_t bits_not_le_zero(F a) {
  return _mm512_cmp_ps_mask(a, _mm512_setzero_ps(), _CMP_NLE_UQ);
}
ACTZIP_INLINE uint32_t bits_same(F a, F b) {
  return _mm512_cmpeq_epi32_mask(_mm512_castps_si512(a), _mm512_castps_si512(b));
}
// Whether a NaN was met.
using Odd = __mmask16;
ACTZIP_INLINE Odd no_odd() { return 0; }
ACTZIP_INLINE Odd odd_or(Odd o, F a, F b) {
  return _mm512_kor(o, _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q));
}
ACTZIP_INLINE bool any_odd(Odd o) { return o != 0; }
ACTZIP_INLINE float reduce_min(F a) { return _mm512_reduce_min_ps(a); }
ACTZIP_INLINE float reduce_max(F a) { return _mm512_reduce_max_ps(a); }

ACTZIP_INLINE F load(const float* p) { return _mm512_loadu_ps(p); }
ACTZIP_INLINE F load(const bf16* p) {
  const __m256i h = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}
ACTZIP_INLINE F load(const f16* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
ACTZIP_INLINE void store(float* p, F a) { _mm512_storeu_ps(p, a); }
ACTZIP_INLINE void store(bf16* p, F a) {
  __m512i i = _mm512_castps_si512(a);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(i, 16), _mm512_set1_epi32(1));
  i = _mm512_add_epi32(i, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(_mm512_srli_epi32(i, 16)));
}
ACTZIP_INLINE void store(f16* p, F a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

ACTZIP_INLINE void mix_dither(uint32_t start, uint32_t middle, F* v) {
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  __m512i x = _mm512_add_epi32(_mm512_mullo_epi32(lane, _mm512_set1_epi32(int(kWeyl))),
                               _mm512_set1_epi32(int(start)));
  x = _mm512_xor_si512(x, _mm512_srli_epi32(x, 16));
  x = _mm512_add_epi32(_mm512_mullo_epi32(x, _mm512_set1_epi32(int(kMixA))),
                       _mm512_set1_epi32(int(middle)));
  x = _mm512_xor_si512(x, _mm512_srli_epi32(x, 15));
  x = _mm512_mullo_epi32(x, _mm512_set1_epi32(int(kMixB)));
  x = _mm512_xor_si512(x, _mm512_srli_epi32(x, 16));
  // The half word stays in the high 16 bits: s * 2^16 converts exactly. Fused or not is the same.
  const F scale = set1(0x1p-32f), half = set1(0x1p-17f);
  v[0] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_slli_epi32(x, 16)), scale, half);
  const __m512i high = _mm512_and_si512(x, _mm512_set1_epi32(int(0xffff0000u)));
  v[1] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(high), scale, half);
}

ACTZIP_INLINE Bytes round_saturate(const F* t) {
  const __m512i zero = _mm512_setzero_si512();
  const __m128i a = _mm512_cvtusepi32_epi8(_mm512_max_epi32(_mm512_cvtps_epi32(t[0]), zero));
  const __m128i b = _mm512_cvtusepi32_epi8(_mm512_max_epi32(_mm512_cvtps_epi32(t[1]), zero));
  return _mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1);
}
ACTZIP_INLINE void widen_bytes(Bytes b, F* v) {
  v[0] = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm256_castsi256_si128(b)));
  v[1] = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm256_extracti128_si256(b, 1)));
}

ACTZIP_INLINE Bytes zero_bytes() { return _mm256_setzero_si256(); }
ACTZIP_INLINE Bytes load_bytes(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
ACTZIP_INLINE void store_bytes(uint8_t* p, Bytes b) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), b);
}
ACTZIP_INLINE Bytes min_bytes(Bytes a, uint8_t top) { return _mm256_min_epu8(a, _mm256_set1_epi8(char(top))); }
ACTZIP_INLINE Bytes add_bytes(Bytes a, uint8_t n) { return _mm256_adds_epu8(a, _mm256_set1_epi8(char(n))); }
ACTZIP_INLINE uint32_t nonzero_bytes(Bytes a) { return _mm256_test_epi8_mask(a, a); }
ACTZIP_INLINE uint32_t plane(Bytes a, int j) { return _mm256_test_epi8_mask(a, _mm256_set1_epi8(char(1 << j))); }
ACTZIP_INLINE Bytes or_plane(Bytes a, uint32_t word, int j) {
  return _mm256_or_si256(a, _mm256_maskz_mov_epi8(word, _mm256_set1_epi8(char(1 << j))));
}

ACTZIP_END
