#include "at_end.h"

#include <deque>

#include "node.h"
#include "rabbet/plugin.hpp"

namespace tape {

namespace {

struct AtEnd {
  int32_t (*fn)(void*);
  void* ctx;
  void (*del)(void*);
};
struct ThreadRuns {
  int depth = 0;  // runs inside each other, those of the functions included
  std::deque<AtEnd> waiting;

  AtEnd take() {
    const AtEnd first = waiting.front();
    waiting.pop_front();
    return first;
  }
};
thread_local ThreadRuns runs;

void drop(const AtEnd& f) {
  if (f.del) f.del(f.ctx);
}

}  // namespace

int32_t at_end(int32_t (*fn)(void*), void* ctx, void (*del)(void*)) {
  if (!fn) return host->err_set(RB_E_ARG, "at_end: the function is null");
  if (!runs.depth)
    return host->err_set(RB_E_STATE, "at_end: no backward pass is running on this thread");
  return rb::guarded([&] { runs.waiting.push_back({fn, ctx, del}); });
}

RunScope::RunScope() { ++runs.depth; }
RunScope::~RunScope() {
  if (--runs.depth) return;
  while (!runs.waiting.empty()) drop(runs.take());
}
int32_t RunScope::end() {
  int32_t status = RB_OK;
  while (runs.depth == 1 && status == RB_OK && !runs.waiting.empty()) {
    const AtEnd f = runs.take();
    status = f.fn(f.ctx);
    drop(f);
  }
  return status;
}

}  // namespace tape
