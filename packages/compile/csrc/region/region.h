// The calls that regions defer: one recording for the process, because calls are deferred only
// while one thread uses core.
#pragma once
#include <mutex>
#include <string>
#include <vector>

#include "region/recording.h"
#include "run/run.h"

namespace compile {

/// Totals since the last `clear`.
struct Totals {
  int64_t recorded = 0;  // calls that were deferred
  int64_t flushes = 0;
  int64_t dropped = 0;   // deferred calls whose results nobody wanted
  int64_t unstored = 0;  // results that never were in memory
  int64_t tiled = 0;     // flushes that ran in tiles
  int64_t declined = 0;  // flushes whose kernels declined
};

/// One flush, where reports are on.
struct Line {
  std::string reason, source;
  std::vector<std::string> ops;
  int64_t numel;
  Ran ran;
  double microseconds;
};

class Region {
 public:
  /// The one of the process; never destroyed.
  static Region& get() { return instance_; }

  /// Defer the call. False: it has to run at once.
  bool defer(const RbCall& c, const RbOpInfo& info, const RbValue* args, int32_t nargs,
             RbValue* rets, int32_t* rc);
  /// Run what is deferred if the call, which runs at once, meets its memory.
  int32_t make_way(const RbCall& c, const RbOpInfo& info, const RbValue* args, int32_t nargs,
                   const RbValue* rets, int32_t nrets);
  /// Run what is deferred if `t` meets its memory.
  int32_t ready(const RbTensor* t, const char* what);
  int32_t flush(const char* reason);
  bool is_pending() const { return pending_.load(std::memory_order_acquire); }

  Totals totals();
  std::vector<Line> lines();
  void clear();
  std::mutex& mutex() { return mutex_; }

 private:
  Region() = default;
  static Region& instance_;
  int32_t run(const std::string& reason, const std::string& source);
  bool concerns(const RbCall& c, const RbOpInfo& info, const RbValue* args, int32_t nargs,
                const RbValue* rets, int32_t nrets) const;

  std::mutex mutex_;
  std::atomic<bool> pending_{false};
  Recording recording_;
  Totals totals_;
  std::vector<Line> lines_;
};

/// Handles every call that reaches the layer.
int32_t handle_call(void* self, const RbCall* c, const RbValue* args, int32_t nargs, RbValue* rets,
                    int32_t nrets);

}  // namespace compile
