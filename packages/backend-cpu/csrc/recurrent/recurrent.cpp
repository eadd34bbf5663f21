// Layers of recurrent networks: all steps of one direction in one call. A row of the batch never
// meets another one before the weights' gradient, so threads share out rows and need not wait for
// each other at every step; weight_hh is packed once for all steps.
#include <cstring>

#include "common/kernels.h"
#include "common/level.h"
#include "common/operands.h"
#include "matmul/gemm.h"
#include "matmul/tiles.h"
#include "rabbet/packed_steps.hpp"
#include "recurrent/recurrent_rows.h"

namespace rbcpu {

namespace {

constexpr int64_t kRows = 16;    // of the batch that share a pass over the packed weights
constexpr double kTask = 1.5e6;  // flops that are worth a task

enum class Mode { kLstm, kGru, kTanh, kRelu };

Mode mode_of(const char* text) {
  if (!std::strcmp(text, "lstm")) return Mode::kLstm;
  if (!std::strcmp(text, "gru")) return Mode::kGru;
  return std::strcmp(text, "tanh") ? Mode::kRelu : Mode::kTanh;  // core has checked the name
}

template <class T>
const Cell<T>& cell_of(Mode mode) {
  auto pick = [&](const auto& cells) -> const auto& {
    return mode == Mode::kLstm   ? cells.lstm
           : mode == Mode::kGru  ? cells.gru
           : mode == Mode::kTanh ? cells.tanh
                                 : cells.relu;
  };
  if constexpr (std::is_same_v<T, float>) {
    return pick(RB_PICK_LEVEL(recurrent_table).f32);
  } else {
    return pick(RB_PICK_LEVEL(recurrent_table).f64);
  }
}

// What both directions need; pointers are to dense memory of T.
template <class T>
struct Layer {
  Mode mode;
  int64_t batch, hidden, gates, saved;  // gates, saved: elements per row
  rb::PackedSteps steps;
  const Cell<T>& cell;

  Layer(const char* name, int64_t total, const View& h0, const rb::Span<int64_t>& sizes,
        bool reverse)
      : mode(mode_of(name)),
        batch(h0.shape[0]),
        hidden(h0.shape[1]),
        gates(hidden * (mode == Mode::kLstm  ? 4
                        : mode == Mode::kGru ? 3
                                             : 1)),
        saved(mode == Mode::kLstm || mode == Mode::kGru ? 4 * hidden : 0),
        steps(sizes.begin(), sizes.len, total, batch, reverse),
        cell(cell_of<T>(mode)) {}
  bool has_cells() const { return mode == Mode::kLstm; }
  // Rows of the batch at a time: few tasks, since each reads all weights at every step.
  int64_t grain() const {
    const double flops = 2.0 * static_cast<double>(gates) * static_cast<double>(hidden) *
                         static_cast<double>(steps.count());
    const int64_t threads = rb::host->num_threads();
    const int64_t share = ((batch + threads - 1) / threads + kRows - 1) / kRows * kRows;
    return std::max<int64_t>(share, static_cast<int64_t>(kTask / (flops + 1)));
  }
};

template <class T>
const T* at(const View& v) {
  return reinterpret_cast<const T*>(v.data);
}
template <class T>
T* into(const View& v) {
  return reinterpret_cast<T*>(v.data);
}
template <class T>
void copy_row(T* to, const T* from, int64_t n) {
  std::memcpy(to, from, n * sizeof(T));
}

// ---- forward

template <class T>
struct Forward : Layer<T> {
  const T *x, *h0, *c0, *bias;
  T *output, *hn, *cn, *cells, *saved_rows;

  using Layer<T>::Layer;

