// Layers of recurrent networks: each step is a product by the weight and one kernel of
// kernels/recurrent.cuh. States are updated in place, so that sequences that have ended keep
// theirs.
#include <algorithm>
#include <vector>

#include "launch/jit.h"
#include "launch/temporary.h"
#include "launch/texts.h"
#include "ops/families.h"
#include "ops/product.h"
#include "ops/reduce.h"

namespace rbcuda {
namespace {

struct RecurrentStep {  // twin of the kernel's
  int64_t rows, hidden, first;
};

// Step t has sizes[t] rows from row offsets[t] on, and sizes never grow.
struct Steps {
  std::vector<int64_t> sizes, offsets;
  bool reverse;

  Steps(const rb::Span<int64_t>& given, int64_t total, int64_t batch, bool backwards)
      : sizes(given.begin(), given.end()), reverse(backwards) {
    if (sizes.empty() && batch) sizes.assign(static_cast<size_t>(total / batch), batch);
    int64_t at = 0;
    for (int64_t n : sizes) {
      offsets.push_back(at);
      at += n;
    }
  }
  int64_t count() const { return static_cast<int64_t>(sizes.size()); }
  /// The s-th step in order of time, or of time reversed.
  int64_t at(int64_t s) const { return reverse ? count() - 1 - s : s; }
  /// The step before t, or -1.
  int64_t before(int64_t t) const {
    const int64_t previous = reverse ? t + 1 : t - 1;
    return previous < count() ? previous : -1;
  }
};

// What both directions need. Core passes tensors of one dtype without gaps.
struct Layer {
  char mode;  // 'l', 'g', 't' or 'r'
  int dtype, sums;
  int64_t total, batch, hidden, gates;
  Steps steps;
  const rb::Args& a;

