// Integers and comparisons beside the floats of a vector: the same functions with AVX2 and AVX-512.
// A Truth is a mask of 32 bits per element, or of one bit.
#pragma once

#include "common/simd.hpp"

#ifdef __AVX2__

ACTZIP_BEGIN
namespace dithered {

#if defined(__AVX512F__)
using I = __m512i;
using Truth = __mmask16;
ACTZIP_INLINE I ints(F a) { return _mm512_castps_si512(a); }
ACTZIP_INLINE I iset1(int a) { return _mm512_set1_epi32(a); }
ACTZIP_INLINE I iadd(I a, I b) { return _mm512_add_epi32(a, b); }
ACTZIP_INLINE I isub(I a, I b) { return _mm512_sub_epi32(a, b); }
ACTZIP_INLINE I iand(I a, I b) { return _mm512_and_si512(a, b); }
ACTZIP_INLINE I ixor(I a, I b) { return _mm512_xor_si512(a, b); }
ACTZIP_INLINE I iabs(I a) { return _mm512_abs_epi32(a); }
ACTZIP_INLINE I imax(I a, I b) { return _mm512_max_epi32(a, b); }
ACTZIP_INLINE I iright(I a, int n) { return _mm512_srl_epi32(a, _mm_cvtsi32_si128(n)); }
ACTZIP_INLINE I signs(F a) { return _mm512_srai_epi32(ints(a), 31); }
// a - 1 where b is above 0.
ACTZIP_INLINE I less_one(I a, I b) {
  return _mm512_mask_sub_epi32(a, _mm512_cmpgt_epi32_mask(b, iset1(0)), a, iset1(1));
}
ACTZIP_INLINE F to_float(I a) { return _mm512_cvtepi32_ps(a); }
ACTZIP_INLINE I iload(const uint32_t* p) { return _mm512_loadu_si512(p); }
ACTZIP_INLINE void istore(uint32_t* p, I a) { _mm512_storeu_si512(p, a); }
ACTZIP_INLINE Truth greater(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
ACTZIP_INLINE Truth odd_bit(I a) { return _mm512_test_epi32_mask(a, iset1(1)); }
ACTZIP_INLINE F pick(Truth t, F yes, F no) { return _mm512_mask_mov_ps(no, t, yes); }
ACTZIP_INLINE F flip_where(Truth t, F a) {
  return _mm512_castsi512_ps(_mm512_mask_xor_epi32(ints(a), t, ints(a), iset1(int(0x80000000u))));
}
ACTZIP_INLINE I one_where(Truth t) { return _mm512_maskz_set1_epi32(t, 1); }
ACTZIP_INLINE Truth negated(Truth t) { return Truth(~t); }
using Bad = __mmask16;
ACTZIP_INLINE Bad no_bad() { return 0; }
ACTZIP_INLINE Bad or_bad(Bad b, F size, F bound, F t, F cap) {
  return _kor_mask16(b, _kor_mask16(_mm512_cmp_ps_mask(size, bound, _CMP_NLE_UQ),
                                    _mm512_cmp_ps_mask(t, cap, _CMP_NLT_UQ)));
}
ACTZIP_INLINE bool any_bad(Bad b) { return b != 0; }
ACTZIP_INLINE F finite_max(F so_far, F a) {
  return _mm512_mask_max_ps(so_far, _mm512_cmp_ps_mask(a, set1(__builtin_inff()), _CMP_LT_OQ), so_far, a);
}
ACTZIP_INLINE F round_bf16(F a) {
  return _mm512_castsi512_ps(_mm512_and_si512(rounded_bf16(a), iset1(int(0xffff0000u))));
}
ACTZIP_INLINE F round_f16(F a) {
  return _mm512_cvtph_ps(_mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
#else
using I = __m256i;
using Truth = __m256;
ACTZIP_INLINE I ints(F a) { return _mm256_castps_si256(a); }
ACTZIP_INLINE I iset1(int a) { return _mm256_set1_epi32(a); }
ACTZIP_INLINE I iadd(I a, I b) { return _mm256_add_epi32(a, b); }
ACTZIP_INLINE I isub(I a, I b) { return _mm256_sub_epi32(a, b); }
ACTZIP_INLINE I iand(I a, I b) { return _mm256_and_si256(a, b); }
ACTZIP_INLINE I ixor(I a, I b) { return _mm256_xor_si256(a, b); }
ACTZIP_INLINE I iabs(I a) { return _mm256_abs_epi32(a); }
ACTZIP_INLINE I imax(I a, I b) { return _mm256_max_epi32(a, b); }
ACTZIP_INLINE I iright(I a, int n) { return _mm256_srl_epi32(a, _mm_cvtsi32_si128(n)); }
ACTZIP_INLINE I signs(F a) { return _mm256_srai_epi32(ints(a), 31); }
ACTZIP_INLINE I less_one(I a, I b) { return iadd(a, _mm256_cmpgt_epi32(b, iset1(0))); }
ACTZIP_INLINE F to_float(I a) { return _mm256_cvtepi32_ps(a); }
ACTZIP_INLINE I iload(const uint32_t* p) { return _mm256_loadu_si256(reinterpret_cast<const I*>(p)); }
ACTZIP_INLINE void istore(uint32_t* p, I a) { _mm256_storeu_si256(reinterpret_cast<I*>(p), a); }
ACTZIP_INLINE Truth greater(F a, F b) { return _mm256_cmp_ps(a, b, _CMP_GT_OQ); }
ACTZIP_INLINE Truth odd_bit(I a) { return as_float(_mm256_slli_epi32(a, 31)); }
ACTZIP_INLINE F pick(Truth t, F yes, F no) { return _mm256_blendv_ps(no, yes, t); }
ACTZIP_INLINE F flip_where(Truth t, F a) { return _mm256_xor_ps(a, vsign(t)); }
ACTZIP_INLINE I one_where(Truth t) { return _mm256_srli_epi32(ints(t), 31); }
ACTZIP_INLINE Truth negated(Truth t) { return as_float(ixor(ints(t), iset1(-1))); }
using Bad = __m256;
ACTZIP_INLINE Bad no_bad() { return _mm256_setzero_ps(); }
ACTZIP_INLINE Bad or_bad(Bad b, F size, F bound, F t, F cap) {
  return vor(b, vor(_mm256_cmp_ps(size, bound, _CMP_NLE_UQ), _mm256_cmp_ps(t, cap, _CMP_NLT_UQ)));
}
ACTZIP_INLINE bool any_bad(Bad b) { return _mm256_movemask_ps(b) != 0; }
ACTZIP_INLINE F finite_max(F so_far, F a) {
  const F finite = _mm256_cmp_ps(a, set1(__builtin_inff()), _CMP_LT_OQ);
  return vmax(_mm256_and_ps(finite, a), so_far);
}
ACTZIP_INLINE F round_bf16(F a) { return as_float(_mm256_slli_epi32(rounded_bf16(a), 16)); }
ACTZIP_INLINE F round_f16(F a) {
  return _mm256_cvtph_ps(_mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
#endif

}  // namespace dithered
ACTZIP_END

#endif
