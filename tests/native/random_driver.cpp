// All targets without a fuzzer: random inputs for so many seconds each.
//
//   random_driver SECONDS THREADS [target...]
#include <chrono>
#include <random>
#include <string>

#include "input.hpp"

int64_t harness_threads = 1;

using Target = int (*)(const uint8_t*, size_t);

int fuzz_bounded(const uint8_t*, size_t);
int fuzz_bounded_entropy(const uint8_t*, size_t);
int fuzz_dithered(const uint8_t*, size_t);
int fuzz_entropy(const uint8_t*, size_t);
int fuzz_fixedpoint(const uint8_t*, size_t);
int fuzz_group(const uint8_t*, size_t);
int fuzz_dual(const uint8_t*, size_t);
int fuzz_index(const uint8_t*, size_t);
int fuzz_mask(const uint8_t*, size_t);
int fuzz_planes(const uint8_t*, size_t);
int fuzz_window(const uint8_t*, size_t);

static const struct { const char* name; Target run; } TARGETS[] = {
    {"bounded", fuzz_bounded}, {"bounded_entropy", fuzz_bounded_entropy},
    {"dithered", fuzz_dithered},
    {"entropy", fuzz_entropy}, {"fixedpoint", fuzz_fixedpoint},
    {"group", fuzz_group},     {"dual", fuzz_dual},
    {"index", fuzz_index},     {"mask", fuzz_mask},
    {"planes", fuzz_planes},   {"window", fuzz_window},
};

static Bytes random_input(std::mt19937_64& random) {
  Bytes out(64 + random() % 4000);
  const uint64_t spread = 1 + random() % 255;
  for (uint8_t& b : out) b = uint8_t(random() % 3 ? random() % (spread + 1) : 0);
  for (size_t i = 0; i < 64; ++i) out[i] = uint8_t(random());  // the choices
  return out;
}

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 5;
  harness_threads = argc > 2 ? std::atoll(argv[2]) : 1;
  for (const auto& target : TARGETS) {
    bool wanted = argc <= 3;
    for (int i = 3; i < argc; ++i) wanted |= std::string(argv[i]) == target.name;
    if (!wanted) continue;
    std::mt19937_64 random(20260101);
    const auto start = std::chrono::steady_clock::now();
    long runs = 0;
    for (; std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() < seconds; ++runs) {
      const Bytes input = random_input(random);
      target.run(input.data(), input.size());
    }
    std::printf("%-16s %8ld inputs, no finding\n", target.name, runs);
    std::fflush(stdout);
  }
  return 0;
}
