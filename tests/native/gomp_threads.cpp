// The few calls that gcc makes for `#pragma omp parallel for schedule(dynamic)`, on std::thread.
//
// libgomp is not built with ThreadSanitizer, which then takes its barriers for races. With this
// file in its place every synchronization is seen, and what remains is ours.
#include <atomic>
#include <thread>
#include <vector>

namespace {

struct Team {
  std::atomic<long> next{0};
  long end = 0, step = 1, chunk = 1;
};

thread_local Team* team = nullptr;
thread_local int number = 0;

bool take(long* from, long* to) {
  const long at = team->next.fetch_add(team->chunk * team->step);
  if (at >= team->end) return false;
  *from = at;
  const long last = at + team->chunk * team->step;
  *to = last < team->end ? last : team->end;
  return true;
}

}  // namespace

extern "C" {

void GOMP_parallel_loop_nonmonotonic_dynamic(void (*body)(void*), void* data, unsigned threads,
                                             long start, long end, long step, long chunk, unsigned) {
  Team shared;
  shared.next = start;
  shared.end = end;
  shared.step = step;
  shared.chunk = chunk;
  std::vector<std::thread> others;
  const auto work = [&](int mine) {
    team = &shared;
    number = mine;
    body(data);
    team = nullptr;
    number = 0;
  };
  for (unsigned k = 1; k < threads; ++k) others.emplace_back(work, int(k));
  work(0);
  for (std::thread& other : others) other.join();
}

bool GOMP_loop_nonmonotonic_dynamic_next(long* from, long* to) { return take(from, to); }
void GOMP_loop_end_nowait() {}
int omp_get_thread_num() { return number; }
}
