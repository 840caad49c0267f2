// The few calls that gcc makes for `#pragma omp parallel for schedule(dynamic)`, on std::thread.
//
// libgomp is not built with ThreadSanitizer, which then takes its barriers for races. With this
// file in its place every synchronization is seen, and what remains is ours. One loop per parallel
// region is all that the kernels use.
#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

namespace {

struct Team {
  std::once_flag begun;
  std::atomic<long> next{0};
  long end = 0, stride = 1;
};

thread_local Team* team = nullptr;
thread_local int number = 0;

}  // namespace

extern "C" {

bool GOMP_loop_nonmonotonic_dynamic_next(long* from, long* to) {
  const long at = team->next.fetch_add(team->stride);
  if (at >= team->end) return false;
  *from = at;
  *to = at + team->stride < team->end ? at + team->stride : team->end;
  return true;
}

bool GOMP_loop_nonmonotonic_dynamic_start(long start, long end, long step, long chunk, long* from,
                                          long* to) {
  std::call_once(team->begun, [&] {
    team->next = start;
    team->end = end;
    team->stride = step * chunk;
  });
  return GOMP_loop_nonmonotonic_dynamic_next(from, to);
}

void GOMP_loop_end_nowait() {}

void GOMP_parallel(void (*body)(void*), void* data, unsigned threads, unsigned) {
  Team shared;
  const auto work = [&](int mine) {
    team = &shared;
    number = mine;
    body(data);
    team = nullptr;
    number = 0;
  };
  std::vector<std::thread> others;
  for (unsigned k = 1; k < threads; ++k) others.emplace_back(work, int(k));
  work(0);
  for (std::thread& other : others) other.join();
}

int omp_get_thread_num() { return number; }
}
