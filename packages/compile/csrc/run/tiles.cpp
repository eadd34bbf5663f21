#include "run/tiles.h"

#include <algorithm>

namespace compile {

Tiles::Tiles(int64_t numel, int64_t cols, int64_t elements)
    : rows_(cols ? numel / cols : 1), cols_(cols ? cols : numel), flat_(!cols) {
  width_ = std::min(cols_, elements);
  height_ = std::clamp<int64_t>(elements / cols_, 1, rows_);
  across_ = (cols_ + width_ - 1) / width_;
  count_ = (rows_ + height_ - 1) / height_ * across_;
}

Tiles::Part Tiles::part(int64_t tile) const {
  const int64_t row = tile / across_ * height_, col = tile % across_ * width_;
  return {row, col, std::min(height_, rows_ - row), std::min(width_, cols_ - col)};
}

void Tiles::bind(const Recording& r, const Plan& plan, const Shells& shells, int64_t tile) const {
  const Part p = part(tile);
  for (size_t i = 0; i < plan.places.size(); ++i) {
    const Place& place = plan.places[i];
    if (place.kind == Place::kUnused) continue;
    const Value& v = r.value(static_cast<int>(i));
    RbTensor* t = shells.shell(static_cast<int>(i));
    int64_t first = 0;
    switch (v.extent) {
      case Extent::kFull:
        first = p.row * cols_ + p.col;
        if (flat_) {
          t->shape[0] = p.width;
        } else {
          t->shape[0] = p.height;
          t->shape[1] = t->strides[0] = p.width;
        }
        t->numel = p.height * p.width;
        break;
      case Extent::kRow:
        first = p.col;
        t->shape[0] = t->numel = p.width;
        break;
      case Extent::kColumn:
        first = p.row;
        t->shape[0] = t->numel = p.height;
        break;
      case Extent::kOne:
        break;
    }
    t->data = place.kind == Place::kSlot ? shells.slot(place.slot) : v.data + first * v.itemsize;
  }
}

}  // namespace compile
