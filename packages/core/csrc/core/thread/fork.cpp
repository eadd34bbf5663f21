#include "thread/fork.h"

#include <pthread.h>

#include <vector>

namespace rabbet {

namespace {

struct Held {
  std::mutex mutex;
  std::vector<std::mutex*> list;
};
Held& held() {
  static Held* instance = new Held;
  return *instance;
}

void before() {
  held().mutex.lock();
  for (std::mutex* m : held().list) m->lock();
}
void after() {
  for (std::mutex* m : held().list) m->unlock();
  held().mutex.unlock();
}

}  // namespace

void hold_over_fork(std::mutex& mutex) {
  Held& h = held();
  std::lock_guard<std::mutex> lock(h.mutex);
  if (h.list.empty()) pthread_atfork(before, after, after);
  h.list.push_back(&mutex);
}

}  // namespace rabbet
