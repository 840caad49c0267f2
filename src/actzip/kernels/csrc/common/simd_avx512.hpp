// simd.hpp for AVX-512 (F, BW, VL, DQ): 16 floats a vector.
#pragma once

#include "common/simd_x86.hpp"

ACTZIP_BEGIN

constexpr int kLanes = 16;
using F = __m512;
using Mask = __mmask16;

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
// Takes the numbers of a that are not zero into the least and the largest so far.
ACTZIP_INLINE void see_nonzero(F a, F& lo, F& hi) {
  const __mmask16 here = _mm512_cmp_ps_mask(a, _mm512_setzero_ps(), _CMP_NEQ_UQ);
  lo = _mm512_mask_min_ps(lo, here, a, lo);
  hi = _mm512_mask_max_ps(hi, here, a, hi);
}
// |a| raised to tiny, with the sign of a; +0 where not `here`.
ACTZIP_INLINE F apart_from_zero(Mask here, F a, F tiny) { return _mm512_maskz_range_ps(here, a, tiny, 3); }
ACTZIP_INLINE uint32_t bits_nonzero(F a) {
  return _mm512_cmp_ps_mask(a, _mm512_setzero_ps(), _CMP_NEQ_UQ);
}
ACTZIP_INLINE Mask mask_nonzero(F a) { return Mask(bits_nonzero(a)); }
ACTZIP_INLINE uint32_t nonzero32(const F* a) {
  return _mm512_kunpackw(__mmask16(bits_nonzero(a[1])), __mmask16(bits_nonzero(a[0])));
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
// The bf16 in the high half, anything in the low one: rounded to nearest even.
ACTZIP_INLINE __m512i rounded_bf16(F a) {
  const __m512i i = _mm512_castps_si512(a);
  const __mmask16 odd = _mm512_test_epi32_mask(i, _mm512_set1_epi32(0x10000));
  return _mm512_mask_add_epi32(_mm512_add_epi32(i, _mm512_set1_epi32(0x7fff)), odd, i,
                               _mm512_set1_epi32(0x8000));
}
ACTZIP_INLINE void store(bf16* p, F a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded_bf16(a), 16)));
}
ACTZIP_INLINE void store(f16* p, F a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

template <class T> ACTZIP_INLINE void load_all(const T* p, F* v) {
  for (int k = 0; k < 2; ++k) v[k] = load(p + kLanes * k);
}
template <class T> ACTZIP_INLINE void store_all(T* p, const F* v) {
  for (int k = 0; k < 2; ++k) store(p + kLanes * k, v[k]);
}

// Past the caches; p is the beginning of a line.
ACTZIP_INLINE void stream_all(float* p, const F* v) {
  _mm512_stream_ps(p, v[0]);
  _mm512_stream_ps(p + kLanes, v[1]);
}
ACTZIP_INLINE void stream_line(void* p, __m512i v) { _mm512_stream_si512(static_cast<__m512i*>(p), v); }
ACTZIP_INLINE void stream_line(void* to, const void* from) { stream_line(to, _mm512_loadu_si512(from)); }
ACTZIP_INLINE void end_stream() { _mm_sfence(); }

// 32 bf16 in one register: element i beside element i + 16, so that one shift and one mask widen them.
alignas(64) static constexpr uint16_t kPairs[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                    21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                    11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
alignas(64) static constexpr uint16_t kUpper[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21,
                                                    23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43,
                                                    45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
ACTZIP_INLINE void load_all(const bf16* p, F* v) {
  const __m512i pairs = _mm512_permutexvar_epi16(
      _mm512_load_si512(kPairs), _mm512_loadu_si512(reinterpret_cast<const __m512i*>(p)));
  v[0] = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
  v[1] = _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(int(0xffff0000u))));
}
ACTZIP_INLINE __m512i as_bf16(const F* v) {
  return _mm512_permutex2var_epi16(rounded_bf16(v[0]), _mm512_load_si512(kUpper), rounded_bf16(v[1]));
}
ACTZIP_INLINE void store_all(bf16* p, const F* v) { _mm512_storeu_si512(p, as_bf16(v)); }
ACTZIP_INLINE void stream_all(bf16* p, const F* v) { stream_line(p, as_bf16(v)); }
ACTZIP_INLINE void stream_all(f16* p, const F* v) {
  const auto half = [](F a) { return _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); };
  stream_line(p, _mm512_inserti64x4(_mm512_castsi256_si512(half(v[0])), half(v[1]), 1));
}

// The Weyl sequence of successive blocks, 16 words each.
struct Weyl { __m512i at; };
ACTZIP_INLINE Weyl weyl_from(uint32_t start) {
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  return {_mm512_add_epi32(_mm512_mullo_epi32(lane, _mm512_set1_epi32(int(kWeyl))),
                           _mm512_set1_epi32(int(start)))};
}
// w of 32 elements, where v = w - kRawBias: the half word, its top bit turned, is put into the
// mantissa of a number from 1 to 2. Every step is exact.
constexpr float kRawBias = 1.5f - 0x1p-17f;
ACTZIP_INLINE void mix_raw(Weyl& weyl, uint32_t middle, F* w) {
  __m512i x = weyl.at;
  weyl.at = _mm512_add_epi32(x, _mm512_set1_epi32(int(16 * kWeyl)));
  x = _mm512_xor_si512(x, _mm512_srli_epi32(x, 16));
  x = _mm512_add_epi32(_mm512_mullo_epi32(x, _mm512_set1_epi32(int(kMixA))),
                       _mm512_set1_epi32(int(middle)));
  x = _mm512_xor_si512(x, _mm512_srli_epi32(x, 15));
  x = _mm512_mullo_epi32(x, _mm512_set1_epi32(int(kMixB)));
  // Of x ^ x >> 16 the high half is that of x, the low one that of x with it turned by xor.
  const __m512i mask = _mm512_set1_epi32(0x7fff80), one = _mm512_set1_epi32(0x3fc00000);
  const __m512i high = _mm512_ternarylogic_epi32(_mm512_srli_epi32(x, 9), mask, one, 0x6a);
  const __m512i low = _mm512_ternarylogic_epi32(_mm512_slli_epi32(x, 7), mask, high, 0x6a);
  w[0] = _mm512_castsi512_ps(low);
  w[1] = _mm512_castsi512_ps(high);
}

