// Functions that are called when the outermost backward run of a thread has ended.
#pragma once
#include <cstdint>

namespace tape {

/// See RbAutograd.at_end.
int32_t at_end(int32_t (*fn)(void* ctx), void* ctx, void (*del)(void* ctx));

/// While it lives, the thread is in a run. The outermost one calls the functions in `end`, and
/// drops those that it has not called when it goes.
class RunScope {
 public:
  RunScope();
  ~RunScope();
  RunScope(const RunScope&) = delete;
  RunScope& operator=(const RunScope&) = delete;
  /// Call the functions, in order, until one fails.
  int32_t end();
};

}  // namespace tape