  void run(const T* packed, int64_t first, int64_t last) const {
    const int64_t rows = last - first, n = this->hidden, gates = this->gates;
    const int64_t ld = tile_padded(gates);
    const rb::Scratch<T> h(rows * n), c(rows * n), product(rows * ld);
    copy_row(h.data(), h0 + first * n, rows * n);
    if (this->has_cells()) copy_row(c.data(), c0 + first * n, rows * n);
    for (int64_t s = 0; s < this->steps.count(); ++s) {
      const int64_t t = this->steps.at(s);
      const int64_t here = std::min(last, this->steps.sizes[t]) - first;
      if (here <= 0) continue;
      tile_multiply(TileProduct<T>{here, gates, n, h.data(), n, 1, packed, n, gates, product.data(),
                                   ld, false});
      for (int64_t i = 0; i < here; ++i) {
        const int64_t row = this->steps.offsets[t] + first + i;
        T *sum = product.data() + i * ld, *state = h.data() + i * n, *cell = c.data() + i * n;
        for (int64_t j = 0; bias && j < gates; ++j) sum[j] += bias[j];
        this->cell.forward({sum, x + row * gates, state, cell, saved_rows + row * this->saved}, n);
        copy_row(output + row * n, state, n);
        if (this->has_cells()) copy_row(cells + row * n, cell, n);
      }
    }
    copy_row(hn + first * n, h.data(), rows * n);
    if (this->has_cells()) copy_row(cn + first * n, c.data(), rows * n);
  }
};

// Arguments: mode, gates, h0, c0, weight_hh, bias_hh, batch_sizes, reverse.
// Results: output, hn, cn, cells, saved.
template <class T>
void forward(const rb::Args& args) {
  const Operand x(view_of(args.tensor(1))), h0(view_of(args.tensor(2))),
      weight(view_of(args.tensor(4)));
  std::unique_ptr<Operand> c0, bias;
  if (args.has(3)) c0 = std::make_unique<Operand>(view_of(args.tensor(3)));
  if (args.has(5)) bias = std::make_unique<Operand>(view_of(args.tensor(5)));
  const Result output(args.ret(0)), hn(args.ret(1)), cn(args.ret(2)), cells(args.ret(3)),
      saved(args.ret(4));
  Forward<T> f(args.str(0), x.view.shape[0], h0.view, args.ints(6), args.boolean(7));
  f.x = at<T>(x.view);
  f.h0 = at<T>(h0.view);
  f.c0 = c0 ? at<T>(c0->view) : nullptr;
  f.bias = bias ? at<T>(bias->view) : nullptr;
  f.output = into<T>(output.view);
  f.hn = into<T>(hn.view);
  f.cn = into<T>(cn.view);
  f.cells = into<T>(cells.view);
  f.saved_rows = into<T>(saved.view);
  const rb::Scratch<T> packed(f.hidden * tile_padded(f.gates));
  tile_pack(at<T>(weight.view), 1, f.hidden, f.hidden, f.gates, packed.data());
  rb::parallel_for(f.batch, f.grain(),
                   [&](int64_t first, int64_t last) { f.run(packed.data(), first, last); });
  for (const Result* r : {&output, &hn, &cn, &cells, &saved}) r->finish();
}

// ---- backward

template <class T>
struct Backward : Layer<T> {
  const T *grad_output, *grad_hn, *grad_cn, *grad_cells, *grad_saved;  // each may be null
  const T *output, *cells, *saved_rows, *h0, *c0;
  T *dx, *dproduct, *dh0, *dc0, *h_before;  // dproduct: dx itself except in a GRU

  using Layer<T>::Layer;

  static void begin(T* state, const T* grad, int64_t rows, int64_t n, int64_t ld) {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < ld; ++j) state[i * ld + j] = grad && j < n ? grad[i * n + j] : T(0);
    }
  }
  static void add(T* to, const T* from, int64_t n) {
    for (int64_t j = 0; j < n; ++j) to[j] += from[j];
  }

  void run(const T* packed, int64_t first, int64_t last) const {
    const int64_t rows = last - first, n = this->hidden, gates = this->gates;
    const int64_t ld = tile_padded(n);
    const rb::Scratch<T> dh(rows * ld), dc(rows * n);
    begin(dh.data(), grad_hn ? grad_hn + first * n : nullptr, rows, n, ld);
    begin(dc.data(), grad_cn ? grad_cn + first * n : nullptr, rows, n, n);
    for (int64_t s = this->steps.count() - 1; s >= 0; --s) {
      const int64_t t = this->steps.at(s);
      const int64_t here = std::min(last, this->steps.sizes[t]) - first;
      if (here <= 0) continue;
      const int64_t top = this->steps.offsets[t] + first;
      for (int64_t i = 0; i < here; ++i) {
        const int64_t row = top + i, before = this->steps.row_before(t, first + i);
        T *grad_h = dh.data() + i * ld, *grad_c = dc.data() + i * n;
        const T* h = before < 0 ? h0 + (first + i) * n : output + before * n;
        const T* c = !c0 ? nullptr : before < 0 ? c0 + (first + i) * n : cells + before * n;
        if (grad_output) add(grad_h, grad_output + row * n, n);
        if (grad_cells) add(grad_c, grad_cells + row * n, n);
        copy_row(h_before + row * n, h, n);
        this->cell.backward(
            {output + row * n, h, cells + row * n, c, saved_rows + row * this->saved,
             grad_saved ? grad_saved + row * this->saved : nullptr, grad_h, grad_c,
             dx + row * gates, dproduct + row * gates},
            n);
      }
      tile_multiply(TileProduct<T>{here, n, gates, dproduct + top * gates, gates, 1, packed, gates,
                                   n, dh.data(), ld, true});
    }
    for (int64_t i = 0; i < rows; ++i) copy_row(dh0 + (first + i) * n, dh.data() + i * ld, n);
    if (this->has_cells()) copy_row(dc0 + first * n, dc.data(), rows * n);
  }

  /// Sums over all rows, in their order.
  void bias_gradient(T* dbias, int64_t total) const {
    rb::parallel_for(this->gates, 64, [&](int64_t begin, int64_t end) {
      for (int64_t j = begin; j < end; ++j) dbias[j] = T(0);
      for (int64_t i = 0; i < total; ++i) {
        const T* row = dproduct + i * this->gates;
        for (int64_t j = begin; j < end; ++j) dbias[j] += row[j];
      }
    });
  }
};

// Arguments: mode, grads of output, hn, cn, cells and saved, output, cells, saved, h0, c0,
// weight_hh, has_bias, batch_sizes, reverse. Results: dgates, dh0, dc0, dweight, dbias.
template <class T>
void backward(const rb::Args& args) {
  std::unique_ptr<Operand> given[11];
  const T* data[11] = {};
  constexpr int kGrads = 5;
  for (int i = 1; i < 11; ++i) {
    // Gradients of results that a mode does not have are empty.
    if (!args.has(i) || (i <= kGrads && args.tensor(i).numel == 0)) continue;
    given[i] = std::make_unique<Operand>(view_of(args.tensor(i)));
    data[i] = at<T>(given[i]->view);
  }
  const Operand weight(view_of(args.tensor(11)));
  const Result dx(args.ret(0)), dh0(args.ret(1)), dc0(args.ret(2)), dweight(args.ret(3)),
      dbias(args.ret(4));
  const int64_t total = given[6]->view.shape[0];
  Backward<T> b(args.str(0), total, given[9]->view, args.ints(13), args.boolean(14));
  b.grad_output = data[1];
  b.grad_hn = data[2];
  b.grad_cn = data[3];
  b.grad_cells = data[4];
  b.grad_saved = data[5];
  b.output = data[6];
  b.cells = data[7];
  b.saved_rows = data[8];
  b.h0 = data[9];
  b.c0 = data[10];
  b.dx = into<T>(dx.view);
  b.dh0 = into<T>(dh0.view);
  b.dc0 = into<T>(dc0.view);
  const bool apart = b.mode == Mode::kGru;
  const rb::Scratch<T> product(apart ? total * b.gates : 0), before(total * b.hidden),
      packed(b.gates * tile_padded(b.hidden));
  b.dproduct = apart ? product.data() : b.dx;
  b.h_before = before.data();
  tile_pack(at<T>(weight.view), b.hidden, 1, b.gates, b.hidden, packed.data());
  rb::parallel_for(b.batch, b.grain(),
                   [&](int64_t first, int64_t last) { b.run(packed.data(), first, last); });
  Gemm<T> g;
  g.k = total;
  g.a = b.dproduct;
  g.as_m = 1;
  g.as_k = b.gates;
  g.b = before.data();
  g.bs_k = b.hidden;
  g.bs_n = 1;
  g.c = into<T>(dweight.view);
  g.ldc = b.hidden;
  g.mode = kGemmStore;
  g.bias = nullptr;
  gemm_batch<T>(1, b.gates, b.hidden, total, [&](int64_t) { return g; });
  if (args.boolean(12)) b.bias_gradient(into<T>(dbias.view), total);
  for (const Result* r : {&dx, &dh0, &dc0, &dweight, &dbias}) r->finish();
}

void recurrent_layer_kernel(const rb::Args& args) {
  args.ret().dtype_id == RB_F64 ? forward<double>(args) : forward<float>(args);
}
void recurrent_layer_backward_kernel(const rb::Args& args) {
  args.ret().dtype_id == RB_F64 ? backward<double>(args) : backward<float>(args);
}

const rb::KernelSpec kKernels[] = {
    {"recurrent_layer", rb::wrap<recurrent_layer_kernel>, RB_K_CONTIGUOUS, kMaskFloat},
    {"recurrent_layer_backward", rb::wrap<recurrent_layer_backward_kernel>, RB_K_CONTIGUOUS,
     kMaskFloat},
};

}  // namespace

int32_t add_recurrent(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcpu
