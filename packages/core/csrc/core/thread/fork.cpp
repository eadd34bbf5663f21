#include "thread/fork.h"

#include <pthread.h>

#include <mutex>
#include <vector>

namespace rabbet {

namespace {

struct Held {
  struct Entry {
    void* lock;
    void (*take)(void*);
    void (*leave)(void*);
  };
  std::mutex mutex;
  std::vector<Entry> list;
};
Held& held() {
  static Held* instance = new Held;
  return *instance;
}

void before() {
  held().mutex.lock();
  for (const Held::Entry& e : held().list) e.take(e.lock);
}
void after() {
  for (const Held::Entry& e : held().list) e.leave(e.lock);
  held().mutex.unlock();
}

}  // namespace

void hold_over_fork(void* lock, void (*take)(void*), void (*leave)(void*)) {
  Held& h = held();
  std::lock_guard<std::mutex> guard(h.mutex);
  if (h.list.empty()) pthread_atfork(before, after, after);
  h.list.push_back({lock, take, leave});
}

}  // namespace rabbet
