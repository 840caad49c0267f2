// simd.hpp for AVX2 with FMA and F16C: 8 floats a vector.
#pragma once

#include "common/simd_x86.hpp"

ACTZIP_BEGIN

constexpr int kLanes = 8;
using F = __m256;
using Mask = __m256;  // all bits of an element on or off

ACTZIP_INLINE __m256i as_int(F a) { return _mm256_castps_si256(a); }
ACTZIP_INLINE F as_float(__m256i a) { return _mm256_castsi256_ps(a); }

ACTZIP_INLINE F set1(float x) { return _mm256_set1_ps(x); }
ACTZIP_INLINE F vadd(F a, F b) { return _mm256_add_ps(a, b); }
ACTZIP_INLINE F vsub(F a, F b) { return _mm256_sub_ps(a, b); }
ACTZIP_INLINE F vmul(F a, F b) { return _mm256_mul_ps(a, b); }
ACTZIP_INLINE F vmin(F a, F b) { return _mm256_min_ps(a, b); }  // b when either is NaN
ACTZIP_INLINE F vmax(F a, F b) { return _mm256_max_ps(a, b); }
ACTZIP_INLINE F vabs(F a) { return _mm256_andnot_ps(set1(-0.0f), a); }
ACTZIP_INLINE F vrint(F a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
ACTZIP_INLINE F vor(F a, F b) { return _mm256_or_ps(a, b); }
ACTZIP_INLINE F vsign(F a) { return _mm256_and_ps(a, set1(-0.0f)); }
// a where c is not zero, else +0.
ACTZIP_INLINE F where_nonzero(F c, F a) {
  return _mm256_and_ps(_mm256_cmp_ps(c, _mm256_setzero_ps(), _CMP_NEQ_UQ), a);
}
// Takes the numbers of a that are not zero into the least and the largest so far; zeros are turned
// to NaN, which vmin and vmax leave out.
ACTZIP_INLINE void see_nonzero(F a, F& lo, F& hi) {
  a = vor(a, _mm256_cmp_ps(a, _mm256_setzero_ps(), _CMP_EQ_OQ));
  lo = vmin(a, lo);
  hi = vmax(a, hi);
}
// |a| raised to tiny, with the sign of a; +0 where not `here`.
ACTZIP_INLINE F apart_from_zero(Mask here, F a, F tiny) {
  return _mm256_and_ps(here, vor(vsign(a), vmax(vabs(a), tiny)));
}
ACTZIP_INLINE uint32_t bits_nonzero(F a) {
  return uint32_t(_mm256_movemask_ps(_mm256_cmp_ps(a, _mm256_setzero_ps(), _CMP_NEQ_UQ)));
}
ACTZIP_INLINE Mask mask_nonzero(F a) { return _mm256_cmp_ps(a, _mm256_setzero_ps(), _CMP_NEQ_UQ); }
ACTZIP_INLINE uint32_t nonzero32(const F* a) {
  uint32_t word = 0;
  for (int k = 0; k < 4; ++k) word |= bits_nonzero(a[k]) << (8 * k);
  return word;
}
ACTZIP_INLINE uint32_t bits_not_le_zero(F a) {
  return uint32_t(_mm256_movemask_ps(_mm256_cmp_ps(a, _mm256_setzero_ps(), _CMP_NLE_UQ)));
}
ACTZIP_INLINE uint32_t bits_same(F a, F b) {
  return uint32_t(_mm256_movemask_ps(as_float(_mm256_cmpeq_epi32(as_int(a), as_int(b)))));
}
// Whether a NaN was met.
using Odd = F;
ACTZIP_INLINE Odd no_odd() { return _mm256_setzero_ps(); }
ACTZIP_INLINE Odd odd_or(Odd o, F a, F b) { return vor(o, _mm256_cmp_ps(a, b, _CMP_UNORD_Q)); }
ACTZIP_INLINE bool any_odd(Odd o) { return _mm256_movemask_ps(o) != 0; }

ACTZIP_INLINE float reduce_min(F a) {
  __m128 m = _mm_min_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  m = _mm_min_ps(m, _mm_movehl_ps(m, m));
  return _mm_cvtss_f32(_mm_min_ss(m, _mm_movehdup_ps(m)));
}
ACTZIP_INLINE float reduce_max(F a) {
  __m128 m = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  m = _mm_max_ps(m, _mm_movehl_ps(m, m));
  return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}
ACTZIP_INLINE F load(const float* p) { return _mm256_loadu_ps(p); }
ACTZIP_INLINE F load(const bf16* p) {
  const __m128i h = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return as_float(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}
ACTZIP_INLINE F load(const f16* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
ACTZIP_INLINE void store(float* p, F a) { _mm256_storeu_ps(p, a); }
// The bf16 in the low half, 0 in the high one: rounded to nearest even.
ACTZIP_INLINE __m256i rounded_bf16(F a) {
  const __m256i i = as_int(a);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(i, 16), _mm256_set1_epi32(1));
  return _mm256_srli_epi32(_mm256_add_epi32(i, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
}
ACTZIP_INLINE void store(bf16* p, F a) {
  const __m256i r = rounded_bf16(a);
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(r, r), 0x08);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(packed));
}
ACTZIP_INLINE void store(f16* p, F a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                   _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

template <class T> ACTZIP_INLINE void load_all(const T* p, F* v) {
  for (int k = 0; k < 4; ++k) v[k] = load(p + 8 * k);
}
// 16 elements of two bytes.
ACTZIP_INLINE __m256i sixteen(const bf16*, F a, F b) {
  return _mm256_permute4x64_epi64(_mm256_packus_epi32(rounded_bf16(a), rounded_bf16(b)), 0xd8);
}
ACTZIP_INLINE __m256i sixteen(const f16*, F a, F b) {
  const auto half = [](F x) { return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); };
  return _mm256_inserti128_si256(_mm256_castsi128_si256(half(a)), half(b), 1);
}
ACTZIP_INLINE void store_all(float* p, const F* v) {
  for (int k = 0; k < 4; ++k) store(p + 8 * k, v[k]);
}
template <class T> ACTZIP_INLINE void store_all(T* p, const F* v) {
  for (int k = 0; k < 2; ++k)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p) + k, sixteen(p, v[2 * k], v[2 * k + 1]));
}

// Past the caches, to the beginning of a line.
ACTZIP_INLINE void stream_line(void* to, const void* from) {
  const __m256i* const halves = static_cast<const __m256i*>(from);
  for (int k = 0; k < 2; ++k)
    _mm256_stream_si256(static_cast<__m256i*>(to) + k, _mm256_loadu_si256(halves + k));
}
ACTZIP_INLINE void stream_all(float* p, const F* v) {
  for (int k = 0; k < 4; ++k) _mm256_stream_ps(p + 8 * k, v[k]);
}
template <class T> ACTZIP_INLINE void stream_all(T* p, const F* v) {
  for (int k = 0; k < 2; ++k)
    _mm256_stream_si256(reinterpret_cast<__m256i*>(p) + k, sixteen(p, v[2 * k], v[2 * k + 1]));
}
ACTZIP_INLINE void end_stream() { _mm_sfence(); }

// The Weyl sequence of successive blocks, 16 words each.
struct Weyl { __m256i at[2]; };
ACTZIP_INLINE Weyl weyl_from(uint32_t start) {
  const __m256i lane = _mm256_mullo_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
                                          _mm256_set1_epi32(int(kWeyl)));
  return {{_mm256_add_epi32(lane, _mm256_set1_epi32(int(start))),
           _mm256_add_epi32(lane, _mm256_set1_epi32(int(start + 8 * kWeyl)))}};
}
// w of 32 elements, where v = w - kRawBias: the half word, its top bit turned, is put into the
// mantissa of a number from 1 to 2. Every step is exact.
constexpr float kRawBias = 1.5f - 0x1p-17f;
ACTZIP_INLINE void mix_raw(Weyl& weyl, uint32_t middle, F* w) {
  const __m256i mask = _mm256_set1_epi32(0x7fff80), one = _mm256_set1_epi32(0x3fc00000);
  for (int k = 0; k < 2; ++k) {
    __m256i x = weyl.at[k];
    weyl.at[k] = _mm256_add_epi32(x, _mm256_set1_epi32(int(16 * kWeyl)));
    x = _mm256_xor_si256(x, _mm256_srli_epi32(x, 16));
    x = _mm256_add_epi32(_mm256_mullo_epi32(x, _mm256_set1_epi32(int(kMixA))),
                         _mm256_set1_epi32(int(middle)));
    x = _mm256_xor_si256(x, _mm256_srli_epi32(x, 15));
    x = _mm256_mullo_epi32(x, _mm256_set1_epi32(int(kMixB)));
    // Of x ^ x >> 16 the high half is that of x, the low one that of x with it turned by xor.
    const __m256i high = _mm256_xor_si256(_mm256_and_si256(_mm256_srli_epi32(x, 9), mask), one);
    const __m256i low = _mm256_xor_si256(_mm256_and_si256(_mm256_slli_epi32(x, 7), mask), high);
    w[k] = as_float(low);
    w[k + 2] = as_float(high);
  }
}

// 32 integers, saturated to 0…255. Packing works within 128-bit halves; the last step puts the
// 4-byte pieces back in order.
ACTZIP_INLINE Bytes pack_ints(__m256i a, __m256i b, __m256i c, __m256i d) {
  const __m256i words = _mm256_packus_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
  return _mm256_permutevar8x32_epi32(words, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}
ACTZIP_INLINE Bytes round_saturate(const F* t) {
  return pack_ints(_mm256_cvtps_epi32(t[0]), _mm256_cvtps_epi32(t[1]), _mm256_cvtps_epi32(t[2]),
                   _mm256_cvtps_epi32(t[3]));
}
// The high bytes of the half words of mix_raw, their top bits turned.
ACTZIP_INLINE Bytes top_bytes(const F* w) {
  const auto top = [](F a) {
    return _mm256_and_si256(_mm256_srli_epi32(as_int(a), 15), _mm256_set1_epi32(255));
  };
  return pack_ints(top(w[0]), top(w[1]), top(w[2]), top(w[3]));
}
ACTZIP_INLINE void widen_bytes(Bytes b, F* v) {
  const __m128i low = _mm256_castsi256_si128(b), high = _mm256_extracti128_si256(b, 1);
  v[0] = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(low));
  v[1] = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(low, 8)));
  v[2] = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(high));
  v[3] = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(high, 8)));
}

ACTZIP_INLINE uint32_t nonzero_bytes(Bytes a) {
  return ~uint32_t(_mm256_movemask_epi8(_mm256_cmpeq_epi8(a, _mm256_setzero_si256())));
}
ACTZIP_INLINE uint32_t plane(Bytes a, int j) {
  return uint32_t(_mm256_movemask_epi8(_mm256_sll_epi16(a, _mm_cvtsi32_si128(7 - j))));
}
ACTZIP_INLINE uint32_t plane_where(uint32_t here, Bytes a, int j) { return here & plane(a, j); }
// All bits of a byte where the bit of the word is on.
ACTZIP_INLINE Bytes spread_bits(uint32_t word) {
  const __m256i spread = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
  const __m256i bit = _mm256_set1_epi64x(int64_t(0x8040201008040201ull));
  const __m256i each = _mm256_shuffle_epi8(_mm256_set1_epi32(int(word)), spread);
  return _mm256_cmpeq_epi8(_mm256_and_si256(each, bit), bit);
}
ACTZIP_INLINE Bytes or_plane(Bytes a, uint32_t word, int j) {
  return _mm256_or_si256(a, _mm256_and_si256(spread_bits(word), _mm256_set1_epi8(char(1 << j))));
}

struct PlanesDown {
  __m256i a;
  ACTZIP_INLINE PlanesDown(Bytes codes, int bits) : a(_mm256_sll_epi16(codes, _mm_cvtsi32_si128(8 - bits))) {}
  ACTZIP_INLINE uint32_t next(uint32_t keep) {
    const uint32_t word = uint32_t(_mm256_movemask_epi8(a));
    a = _mm256_add_epi8(a, a);
    return word & keep;
  }
};
ACTZIP_INLINE Bytes twice_and_plane(Bytes a, uint32_t word) {
  return _mm256_sub_epi8(_mm256_add_epi8(a, a), spread_bits(word));
}

// unpack_floats for 1 and 2 bits: codes are looked up, eight at a time. The index of a look-up has
// three bits, of which the codes that follow may have some: the tables repeat.
constexpr int kFewBits = 2;
// The bits of two planes by turns, 16 codes in each word.
ACTZIP_INLINE __m128i by_turns(const uint8_t* in) {
  const __m128i nibble = _mm_set1_epi8(15);
  const __m128i apart = _mm_setr_epi8(0, 1, 4, 5, 16, 17, 20, 21, 64, 65, 68, 69, 80, 81, 84, 85);
  const __m128i words = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(in));
  const __m128i nibbles = _mm_unpacklo_epi8(_mm_and_si128(words, nibble),
                                            _mm_and_si128(_mm_srli_epi16(words, 4), nibble));
  const __m128i even = _mm_shuffle_epi8(apart, nibbles), odd = _mm_unpackhi_epi64(even, even);
  return _mm_or_si128(even, _mm_add_epi8(odd, odd));
}
template <int N>
ACTZIP_INLINE void unpack_few(Bits<N>, const uint8_t* in, float base, F* q, Mask* nonzero) {
  constexpr int last = (1 << N) - 1;
  const auto value = [&](int i) { return base + float(i & last); };
  const auto on = [](int i) { return i & last ? -1 : 0; };
  const F values = _mm256_setr_ps(value(0), value(1), value(2), value(3), value(4), value(5), value(6), value(7));
  const F isnt = as_float(_mm256_setr_epi32(on(0), on(1), on(2), on(3), on(4), on(5), on(6), on(7)));
  const __m256i places = _mm256_setr_epi32(0, N, 2 * N, 3 * N, 4 * N, 5 * N, 6 * N, 7 * N);
  __m256i words[2];
  if constexpr (N == 1) {
    words[0] = _mm256_set1_epi32(int(load_as<uint32_t>(in)));
    words[1] = _mm256_srli_epi32(words[0], 16);
  } else {
    const __m128i pairs = by_turns(in);
    words[0] = _mm256_broadcastd_epi32(pairs);
    words[1] = _mm256_broadcastd_epi32(_mm_shuffle_epi32(pairs, 1));
  }
  for (int k = 0; k < 4; ++k) {
    const __m256i begin = _mm256_add_epi32(places, _mm256_set1_epi32(8 * N * (k & 1)));
    const __m256i at = _mm256_srlv_epi32(words[k / 2], begin);
    q[k] = _mm256_permutevar8x32_ps(values, at);
    nonzero[k] = _mm256_permutevar8x32_ps(isnt, at);
  }
}

// The least and the largest of 16-bit floats, as integers in their order (group/range.hpp).
template <bool Zero> struct SeenWords {
  __m256i lo = _mm256_set1_epi16(0x7fff), hi = _mm256_set1_epi16(-0x8000);
  ACTZIP_INLINE void see(const void* x) {
    for (int k = 0; k < 2; ++k) {
      const __m256i w = _mm256_loadu_si256(static_cast<const __m256i*>(x) + k);
      const __m256i rest = _mm256_set1_epi16(0x7fff);
      const __m256i o = _mm256_xor_si256(w, _mm256_and_si256(_mm256_srai_epi16(w, 15), rest));
      const __m256i zero = _mm256_cmpeq_epi16(_mm256_and_si256(w, rest), _mm256_setzero_si256());
      lo = _mm256_min_epi16(lo, Zero ? _mm256_blendv_epi8(o, lo, zero) : o);
      hi = _mm256_max_epi16(hi, Zero ? _mm256_blendv_epi8(o, hi, zero) : o);
    }
  }
  ACTZIP_INLINE int16_t least() const {
    return least_word(lo);
  }
  ACTZIP_INLINE int16_t largest() const {
    return largest_word(hi);
  }
};

ACTZIP_END
