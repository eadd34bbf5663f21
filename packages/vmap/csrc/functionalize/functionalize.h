// A level whose tensors stand for values that are never written: a write makes a new value, which
// all aliases of the tensor see.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "../common/calls.h"
#include "rabbet/functionalize.h"

namespace functional {

using namespace calls;

/// How an alias is made of its parent: by a view operator, or (`places`) by the positions of its
/// elements in the parent.
struct Node {
  int32_t parent = -1;
  const RbOp* op = nullptr;
  std::vector<RbValue> args;                                // those after the first
  std::vector<std::unique_ptr<std::vector<int64_t>>> ints;  // what they point to
  Ref places;
  Dims shape, strides;  // as shown
  int64_t offset = 0;   // of the first element, from that of the memory
};

/// The memory that aliases share: its value now, and how each of them is made of it. It goes with
/// the last wrapper, each of which owns it through RbWrap.second; RbWrap.bits say which node the
/// wrapper is and at which write its `inner` was made.
struct Cell {
  std::vector<Node> nodes;
  int32_t base = 0;  // the node that has no parent
  Ref value;         // of the base
  uint32_t writes = 0;
  Ref origin;  // the tensor of a lower level that the base stands for, if there is one
};

/// A tensor of a lower level whose memory may be written inside, and what stands for it there.
struct Origin {
  Ref tensor, wrapper;
};

/// A level: what transform_push got.
struct Frame {
  bool copies;  // views become copies
  int32_t level = 0;
  std::vector<Origin> origins = {};

  bool mine(const RbTensor* t) const { return t->level == level; }
};

struct Operators {
  const RbOp *reshape, *index, *index_put, *arange, *full, *add, *mul, *as_strided, *strided_view,
      *as_strided_copy, *clone, *cast, *permute, *view;
};
extern Operators ops;

// ---- aliases and their memory (cell.cpp)

Cell& cell_of(const RbTensor* wrapper);
int32_t node_of(const RbTensor* wrapper);
/// What the wrapper stands for now; it keeps the value.
RbTensor* current(const Frame& f, RbTensor* wrapper);
/// The value of a node now.
Ref read(const Frame& f, const Cell& cell, int32_t node);
/// A tensor of the level with memory of its own, shown with the strides of the value or others.
Ref fresh(const Frame& f, Ref value, const Dims* strides = nullptr);
/// The wrapper `t` viewed by `op`.
Ref view(const Frame& f, RbTensor* t, const RbOp* op, const RbValue* args, int32_t nargs);
/// The elements of the 1-d tensor `x` at `places`, both of the level: a value.
Ref pick(const Frame& f, RbTensor* x, RbTensor* places);
/// The value now of a tensor of the level, or of a lower one.
Ref lower(const Frame& f, RbTensor* t);
/// The cell's memory is part, at `places` (a value), of that of `origin`, a tensor of a lower level
/// with the value `whole`.
void extend(const Frame& f, Cell& cell, RbTensor* whole, RbTensor* origin, const Dims& strides,
            int64_t offset, Ref places);
/// A tensor of the level for `t`, which is at `places` (a value) in the memory of the cell.
Ref part(const Frame& f, RbTensor* wrapper, RbTensor* t, int64_t offset, Ref places);
/// All elements of `wrapper` become those of `value`, of its shape and dtype.
void write(const Frame& f, RbTensor* wrapper, Ref value);

// ---- tensors of lower levels (origin.cpp)

/// What stands for `t` inside, or null.
RbTensor* known(const Frame& f, const RbTensor* t);
/// What stands for `t` inside, of which writes reach it when the level ends.
RbTensor* adopt(Frame& f, RbTensor* t);
/// Whether memory that `t` shares has been written inside.
bool outdated(const Frame& f, const RbTensor* t);

// ---- geometry (geometry.cpp)

/// Run `body` where no layer and no transform sees its calls: on tensors of the backend.
template <class Body>
int32_t below_all(int backend, Body&& body) {
  const rb::ThreadGuard guard;
  RbThread off = guard.saved();
  off.exclude = ~(uint64_t{1} << backend);
  rb::host->thread_set(&off);
  return body();
}
constexpr int kMeta = 0;  // the backend of tensors without data
/// A tensor without data.
Ref geometry(const RbTensor* t);
Ref geometry(int dtype, const Dims& shape, const Dims& strides);
int64_t item_size(const RbTensor* t);
/// int64 positions 0, 1, ... in `shape`, on the device of `like`: a tensor of the level.
Ref positions(const Frame& f, const RbTensor* like, const Dims& shape);
/// The positions in a row-major tensor like `base` of what as_strided(size, stride, offset) of its
/// memory names: a value.
Ref strided_positions(const Frame& f, const RbTensor* like, const Node& base, const Dims& size,
                      const Dims& stride, int64_t offset);

}  // namespace functional
