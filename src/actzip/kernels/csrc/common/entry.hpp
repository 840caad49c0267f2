// How the library is called: parameters come as words of 64 bits, buffers with their lengths.
//
// ACTZIP_ENTRY(group_mask) after the definition of actzip::ACTZIP_ISA::group_mask exports
// `actzip_group_mask`, which calls the build that fits the processor. Every entry returns int64_t: a
// status below zero, or a result. Its parameters are int64_t, uint64_t and Buffer only; they come as
// words of 64 bits one after the other, which is how library.call packs them (see `call_with`). A
// letter for each is exported as well, `actzip_group_mask_signature`: kernels/native/prototypes.py
// declares the same ones, and a library with others is not loaded.
#pragma once

#include "common/core.hpp"

#define ACTZIP_ENTRY(name)                                                            \
  ACTZIP_BEGIN                                                                        \
  int64_t name##_words(const uint8_t* words, int64_t count) {                         \
    return call_with(name, words, count);                                             \
  }                                                                                   \
  ACTZIP_END                                                                          \
  ACTZIP_EXPORT(name)

#ifdef ACTZIP_DISPATCH
#define ACTZIP_SIGNATURE(name)                                                        \
  extern "C" {                                                                        \
  extern __attribute__((visibility("default"))) const char* const actzip_##name##_signature; \
  const char* const actzip_##name##_signature =                                       \
      actzip::portable::Signature<decltype(actzip::portable::name)>::text;            \
  }
#endif

#if defined(ACTZIP_DISPATCH) && defined(ACTZIP_X86)
#define ACTZIP_EXPORT(name)                                                           \
  ACTZIP_SIGNATURE(name)                                                              \
  namespace actzip { namespace avx2 { int64_t name##_words(const uint8_t*, int64_t); } \
                     namespace avx512 { int64_t name##_words(const uint8_t*, int64_t); } } \
  extern "C" __attribute__((visibility("default"))) int64_t actzip_##name(            \
      const uint8_t* words, int64_t count) {                                          \
    switch (actzip_isa_level()) {                                                     \
      case 2: return actzip::avx512::name##_words(words, count);                      \
      case 1: return actzip::avx2::name##_words(words, count);                        \
      default: return actzip::portable::name##_words(words, count);                   \
    }                                                                                 \
  }
#elif defined(ACTZIP_DISPATCH)
#define ACTZIP_EXPORT(name)                                                           \
  ACTZIP_SIGNATURE(name)                                                              \
  extern "C" __attribute__((visibility("default"))) int64_t actzip_##name(            \
      const uint8_t* words, int64_t count) {                                          \
    return actzip::portable::name##_words(words, count);                              \
  }
#else
#define ACTZIP_EXPORT(name)
#endif

ACTZIP_BEGIN

// Memory of the caller, with its length: no entry reads or writes past it, whatever it is told.
template <class T> struct Buffer {
  T* at;
  int64_t bytes;
  operator T*() const { return at; }
  template <class U> U* as() const { return reinterpret_cast<U*>(at); }
  // Whether it has room for `count` items of so many bytes.
  bool holds(int64_t count, int64_t item) const { return count >= 0 && count <= bytes / item; }
};

// The letter of a parameter, and its words: an integer, an unsigned one, memory that is read, or that
// is written.
template <class P> struct Parameter;
template <> struct Parameter<int64_t> { static constexpr char letter = 'i'; static constexpr int64_t words = 1; };
template <> struct Parameter<uint64_t> { static constexpr char letter = 'u'; static constexpr int64_t words = 1; };
template <class T> struct Parameter<Buffer<const T>> { static constexpr char letter = 'r'; static constexpr int64_t words = 2; };
template <class T> struct Parameter<Buffer<T>> { static constexpr char letter = 'w'; static constexpr int64_t words = 2; };

template <class F> struct Signature;
template <class... P> struct Signature<int64_t(P...)> {
  static constexpr char text[] = {Parameter<P>::letter..., 0};
};

inline void take(const uint8_t*& words, int64_t& to) { to = load_as<int64_t>(words), words += 8; }
inline void take(const uint8_t*& words, uint64_t& to) { to = load_as<uint64_t>(words), words += 8; }
template <class T> inline void take(const uint8_t*& words, Buffer<T>& to) {
  to.at = reinterpret_cast<T*>(load_as<uintptr_t>(words));
  to.bytes = load_as<int64_t>(words + 8);
  words += 16;
}
template <class P> inline P taken(const uint8_t*& words) {
  P p{};
  take(words, p);
  return p;
}

template <class... P> struct Call {
  int64_t result;
  Call(int64_t (*f)(P...), P... p) : result(f(p...)) {}
};

// f with its parameters from so many words of 64 bits: a Buffer is its address and its bytes.
template <class... P>
inline int64_t call_with(int64_t (*f)(P...), const uint8_t* words, int64_t count) {
  if (count != (0 + ... + Parameter<P>::words)) return kBadArgument;
  return Call<P...>{f, taken<P>(words)...}.result;  // braces: from left to right
}

ACTZIP_END
