// Parts of a recording's elements that are computed from the first node to the last, so that what
// passes between nodes stays in the processor's caches.
#pragma once
#include "run/plan.h"

namespace compile {

class Tiles {
 public:
  /// Tiles of about `elements` elements; those of recordings with rows and columns are whole rows,
  /// or parts of one.
  Tiles(int64_t numel, int64_t cols, int64_t elements);
  int64_t count() const { return count_; }
  /// Elements of the largest one.
  int64_t size() const { return height_ * width_; }
  /// Point the shells at tile `tile`.
  void bind(const Recording& r, const Plan& plan, const Shells& shells, int64_t tile) const;

 private:
  struct Part {
    int64_t row, col, height, width;
  };
  Part part(int64_t tile) const;

  int64_t rows_, cols_, height_, width_, across_, count_;
  bool flat_;
};

}  // namespace compile
