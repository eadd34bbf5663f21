// What gather, scatter and advanced indexing share: checked indices and loops that follow them.
//
// All of them are one walk over a space of positions (run_space): in[0] is the int64 index at a
// position, and the indexed side contributes a base address from the other dimensions, to which the
// loop adds index * step bytes.
#pragma once
#include <memory>

#include "common/view.h"

namespace rbcpu {

/// Context of the loops.
struct IndexStep {
  int64_t bytes;       // from one index to the next
  const void* factor;  // for the adding loops: one element, or null for 1
};

/// in: index, source base. out: the element found.
Loop gather_loop(int item);
/// in: index, value. out: target base; overwritten.
Loop scatter_loop(int item);
/// The same, added to (of bools: or). The target of 16-bit floats holds float32, see Accumulator.
Loop scatter_add_loop(int dtype);
/// The same with a product or a maximum in place of the sum. The maximum with NaN is NaN.
Loop scatter_multiply_loop(int dtype);
Loop scatter_maximum_loop(int dtype);

/// The target of additions that starts as a copy of `x`: the result itself, or for 16-bit floats
/// float32 numbers that store() rounds into the result once.
class Accumulator {
 public:
  Accumulator(const RbTensor& x, const RbTensor& out);
  void store() const;
  View view;

 private:
  const RbTensor& out_;
  std::unique_ptr<rb::Scratch<float>> sums_;
};

/// Dense int64 values of `index`, a copy where that is not what it holds; each in [0, size), or in
/// [-size, size) and wrapped if `negative`; raises an RB_E_INDEX error naming op, index and size.
class CheckedIndex {
 public:
  /// With `expanded`, dimensions of stride 0 keep that stride, so `data` is not dense along them.
  CheckedIndex(const char* op, const RbTensor& index, int64_t size, int dim, bool negative,
               bool expanded = false);
  const int64_t* data() const { return reinterpret_cast<const int64_t*>(view.data); }
  View view;

 private:
  void copy();
  std::unique_ptr<rb::Scratch<int64_t>> values_;  // only where the tensor itself does not serve
};

/// Run a loop whose writes may meet along the dimensions in the mask `busy`: on the pool, split
/// along another one, so that every element is written by one thread in the order of positions.
int run_split(LoopSpace& space, Loop loop, int64_t busy);

/// Row i of `out` becomes row index[i] of `table`; the indices are valid.
void copy_rows(const char* table, const int64_t* index, int64_t n, int64_t row_bytes, char* out);

/// Strides of `v` in bytes with dimension `dim` frozen (its step is returned), for the first `ndim`
/// dimensions.
int64_t freeze_dim(const View& v, int dim, int64_t* strides);

}  // namespace rbcpu