// The high bytes of the half words of mix_raw, their top bits turned.
ACTZIP_INLINE Bytes top_bytes(const F* w) {
  const auto top = [](F a) { return _mm512_cvtepi32_epi8(_mm512_srli_epi32(_mm512_castps_si512(a), 15)); };
  return _mm256_inserti128_si256(_mm256_castsi128_si256(top(w[0])), top(w[1]), 1);
}

// Packing works within 128-bit pieces; the last step puts four codes each back in order.
ACTZIP_INLINE Bytes round_saturate(const F* t) {
  const __m512i words = _mm512_packus_epi32(_mm512_cvtps_epi32(t[0]), _mm512_cvtps_epi32(t[1]));
  return _mm256_permutevar8x32_epi32(_mm512_cvtusepi16_epi8(words),
                                     _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
}
ACTZIP_INLINE void widen_bytes(Bytes b, F* v) {
  v[0] = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm256_castsi256_si128(b)));
  v[1] = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm256_extracti128_si256(b, 1)));
}

ACTZIP_INLINE uint32_t nonzero_bytes(Bytes a) { return _mm256_test_epi8_mask(a, a); }
ACTZIP_INLINE uint32_t plane(Bytes a, int j) { return _mm256_test_epi8_mask(a, _mm256_set1_epi8(char(1 << j))); }
ACTZIP_INLINE uint32_t plane_where(uint32_t here, Bytes a, int j) {
  return _mm256_mask_test_epi8_mask(here, a, _mm256_set1_epi8(char(1 << j)));
}
ACTZIP_INLINE Bytes or_plane(Bytes a, uint32_t word, int j) {
  return _mm256_or_si256(a, _mm256_maskz_mov_epi8(word, _mm256_set1_epi8(char(1 << j))));
}

struct PlanesDown {
  __m256i a, bit;
  ACTZIP_INLINE PlanesDown(Bytes codes, int bits) : a(codes), bit(_mm256_set1_epi8(char(1 << (bits - 1)))) {}
  ACTZIP_INLINE uint32_t next(uint32_t keep) {
    const uint32_t word = _mm256_mask_test_epi8_mask(keep, a, bit);
    bit = _mm256_srli_epi16(bit, 1);  // no bit leaves its byte before the last one
    return word;
  }
};
ACTZIP_INLINE Bytes twice_and_plane(Bytes a, uint32_t word) {
  const __m256i twice = _mm256_add_epi8(a, a);
  return _mm256_mask_add_epi8(twice, word, twice, _mm256_set1_epi8(1));
}

// unpack_floats for 1 to 4 bits: added as numbers, half a plane being a mask.
constexpr int kFewBits = 4;
template <int N>
ACTZIP_INLINE void unpack_few(Bits<N>, const uint8_t* in, float base, F* q, Mask* nonzero) {
  for (int k = 0; k < 2; ++k) {
    Mask here = load_as<uint16_t>(in + 2 * k);
    q[k] = _mm512_mask_mov_ps(set1(base), here, set1(base + 1));
#pragma GCC unroll 4
    for (int j = 1; j < N; ++j) {
      const Mask more = load_as<uint16_t>(in + 4 * j + 2 * k);
      q[k] = _mm512_mask_add_ps(q[k], more, q[k], set1(float(1 << j)));
      here = _kor_mask16(here, more);
    }
    nonzero[k] = here;
  }
}

// The least and the largest of 16-bit floats, as integers in their order (group/range.hpp).
template <bool Zero> struct SeenWords {
  __m512i lo = _mm512_set1_epi16(0x7fff), hi = _mm512_set1_epi16(-0x8000);
  ACTZIP_INLINE void see(const void* x) {
    const __m512i w = _mm512_loadu_si512(x), rest = _mm512_set1_epi16(0x7fff);
    const __m512i o = _mm512_ternarylogic_epi32(_mm512_srai_epi16(w, 15), rest, w, 0x6a);
    const __mmask32 here = Zero ? _mm512_test_epi16_mask(w, rest) : ~__mmask32(0);
    lo = Zero ? _mm512_mask_min_epi16(lo, here, lo, o) : _mm512_min_epi16(lo, o);
    hi = Zero ? _mm512_mask_max_epi16(hi, here, hi, o) : _mm512_max_epi16(hi, o);
  }
  ACTZIP_INLINE int16_t least() const {
    return least_word(_mm256_min_epi16(_mm512_castsi512_si256(lo), _mm512_extracti64x4_epi64(lo, 1)));
  }
  ACTZIP_INLINE int16_t largest() const {
    return largest_word(_mm256_max_epi16(_mm512_castsi512_si256(hi), _mm512_extracti64x4_epi64(hi, 1)));
  }
};

ACTZIP_END
