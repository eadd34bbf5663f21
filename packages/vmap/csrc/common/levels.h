// The levels of one layer that a thread is inside, each with a frame of its own.
#pragma once
#include <algorithm>
#include <memory>
#include <vector>

#include "rabbet/plugin.hpp"

/// `Frame` has a member `level`. One set for each type of frame and thread.
template <class Frame>
class Levels {
 public:
  /// Enter a level of `layer`, whose calls find `frame`.
  static int32_t push(int32_t layer, Frame&& frame, uint32_t flags, int32_t* level) {
    return rb::guarded([&] {
      auto one = std::make_unique<Frame>(std::move(frame));
      rb::check(rb::host->transform_push(layer, one.get(), flags, level));
      one->level = *level;
      all().push_back(std::move(one));
    });
  }

  static int32_t pop(int32_t level) {
    const int32_t rc = rb::host->transform_pop(level);
    if (rc != RB_OK) return rc;
    all().erase(std::remove_if(all().begin(), all().end(),
                               [&](const auto& frame) { return frame->level == level; }),
                all().end());
    return RB_OK;
  }

  /// Throws where the thread is not inside `level`; `name` is the layer's.
  static Frame& at(int32_t level, const char* name) {
    for (const auto& frame : all()) {
      if (frame->level == level) return *frame;
    }
    rb::fail(RB_E_STATE, "%s: the thread is not inside level %d", name, level);
  }

  /// The frame of the level that was entered last, or null.
  static const Frame* last() { return all().empty() ? nullptr : all().back().get(); }

 private:
  static std::vector<std::unique_ptr<Frame>>& all() {
    static thread_local std::vector<std::unique_ptr<Frame>> frames;
    return frames;
  }
};
