// entropy_rans.hpp row by row, for any processor.
#pragma once

ACTZIP_BEGIN
namespace entropy {

inline uint8_t* encode_rows(const uint8_t* symbols, int64_t n, const EncodeTable& t, uint32_t* x,
                            uint8_t* at) {
  for (int64_t i = n - STATES; i >= 0; i -= STATES) at = encode_some(symbols + i, STATES, t, x, at);
  return at;
}

inline int64_t decode_rows(Words&, int64_t i, int64_t, const DecodeTable&) { return i; }
inline int64_t decode_rows(Words&, Words&, int64_t, const DecodeTable&) { return 0; }

}  // namespace entropy
ACTZIP_END
