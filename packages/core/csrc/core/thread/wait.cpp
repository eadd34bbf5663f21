#include "thread/wait.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "thread/error.h"
#include "thread/plugin_names.h"

namespace rabbet {

namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kSpin = std::chrono::microseconds(50);  // without sleeping
constexpr auto kLongestSleep = std::chrono::microseconds(1000);
constexpr auto kBetweenInterrupts = std::chrono::milliseconds(20);

std::atomic<const WaitHooks*> wait_hooks{nullptr};

bool ask(int32_t (*ready)(void*), void* ctx) {
  int32_t answer = 0;
  int32_t rc = RB_OK;
  try {
    answer = ready(ctx);
    if (answer < 0) rc = -answer;
  } catch (...) {
    rc = store_thrown("the function of a wait of " + plugin_of(ready));
  }
  if (rc != RB_OK) rethrow(explain(rc, "the function of a wait of " + plugin_of(ready)));
  return answer != 0;
}

struct Wait {
  int32_t (*ready)(void*);
  void* ctx;
  double seconds;
  const WaitHooks* hooks;
  bool done = false;

  void run() {
    const auto begin = Clock::now();
    auto asked = begin;  // for interrupts
    Clock::duration sleep = std::chrono::microseconds(10);
    for (auto now = begin; !done; now = Clock::now()) {
      if (seconds >= 0 && std::chrono::duration<double>(now - begin).count() >= seconds) return;
      if (hooks && now - asked >= kBetweenInterrupts) {
        check(hooks->interrupted());
        asked = now;
      }
      if (now - begin >= kSpin) {
        std::this_thread::sleep_for(sleep);
        sleep = std::min<Clock::duration>(sleep * 2, kLongestSleep);
      }
      done = ask(ready, ctx);
    }
  }
};

}  // namespace

void set_wait_hooks(const WaitHooks* hooks) { wait_hooks.store(hooks); }

bool wait_until(int32_t (*ready)(void*), void* ctx, double seconds) {
  if (ask(ready, ctx)) return true;
  Wait wait{ready, ctx, seconds, wait_hooks.load()};
  if (wait.hooks) {
    wait.hooks->unlocked([](void* w) { static_cast<Wait*>(w)->run(); }, &wait);
  } else {
    wait.run();
  }
  return wait.done;
}

}  // namespace rabbet
