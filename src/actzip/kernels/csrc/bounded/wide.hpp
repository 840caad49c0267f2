// One block of 64 values in four AVX-512 registers: quantize and dequantize of quant.hpp for
// all types that are computed in float32. Operation by operation the same, so the bytes are too.
#pragma once

#include "bounded/quant.hpp"

#if defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
#define ACTZIP_BOUNDED_WIDE

ACTZIP_BEGIN
namespace bounded {

constexpr int VECTORS = BLOCK / kLanes;

struct WideSymbols {
  __m512i s[VECTORS];
  uint64_t nonzero;
  bool fits;  // the bound holds for all 64
};

// What comes back of y when it is stored as T.
template <class T> ACTZIP_INLINE F stored_as(F y);
template <> ACTZIP_INLINE F stored_as<float>(F y) { return y; }
template <> ACTZIP_INLINE F stored_as<bf16>(F y) {
  return _mm512_castsi512_ps(_mm512_and_si512(rounded_bf16(y), _mm512_set1_epi32(int(0xffff0000u))));
}
template <> ACTZIP_INLINE F stored_as<f16>(F y) {
  return _mm512_cvtph_ps(_mm512_cvtps_ph(y, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

// Stores 64 values; STREAM: past the caches.
template <bool STREAM = false, class T>
ACTZIP_INLINE void store_block(T* out, const F* y) {
  STREAM ? stream_all(out, y) : store_all(out, y);
  STREAM ? stream_all(out + 32, y + 2) : store_all(out + 32, y + 2);
}

// 16 numbers of a grid: all the same in a tensor with ONE channel. Without dither, which is rare,
// decoding has no code of its own for that.
template <bool ONE>
ACTZIP_INLINE F grid_at(const float* numbers, int k) {
  return ONE ? set1(numbers[0]) : load(numbers + k * kLanes);
}

ACTZIP_INLINE __m512i bits_of(F a) { return _mm512_castps_si512(a); }

ACTZIP_INLINE __m512i zigzag(__m512i s) {
  return _mm512_xor_si512(_mm512_slli_epi32(s, 1), _mm512_srai_epi32(s, 31));
}
ACTZIP_INLINE __m512i unzigzag(__m512i u) {
  const __m512i sign = _mm512_and_si512(u, _mm512_set1_epi32(1));
  return _mm512_xor_si512(_mm512_srli_epi32(u, 1), _mm512_sub_epi32(_mm512_setzero_si512(), sign));
}

ACTZIP_INLINE __m512i or_of(const __m512i* a) {
  return _mm512_or_si512(_mm512_or_si512(a[0], a[1]), _mm512_or_si512(a[2], a[3]));
}
ACTZIP_INLINE __m512i max_of_four(const __m512i* a) {
  return _mm512_max_epu32(_mm512_max_epu32(a[0], a[1]), _mm512_max_epu32(a[2], a[3]));
}
ACTZIP_INLINE bool any_negative(const WideSymbols& w) { return _mm512_movepi32_mask(or_of(w.s)) != 0; }

// The dither of vector k of the block of 64 from `start`; the blocks of a chunk share one key.
template <bool DITHER>
struct WideDither {
  Block half[2];
  ACTZIP_INLINE WideDither(Key key, int64_t start) {
    if (DITHER) half[0] = dither_block(key, start / 32), half[1] = dither_block(key, start / 32 + 1);
  }
  ACTZIP_INLINE F operator[](int k) const { return half[k / kVectors].v[k % kVectors]; }
};

// Symbols of 16 values; adds to `bad` where the bound fails and gives |x / step| as bits.
template <class T, bool DITHER>
ACTZIP_INLINE __m512i quantize16(F x, F eb, F step, F inv, F v, __mmask16& bad, __mmask16& nonzero,
                                 __m512i& ratio) {
  const F t = vmul(x, inv), magic = set1(Magic<float>::value);
  const F shifted = vadd(DITHER ? vadd(t, v) : t, magic);
  const F r = vsub(shifted, magic);
  const F back = stored_as<T>(vmul(DITHER ? vsub(r, v) : r, step));
  nonzero = __mmask16(bits_nonzero(x));
  ratio = bits_of(vabs(t));
  bad = _kor_mask16(bad, _mm512_cmp_ps_mask(vabs(vsub(x, back)), eb, _CMP_NLE_UQ));
  if (DITHER && sizeof(T) == 2)
    bad = _kor_mask16(bad, _mm512_mask_cmp_ps_mask(nonzero, back, _mm512_setzero_ps(), _CMP_EQ_OQ));
  const __m512i q = _mm512_sub_epi32(bits_of(shifted), bits_of(magic));
  if (!DITHER) return _mm512_maskz_mov_epi32(nonzero, q);
  const __m512i one = _mm512_set1_epi32(1);
  return _mm512_maskz_sub_epi32(nonzero, _mm512_add_epi32(q, one), _mm512_srli_epi32(q, 31));
}

// `most` collects the largest |x / step| as bits, 16 maxima side by side.
template <class T, bool DITHER, bool ONE, class X>
ACTZIP_INLINE WideSymbols quantize_wide(const X* x, const Grid<float>& g, Key key, int64_t start,
                                        __m512i& most) {
  const WideDither<DITHER> v(key, start);
  WideSymbols w;
  __m512i ratio[VECTORS];
  __mmask16 bad = 0, nonzero[VECTORS];
  for (int k = 0; k < VECTORS; ++k)
    w.s[k] = quantize16<T, DITHER>(load(x + k * kLanes), grid_at<ONE>(g.eb, k),
                                   grid_at<ONE>(g.step, k), grid_at<ONE>(g.inv, k), v[k], bad,
                                   nonzero[k], ratio[k]);
  const __m512i largest = max_of_four(ratio);
  const __m512i cap = bits_of(set1(float(Limits<T>::cap)));
  w.fits = _kor_mask16(bad, _mm512_cmpge_epu32_mask(largest, cap)) == 0;
  most = _mm512_max_epu32(most, largest);
  if (!DITHER)  // small values have the symbol zero as well
    for (int k = 0; k < VECTORS; ++k) nonzero[k] = _mm512_test_epi32_mask(w.s[k], w.s[k]);
  w.nonzero = uint64_t{nonzero[0]} | uint64_t{nonzero[1]} << 16 | uint64_t{nonzero[2]} << 32 |
              uint64_t{nonzero[3]} << 48;
  return w;
}

// Values of 16 symbols.
template <bool DITHER>
ACTZIP_INLINE F dequantize16(__m512i s, F step, F v) {
  const __m512i zero = _mm512_setzero_si512();
  const __mmask16 nonzero = _mm512_test_epi32_mask(s, s);
  if (!DITHER) return _mm512_maskz_mul_ps(nonzero, _mm512_cvtepi32_ps(s), step);
  const __m512i q = _mm512_mask_sub_epi32(s, _mm512_cmpgt_epi32_mask(s, zero), s, _mm512_set1_epi32(1));
  return _mm512_maskz_mul_ps(nonzero, vsub(_mm512_cvtepi32_ps(q), v), step);
}

}  // namespace bounded
ACTZIP_END

#endif
