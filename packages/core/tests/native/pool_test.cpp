// The thread pool without the rest of core: every element exactly once, from several callers,
// nested, while the number of threads changes, and in a forked child. Exits with 1 and a line on
// the first failure. Run with sanitizers by tools/sanitize.py.
#include "thread/pool.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "thread/error.h"

using rabbet::parallel_for;
using rabbet::set_num_threads;

namespace {

void need(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "pool_test: %s\n", what);
  std::_Exit(1);
}

// Plain ints: two threads on one element are a data race, which ThreadSanitizer reports.
void add_one(int64_t begin, int64_t end, void* ctx) {
  int* counts = static_cast<int*>(ctx);
  for (int64_t i = begin; i < end; ++i) ++counts[i];
}

void region(int64_t n, int64_t grain) {
  std::vector<int> counts(n, 0);
  parallel_for(n, grain, add_one, counts.data());
  for (int c : counts) need(c == 1, "an element was not visited exactly once");
}

void sizes() {
  for (int64_t n : {0, 1, 2, 3, 7, 8, 9, 63, 64, 65, 1000, 4097, 100003}) {
    for (int64_t grain : {0, 1, 5, 64, 1000}) region(n, grain);
  }
}

void nested() {
  std::vector<int> counts(64 * 100, 0);
  parallel_for(
      64, 1,
      [](int64_t begin, int64_t end, void* ctx) {
        for (int64_t i = begin; i < end; ++i) {
          parallel_for(100, 1, add_one, static_cast<int*>(ctx) + 100 * i);
        }
      },
      counts.data());
  for (int c : counts) need(c == 1, "a nested region missed an element");
}

void several_callers() {
  std::vector<std::thread> callers;
  for (int t = 0; t < 4; ++t) {
    callers.emplace_back([] {
      for (int i = 0; i < 300; ++i) region(1 + i * 7, 1 + i % 5);
    });
  }
  for (std::thread& t : callers) t.join();
}

void changing_threads() {
  std::atomic<bool> stop{false};
  std::thread changer([&] {
    for (int i = 0; !stop.load(); ++i) set_num_threads(1 + i % 6);
  });
  for (int i = 0; i < 1000; ++i) region(500, 3);
  stop.store(true);
  changer.join();
  set_num_threads(4);
}

int threads_of_process() {
  int n = 0;
  std::FILE* file = std::fopen("/proc/self/status", "r");
  char line[256];
  while (file && std::fgets(line, sizeof line, file)) std::sscanf(line, "Threads: %d", &n);
  if (file) std::fclose(file);
  return n;
}

void shrinks() {
  set_num_threads(6);
  region(1000, 1);
  need(threads_of_process() >= 6, "workers were not started");
  const int others = threads_of_process() - 6;
  set_num_threads(2);
  for (int i = 0; i < 2000 && threads_of_process() > 2 + others; ++i) usleep(1000);
  need(threads_of_process() <= 2 + others, "workers that are too many stay");
  set_num_threads(4);
  region(1000, 1);
}

// Fork while another thread's regions run: the child's regions must work and end.
[[maybe_unused]] void forks() {
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop.load()) region(2000, 1);
  });
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);  // a deadlock ends as a failure
      for (int k = 0; k < 20; ++k) region(3000, 1);
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    need(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a forked child failed");
  }
  stop.store(true);
  busy.join();
}

}  // namespace

int main() {
  set_num_threads(4);
  sizes();
  nested();
  several_callers();
  changing_threads();
  shrinks();
#ifndef __SANITIZE_THREAD__  // it cannot follow threads that start after a fork
  forks();
#endif
  try {
    set_num_threads(0);
    need(false, "set_num_threads(0) was taken");
  } catch (const rabbet::Error& error) {
    need(error.code == RB_E_ARG, "another error code");
  }
  std::puts("pool_test: ok");
  return 0;
}
