// All targets called from several threads at once, each with inputs of its own, for so many seconds.
//
//   threads_driver SECONDS CALLERS THREADS
//
// THREADS is what each call asks for inside; built with gomp_threads.cpp, so ThreadSanitizer sees
// every synchronization.
#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "input.hpp"

int64_t harness_threads = 1;

// The level of instructions is a plain int that only tests set, and the targets do so all the time;
// all levels give the same bytes.
extern "C" const char* __tsan_default_suppressions() { return "race:actzip_set_isa_level\n"; }

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

static const Target TARGETS[] = {fuzz_bounded,    fuzz_bounded_entropy, fuzz_entropy, fuzz_fixedpoint,
                                 fuzz_group,      fuzz_dual,            fuzz_index,   fuzz_mask,
                                 fuzz_planes,     fuzz_window,          fuzz_dithered};

static void keep_calling(unsigned caller, double seconds, std::atomic<long>& runs) {
  std::mt19937_64 random(20260101 + caller);
  const auto start = std::chrono::steady_clock::now();
  while (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() < seconds) {
    Bytes input(64 + random() % 4000);
    for (uint8_t& b : input) b = uint8_t(random() % 3 ? random() : 0);
    TARGETS[random() % (sizeof TARGETS / sizeof *TARGETS)](input.data(), input.size());
    ++runs;
  }
}

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 5;
  const unsigned callers = argc > 2 ? unsigned(std::atoi(argv[2])) : 4;
  harness_threads = argc > 3 ? std::atoll(argv[3]) : 2;
  std::atomic<long> runs{0};
  std::vector<std::thread> threads;
  for (unsigned k = 0; k < callers; ++k) threads.emplace_back(keep_calling, k, seconds, std::ref(runs));
  for (std::thread& thread : threads) thread.join();
  std::printf("%u callers, %ld calls, no finding\n", callers, runs.load());
  return 0;
}
