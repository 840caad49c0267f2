// One target as a libFuzzer program: -DTARGET=fuzz_bounded and so on.
#include <cstddef>
#include <cstdint>

int64_t harness_threads = 1;

int TARGET(const uint8_t* bytes, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  return TARGET(bytes, size);
}
