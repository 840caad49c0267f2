// Which build of the kernels this processor runs, and the version of the C interface.
#include "common/core.hpp"

#ifdef ACTZIP_DISPATCH

namespace {

int best_level() {
#ifdef ACTZIP_X86
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !__builtin_cpu_supports("bmi2") || !__builtin_cpu_supports("f16c"))
    return 0;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
    return 2;
  return 1;
#else
  return 0;
#endif
}

const int kBest = best_level();
int chosen = kBest;

}  // namespace

extern "C" __attribute__((visibility("default"))) int actzip_isa_level() { return chosen; }

// For tests: use a lower level than the processor has. Returns the level now in use.
extern "C" __attribute__((visibility("default"))) int actzip_set_isa_level(int level) {
  chosen = level < 0 || level > kBest ? kBest : level;
  return chosen;
}

// Changes with any change of an entry's parameters; kernels/native/library.py names the same.
extern "C" __attribute__((visibility("default"))) int actzip_interface() { return 6; }

#endif
