// Layers of recurrent networks. Small ones are computed by one launch (recurrent_sequence.cpp); in
// others each step is a product by the weight and one kernel of kernels/recurrent.cuh. States are
// updated in place, so that sequences that have ended keep theirs.
#include "ops/recurrent.h"

#include <algorithm>

#include "launch/functions.h"
#include "launch/texts.h"
#include "ops/families.h"
#include "ops/product.h"
#include "ops/reduce.h"

namespace rbcuda {
namespace {

struct RecurrentStep {  // twin of the kernel's
  int64_t rows, hidden, first;
};
RecurrentStep step_of(const RecurrentLayer& l, int64_t t) {
  return {l.steps.sizes[t], l.hidden, l.steps.offsets[t]};
}

// The kernel of all steps, found once.
class StepKernel {
 public:
  StepKernel(const RecurrentLayer& l, const char* behind)
      : op_(l.a.op_name()), device_(l.device()), hidden_(l.hidden) {
    device_.enter();
    stream_ = device_.current_stream();
    if (l.steps.count() == 0 || hidden_ == 0) return;
    const Kernel kernel{op_, {{"A", l.dtype}, {"T", l.sums}}, kText_recurrent, behind};
    function_ = function_of(device_, kernel);
  }
  void launch(int64_t rows, void** arguments) const {
    constexpr int64_t kBlock = 256, kMostBlocks = 1 << 20;  // kernels step by the grid beyond that
    const int64_t blocks = std::min((rows * hidden_ + kBlock - 1) / kBlock, kMostBlocks);
    if (blocks == 0) return;
    device_.enter();
    enqueue(device_, stream_, op_, function_, Grid{static_cast<unsigned>(blocks), 1, 1, kBlock},
            arguments);
  }

 private:
  const char* op_;
  Device& device_;
  const int64_t hidden_;
  CuStream stream_;
  CuFunction function_ = nullptr;
};

char* row_of(const RbTensor& t, int64_t row) {
  return static_cast<char*>(t.data) + row * t.shape[1] * (t.dtype.bits / 8);
}

// c (rows, n) = a b, or c + a b. What all steps share is set once.
class StepProduct {
 public:
  StepProduct(const RecurrentLayer& l, const RbTensor& out, Matrix b, int64_t n, int64_t k,
              bool adds)
      : adds_(adds), row_(k) {
    p_.op = l.a.op_name();
    p_.out = &out;
    p_.operands = l.dtype;
    p_.results = out.dtype_id;
    p_.n = n, p_.k = k;
    p_.b = b;
    p_.c.data = out.data;
    p_.batch = layout_of(p_.op, {&scalar_view(out).tensor()});
  }
  void multiply_rows(const void* a, int64_t rows) {
    if (rows == 0 || p_.n == 0) return;
    // A dimension of size 1 has no stride.
    p_.m = rows;
    p_.a = {const_cast<void*>(a), rows == 1 ? 0 : row_, 1};
    p_.c.row = rows == 1 ? 0 : p_.n;
    p_.c.column = p_.n == 1 ? 0 : 1;
    if (p_.n == 1) p_.b.column = 0;
    if (adds_) p_.added = p_.c;
    multiply(p_);
  }

 private:
  const bool adds_;
  const int64_t row_;
  Product p_;
};

void run_steps(const RecurrentLayer& l) {
  const rb::Args& a = l.a;
  const char* op = a.op_name();
  const RbTensor &hn = a.ret(1), &cn = a.ret(2);
  copy(op, hn, l.h0);
  Temporary wide;  // the cells of 16-bit layers, in float32
  const RbTensor* cell = &cn;
  if (l.has_cells()) {
    if (l.sums != l.dtype) {
      wide = l.make(l.sums, l.batch, l.hidden);
      cell = &wide.tensor();
    }
    copy(op, *cell, a.tensor(3));
  }
  const Temporary product = l.make(l.sums, l.batch, l.gates);
  StepProduct by_weight(l, product.tensor(), {a.tensor(4).data, 1, l.hidden}, l.gates, l.hidden,
                        false);
  const StepKernel kernel(l, l.mode.step);
  void *gates = a.tensor(1).data, *sums = product.data(), *bias = data_of(a.optional_tensor(5)),
       *h = hn.data, *c = cell->data, *output = a.ret(0).data, *cells = a.ret(3).data,
       *saved = a.ret(4).data;
  for (int64_t s = 0; s < l.steps.count(); ++s) {
    RecurrentStep step = step_of(l, l.steps.at(s));
    by_weight.multiply_rows(h, step.rows);
    void* arguments[] = {&gates, &sums, &bias, &h, &c, &output, &cells, &saved, &step};
    kernel.launch(step.rows, arguments);
  }
  if (cell != &cn) copy(op, cn, *cell);
}

// Arguments: mode, gates, h0, c0, weight_hh, bias_hh, batch_sizes, reverse.
// Results: output, hn, cn, cells, saved.
void recurrent_layer_kernel(const rb::Args& a) {
  const RecurrentLayer l(a, a.tensor(2), a.tensor(1).shape[0], 6);
  fits_one_launch(l) ? run_sequence(l) : run_steps(l);
}

// A gradient as the state that is added to, in the dtype of sums.
void begin(const char* op, const RbTensor& state, const RbTensor* grad) {
  if (grad && grad->numel) return copy(op, state, *grad);
  fill(op, state, rb::int_value(0), rb::int_value(0));
}

// As run_sequence_backward.
void run_steps_backward(const RecurrentLayer& l, const RbTensor& dproduct, void* before) {
  const rb::Args& a = l.a;
  const char* op = a.op_name();
  const Temporary dh = l.make(l.sums, l.batch, l.hidden),
                  dc = l.make(l.sums, l.has_cells() ? l.batch : 0, l.hidden);
  begin(op, dh.tensor(), a.optional_tensor(2));
  if (l.has_cells()) begin(op, dc.tensor(), a.optional_tensor(3));
  StepProduct by_weight(l, dh.tensor(), {a.tensor(11).data, l.hidden, 1}, l.hidden, l.gates, true);
  const StepKernel kernel(l, l.mode.step_backward);
  RecurrentResults results = results_of(a);
  void *to = a.ret(0).data, *products = dproduct.data, *grad_h = dh.data(), *grad_c = dc.data();
  for (int64_t s = l.steps.count() - 1; s >= 0; --s) {
    const int64_t t = l.steps.at(s), previous = l.steps.before(t);
    RecurrentStep step = step_of(l, t);
    int64_t known = previous < 0 ? 0 : std::min(step.rows, l.steps.sizes[previous]),
            earlier = previous < 0 ? 0 : l.steps.offsets[previous];
    void* arguments[] = {&to,      &products, &grad_h, &grad_c, &before,
                         &results, &step,     &known,  &earlier};
    kernel.launch(step.rows, arguments);
    by_weight.multiply_rows(row_of(dproduct, step.first), step.rows);
  }
  copy(op, a.ret(1), dh.tensor());
  if (l.has_cells()) copy(op, a.ret(2), dc.tensor());
}

// The product of all steps' gradients and the states before them.
void weight_gradient(const RecurrentLayer& l, const RbTensor& to, const RbTensor& dproduct,
                     const RbTensor& before) {
  if (l.gates == 0) return;
  Product p;
  p.op = l.a.op_name();
  p.out = &to;
  p.operands = p.results = l.dtype;
  p.m = l.gates, p.n = l.hidden, p.k = l.total;
  // A dimension of size 1 has no stride.
  p.a = {dproduct.data, l.gates == 1 ? 0 : 1, l.gates};
  p.b = {before.data, l.hidden, l.hidden == 1 ? 0 : 1};
  p.c = {to.data, l.gates == 1 ? 0 : l.hidden, l.hidden == 1 ? 0 : 1};
  p.batch = layout_of(p.op, {&scalar_view(to).tensor()});
  multiply(p);
}

// Arguments: mode, grads of output, hn, cn, cells and saved, output, cells, saved, h0, c0,
// weight_hh, has_bias, batch_sizes, reverse. Results: dgates, dh0, dc0, dweight, dbias.
void recurrent_layer_backward_kernel(const rb::Args& a) {
  const RecurrentLayer l(a, a.tensor(9), a.tensor(6).shape[0], 13);
  const bool parted = l.mode.letter == 'g';  // the gates' gradients are not the products'
  const Temporary before = l.make(l.dtype, l.total, l.hidden),
                  apart = l.make(l.dtype, parted ? l.total : 0, l.gates);
  const RbTensor& dproduct = parted ? apart.tensor() : a.ret(0);
  if (fits_one_launch(l)) {
    run_sequence_backward(l, dproduct.data, before.data());
  } else {
    run_steps_backward(l, dproduct, before.data());
  }
  weight_gradient(l, a.ret(3), dproduct, before.tensor());
  if (!a.boolean(12) || l.gates == 0) return;
  const bool rows[] = {true, false};
  reduce(a.op_name(), sum_fold(l.dtype), &a.ret(4), nullptr, dproduct, rows);
}

const rb::KernelSpec kKernels[] = {
    {"recurrent_layer", rb::wrap<recurrent_layer_kernel>, RB_K_CONTIGUOUS, kFloat},
    {"recurrent_layer_backward", rb::wrap<recurrent_layer_backward_kernel>, RB_K_CONTIGUOUS,
     kFloat},
};

}  // namespace

int32_t add_recurrent(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcuda
