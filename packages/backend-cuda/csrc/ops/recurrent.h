// What the kernels of a recurrent layer share: the call, its steps, and the texts of its mode.
#pragma once
#include "launch/jit.h"
#include "launch/temporary.h"
#include "rabbet/packed_steps.hpp"

namespace rbcuda {

// Behind kText_recurrent the kernels of one step, behind kText_sequence those of all steps.
struct RecurrentMode {
  char letter;
  int gates;
  const char *step, *step_backward, *sequence, *sequence_backward;
};
const RecurrentMode& recurrent_mode(const char* name);

// What both directions need. Core passes tensors of one dtype without gaps.
struct RecurrentLayer {
  const RecurrentMode& mode;
  int dtype, sums;
  int64_t total, batch, hidden, gates;
  rb::PackedSteps steps;
  const rb::Args& a;
  const RbTensor& h0;

  /// `rows` of all steps; argument `sizes` is `batch_sizes`, and `reverse` follows it.
  RecurrentLayer(const rb::Args& args, const RbTensor& state, int64_t rows, int sizes)
      : mode(recurrent_mode(args.str(0))),
        dtype(state.dtype_id),
        sums(computed(dtype)),
        total(rows),
        batch(state.shape[0]),
        hidden(state.shape[1]),
        gates(hidden * mode.gates),
        steps(args.ints(sizes).begin(), args.ints(sizes).len, rows, batch, args.boolean(sizes + 1)),
        a(args),
        h0(state) {}
  bool has_cells() const { return mode.letter == 'l'; }
  int64_t element_size() const { return h0.dtype.bits / 8; }
  Device& device() const { return device_of(h0); }
  Temporary make(int of, int64_t rows, int64_t columns) const {
    const int64_t shape[] = {rows, columns};
    return Temporary(h0, of, 2, shape);
  }
};

inline void* data_of(const RbTensor* t) { return t && t->numel ? t->data : nullptr; }

/// Twin of `Results` in cells.cuh: what the derivative reads of all steps.
struct RecurrentResults {
  const void *grad_output, *grad_cells, *grad_saved, *output, *cells, *saved, *h0, *c0;
};
inline RecurrentResults results_of(const rb::Args& a) {
  return {data_of(a.optional_tensor(1)),
          data_of(a.optional_tensor(4)),
          data_of(a.optional_tensor(5)),
          a.tensor(6).data,
          a.tensor(7).data,
          a.tensor(8).data,
          a.tensor(9).data,
          data_of(a.optional_tensor(10))};
}

/// Whether all steps are computed by one launch; then by the functions below.
bool fits_one_launch(const RecurrentLayer& layer);
/// All results of recurrent_layer.
void run_sequence(const RecurrentLayer& layer);
/// Of recurrent_layer_backward dgates, dh0 and dc0, besides the gradients of the products and the
/// states before each step.
void run_sequence_backward(const RecurrentLayer& layer, void* dproduct, void* before);

}  // namespace rbcuda