  Layer(const rb::Args& args, const RbTensor& h0, int64_t rows, int sizes)
      : mode(args.str(0)[0]),
        dtype(h0.dtype_id),
        sums(computed(dtype)),
        total(rows),
        batch(h0.shape[0]),
        hidden(h0.shape[1]),
        gates(hidden * (mode == 'l'   ? 4
                        : mode == 'g' ? 3
                                      : 1)),
        steps(args.ints(sizes), rows, batch, args.boolean(sizes + 1)),
        a(args) {}
  RecurrentStep step(int64_t t) const { return {steps.sizes[t], hidden, steps.offsets[t]}; }
  Temporary make(const RbTensor& like, int of, int64_t rows, int64_t columns) const {
    const int64_t shape[] = {rows, columns};
    return Temporary(like, of, 2, shape);
  }
  void launch_step(const RbTensor& like, const char* macro, int64_t rows, void** arguments) const {
    const Kernel kernel{a.op_name(),
                        {{"A", dtype}, {"T", sums}},
                        kText_recurrent,
                        std::string(macro) + "('" + mode + "')\n"};
    if (rows * hidden) launch(device_of(like), kernel, rows * hidden, arguments);
  }
};

char* row_of(const RbTensor& t, int64_t row) {
  return static_cast<char*>(t.data) + row * t.shape[1] * (t.dtype.bits / 8);
}
void* data_of(const RbTensor* t) { return t && t->numel ? t->data : nullptr; }

// c (m, n) = a b, or c + a b, of matrices of `operands`.
void multiply_into(const Layer& l, const RbTensor& out, void* c, Matrix a, Matrix b, int64_t m,
                   int64_t n, int64_t k, bool adds) {
  if (m == 0 || n == 0) return;
  Product p;
  p.op = l.a.op_name();
  p.out = &out;
  p.operands = l.dtype;
  p.results = out.dtype_id;
  p.m = m, p.n = n, p.k = k;
  p.a = a, p.b = b;
  p.c = {c, n, 1};
  // A dimension of size 1 has no stride.
  if (m == 1) p.a.row = p.c.row = 0;
  if (n == 1) p.b.column = p.c.column = 0;
  if (adds) p.added = p.c;
  p.batch = layout_of(p.op, {&scalar_view(out).tensor()});
  multiply(p);
}

// Arguments: mode, gates, h0, c0, weight_hh, bias_hh, batch_sizes, reverse.
// Results: output, hn, cn, cells, saved.
void recurrent_layer_kernel(const rb::Args& a) {
  const char* op = a.op_name();
  const RbTensor &x = a.tensor(1), &h0 = a.tensor(2), &weight = a.tensor(4), &hn = a.ret(1),
                 &cn = a.ret(2);
  const Layer l(a, h0, x.shape[0], 6);
  copy(op, hn, h0);
  Temporary wide;  // the cells of 16-bit layers, in float32
  const RbTensor* cell = &cn;
  if (l.mode == 'l') {
    if (l.sums != l.dtype) {
      wide = l.make(h0, l.sums, l.batch, l.hidden);
      cell = &wide.tensor();
    }
    copy(op, *cell, a.tensor(3));
  }
  const Temporary product = l.make(h0, l.sums, l.batch, l.gates);
  void *gates = x.data, *sums = product.data(), *bias = data_of(a.optional_tensor(5)), *h = hn.data,
       *c = cell->data, *output = a.ret(0).data, *cells = a.ret(3).data, *saved = a.ret(4).data;
  for (int64_t s = 0; s < l.steps.count(); ++s) {
    RecurrentStep step = l.step(l.steps.at(s));
    multiply_into(l, product.tensor(), sums, {h, l.hidden, 1}, {weight.data, 1, l.hidden},
                  step.rows, l.gates, l.hidden, false);
    void* arguments[] = {&gates, &sums, &bias, &h, &c, &output, &cells, &saved, &step};
    l.launch_step(h0, "RB_RECURRENT", step.rows, arguments);
  }
  if (cell != &cn) copy(op, cn, *cell);
}

// A gradient as the state that is added to, in the dtype of sums.
void begin(const char* op, const RbTensor& state, const RbTensor* grad) {
  if (grad && grad->numel) return copy(op, state, *grad);
  fill(op, state, rb::int_value(0), rb::int_value(0));
}

// Arguments: mode, grads of output, hn, cn, cells and saved, output, cells, saved, h0, c0,
// weight_hh, has_bias, batch_sizes, reverse. Results: dgates, dh0, dc0, dweight, dbias.
void recurrent_layer_backward_kernel(const rb::Args& a) {
  const char* op = a.op_name();
  const RbTensor &h0 = a.tensor(9), &weight = a.tensor(11), &dx = a.ret(0);
  const Layer l(a, h0, a.tensor(6).shape[0], 13);
  const bool lstm = l.mode == 'l';
  const Temporary dh = l.make(h0, l.sums, l.batch, l.hidden),
                  dc = l.make(h0, l.sums, lstm ? l.batch : 0, l.hidden),
                  before = l.make(h0, l.dtype, l.total, l.hidden),
                  apart = l.make(h0, l.dtype, l.mode == 'g' ? l.total : 0, l.gates);
  const RbTensor& dproduct = l.mode == 'g' ? apart.tensor() : dx;
  begin(op, dh.tensor(), a.optional_tensor(2));
  if (lstm) begin(op, dc.tensor(), a.optional_tensor(3));
  void *to = dx.data, *products = dproduct.data, *grad_h = dh.data(), *grad_c = dc.data(),
       *h = before.data(), *grad_output = data_of(a.optional_tensor(1)),
       *grad_cells = data_of(a.optional_tensor(4)), *grad_saved = data_of(a.optional_tensor(5)),
       *output = a.tensor(6).data, *cells = a.tensor(7).data, *saved = a.tensor(8).data,
       *first_h = h0.data, *first_c = data_of(a.optional_tensor(10));
  for (int64_t s = l.steps.count() - 1; s >= 0; --s) {
    const int64_t t = l.steps.at(s), previous = l.steps.before(t);
    RecurrentStep step = l.step(t);
    int64_t known = previous < 0 ? 0 : std::min(step.rows, l.steps.sizes[previous]),
            earlier = previous < 0 ? 0 : l.steps.offsets[previous];
    void* arguments[] = {&to,         &products,   &grad_h, &grad_c, &h,     &grad_output,
                         &grad_cells, &grad_saved, &output, &cells,  &saved, &first_h,
                         &first_c,    &step,       &known,  &earlier};
    l.launch_step(h0, "RB_RECURRENT_BACKWARD", step.rows, arguments);
    multiply_into(l, dh.tensor(), grad_h, {row_of(dproduct, step.first), l.gates, 1},
                  {weight.data, l.hidden, 1}, step.rows, l.hidden, l.gates, true);
  }
  copy(op, a.ret(1), dh.tensor());
  if (lstm) copy(op, a.ret(2), dc.tensor());
  multiply_into(l, a.ret(3), a.ret(3).data, {products, 1, l.gates}, {h, l.hidden, 1}, l.gates,
                l.hidden, l.total, false);
  if (!a.boolean(12) || l.gates == 0) return;
  const bool rows[] = {true, false};
  reduce(op, sum_fold(l.dtype), &a.ret(4), nullptr, dproduct, rows);
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
