// The C interface of the library, as the bindings call it; see kernels/csrc.
#pragma once

#include <cstdint>

extern "C" {
int actzip_set_isa_level(int level);

int64_t actzip_bounded_encode(const uint8_t*, int64_t, int64_t, const uint8_t*, int64_t, int64_t,
                              uint64_t, int64_t, int64_t, int64_t, uint8_t*, uint64_t*, int64_t*,
                              uint8_t*, int64_t, int64_t);
int64_t actzip_bounded_gather(const uint8_t*, int64_t, int64_t, const uint8_t*, int64_t, int64_t,
                              uint64_t, int64_t, int64_t, int64_t, uint8_t*, const uint64_t*,
                              const int64_t*, const uint8_t*, uint8_t*, uint8_t*, int64_t);
int64_t actzip_bounded_decode(const uint8_t*, const uint8_t*, const uint8_t*, int64_t, int64_t,
                              int64_t, const uint8_t*, int64_t, int64_t, uint64_t, int64_t,
                              int64_t, int64_t, uint8_t*, int64_t);
int64_t actzip_bounded_count(const uint8_t*, int64_t, int64_t, const uint8_t*, int64_t, int64_t,
                             uint64_t, int64_t, int64_t, int64_t, int64_t, int64_t*, int64_t);
int64_t actzip_bounded_squeeze(const uint8_t*, int64_t, int64_t, const uint8_t*, int64_t, int64_t,
                               uint64_t, int64_t, int64_t, int64_t, const uint16_t*, int64_t,
                               int64_t, uint8_t*, uint8_t*, int64_t*, int64_t*, uint8_t*, int64_t,
                               int64_t);
int64_t actzip_bounded_squeeze_gather(const uint8_t*, int64_t, int64_t, const uint8_t*, int64_t,
                                      int64_t, uint64_t, int64_t, int64_t, int64_t,
                                      const uint16_t*, int64_t, int64_t, uint8_t*, uint8_t*,
                                      const int64_t*, const int64_t*, const uint8_t*,
                                      const int64_t*, uint8_t*, int64_t);
int64_t actzip_bounded_unsqueeze(const uint8_t*, const uint8_t*, const int64_t*, const uint8_t*,
                                 int64_t, const uint16_t*, int64_t, int64_t, int64_t, int64_t,
                                 const uint8_t*, int64_t, int64_t, uint64_t, int64_t, int64_t,
                                 int64_t, uint8_t*, int64_t);

int64_t actzip_entropy_count(const uint8_t*, int64_t, int64_t*, int64_t);
int64_t actzip_entropy_encode(const uint8_t*, int64_t, const uint16_t*, int64_t, int64_t*, int64_t*,
                              uint8_t*, int64_t, int64_t);
int64_t actzip_entropy_gather(const uint8_t*, int64_t, const uint16_t*, int64_t, const int64_t*,
                              const int64_t*, const uint8_t*, const int64_t*, uint8_t*, int64_t);
int64_t actzip_entropy_decode(const int64_t*, const uint8_t*, int64_t, const uint16_t*, int64_t,
                              int64_t, uint8_t*, int64_t);

int64_t actzip_fixedpoint_range(const uint8_t*, int64_t, int64_t, int64_t, int64_t, uint8_t*,
                                int64_t);
int64_t actzip_fixedpoint_encode(const uint8_t*, int64_t, int64_t, const uint8_t*, const uint8_t*,
                                 const uint8_t*, int64_t, int64_t, uint64_t, int64_t, int64_t,
                                 int64_t*, int64_t*, uint8_t*, int64_t, int64_t);
int64_t actzip_fixedpoint_gather(const uint8_t*, int64_t, int64_t, const uint8_t*, const uint8_t*,
                                 const uint8_t*, int64_t, int64_t, uint64_t, int64_t, int64_t,
                                 const int64_t*, const int64_t*, const uint8_t*, uint8_t*,
                                 uint8_t*, int64_t);
int64_t actzip_fixedpoint_decode(const uint8_t*, const uint8_t*, int64_t, int64_t, int64_t,
                                 const uint8_t*, const uint8_t*, int64_t, int64_t, uint64_t,
                                 int64_t, int64_t, uint8_t*, int64_t);

int64_t actzip_group_nonzero(const uint8_t*, int64_t, void*, int64_t, int64_t, int64_t, int64_t,
                             int64_t, const uint8_t*, const int64_t*, int64_t);
int64_t actzip_group_encode(const void*, int64_t, int64_t, int64_t, int64_t, const uint8_t*,
                            const int64_t*, int64_t, int64_t, uint64_t, uint8_t*, int64_t, int64_t);
int64_t actzip_group_raw(const void*, int64_t, int64_t, int64_t, int64_t, const uint8_t*,
                         const int64_t*, uint8_t*, int64_t);
int64_t actzip_group_decode(const uint8_t*, int64_t, void*, int64_t, int64_t, int64_t, int64_t,
                            const uint8_t*, const int64_t*, int64_t, int64_t, uint64_t, int64_t);

int64_t actzip_dual_encode(const void*, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
                           int64_t, const uint8_t*, const int64_t*, int64_t, int64_t, uint64_t,
                           uint8_t*, int64_t, uint8_t*, int64_t, void*, int64_t);
int64_t actzip_dual_decode(const uint8_t*, int64_t, const uint8_t*, int64_t, void*, int64_t,
                           int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, const uint8_t*,
                           const int64_t*, int64_t, int64_t, uint64_t, void*, int64_t);
int64_t actzip_dual_last_encode(const void*, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
                                int64_t, int64_t, const uint8_t*, const int64_t*, int64_t, int64_t,
                                uint64_t, uint8_t*, int64_t, uint8_t*, int64_t, void*, int64_t);
int64_t actzip_dual_last_decode(const uint8_t*, int64_t, const uint8_t*, int64_t, void*, int64_t,
                                int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
                                const uint8_t*, const int64_t*, int64_t, int64_t, uint64_t, void*,
                                int64_t);

int64_t actzip_index_range(const void*, int64_t, int64_t, int64_t*, int64_t);
int64_t actzip_index_encode(const void*, int64_t, int64_t, int64_t, int64_t, uint8_t*, int64_t,
                            int64_t);
int64_t actzip_index_decode(const uint8_t*, int64_t, void*, int64_t, int64_t, int64_t, int64_t,
                            int64_t);

int64_t actzip_planes_pack(const uint8_t*, int64_t, int64_t, uint8_t*, int64_t, int64_t);
int64_t actzip_planes_unpack(const uint8_t*, int64_t, int64_t, int64_t, uint8_t*, int64_t);

int64_t actzip_window_encode(const int64_t*, int64_t, const int64_t*, uint8_t*, int64_t);
int64_t actzip_window_decode(const uint8_t*, int64_t, const int64_t*, int64_t*, int64_t);

int64_t actzip_mask_encode(const void*, int64_t, int64_t, int64_t, uint64_t, uint8_t*, int64_t);
int64_t actzip_mask_decode(const uint8_t*, int64_t, void*, int64_t, int64_t, uint64_t, int64_t);
}
