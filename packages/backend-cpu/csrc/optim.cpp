// fused_adam and fused_sgd on lists of tensors, in place.
#include <cmath>
#include <memory>

#include "kernels.h"
#include "level.h"
#include "optim_rows.h"
#include "view.h"

namespace rbcpu {
namespace {

constexpr int64_t kOptimGrain = 16384;

bool half(int dtype) { return dtype == RB_F16 || dtype == RB_BF16; }

// One tensor of a step as dense memory of the computed type in the element order of the parameter.
class Slot {
 public:
  Slot() = default;
  Slot(const RbTensor& t, bool direct, bool written)
      : tensor_(&t), written_(written && !direct), data_(t.data) {
    if (direct) return;
    const View v = view_of(t);
    const int dtype = half(t.dtype_id) ? static_cast<int>(RB_F32) : t.dtype_id;
    copy_ = std::make_unique<rb::Scratch<char>>(t.numel * kItemSize[dtype]);
    data_ = copy_->data();
    copy_view(dense_view(data_, dtype, v), v);
  }
  void* data() const { return data_; }
  void finish() const {
    if (!written_) return;
    const View v = view_of(*tensor_);
    copy_view(v, dense_view(data_, half(v.dtype) ? static_cast<int>(RB_F32) : v.dtype, v));
  }

 private:
  const RbTensor* tensor_ = nullptr;
  bool written_ = false;
  void* data_ = nullptr;
  std::unique_ptr<rb::Scratch<char>> copy_;
};

bool same_strides(const RbTensor& a, const RbTensor& b) {
  for (int d = 0; d < a.ndim; ++d) {
    if (a.shape[d] != 1 && a.strides[d] != b.strides[d]) return false;
  }
  return true;
}
// Strides that fill the memory without gaps, in any order of dimensions.
bool gapless(const RbTensor& t) {
  if (t.flags & RB_T_CONTIGUOUS) return true;
  int64_t expected = 1;
  for (int round = 0; round < t.ndim; ++round) {
    if (expected == t.numel) break;
    bool found = false;
    for (int d = 0; d < t.ndim && !found; ++d) {
      if (t.shape[d] != 1 && t.strides[d] == expected) {
        expected *= t.shape[d];
        found = true;
      }
    }
    if (!found) return false;
  }
  return expected == t.numel;
}

// Checks the lists of one call and runs step(i, slots) for each parameter; lists[0] are the
// parameters, lists[1] the gradients (the only ones that are not written). An empty list gives null
// slots.
template <int N, class Step>
void for_tensors(const rb::Args& a, const char* const (&names)[N], const Step& step) {
  rb::Span<RbTensor*> lists[N];
  for (int k = 0; k < N; ++k) {
    lists[k] = a.tensors(k);
    const bool may_be_empty = k >= 2;
    if (lists[k].len != lists[0].len && !(may_be_empty && lists[k].len == 0)) {
      rb::fail(RB_E_ARG, "%s: `%s` has %u tensors, `%s` has %u", a.op_name(), names[0],
               lists[0].len, names[k], lists[k].len);
    }
    for (uint32_t i = 0; i < lists[k].len; ++i) {
      const RbTensor *t = lists[k][i], *p = lists[0][i];
      bool ok = t && t->ndim == p->ndim && t->dtype_id == p->dtype_id;
      for (int d = 0; ok && d < p->ndim; ++d) ok = t->shape[d] == p->shape[d];
      if (!ok)
        rb::fail(RB_E_ARG, "%s: `%s`[%u] differs from the parameter in shape or dtype", a.op_name(),
                 names[k], i);
      if (!(kMaskFloat >> p->dtype_id & 1))
        rb::fail(RB_E_TYPE, "%s: expected floating parameters, got %s", a.op_name(),
                 kDTypeNames[p->dtype_id]);
    }
  }
  for (uint32_t i = 0; i < lists[0].len; ++i) {
    const RbTensor& p = *lists[0][i];
    bool direct = !half(p.dtype_id) && gapless(p);
    for (int k = 1; k < N; ++k)
      direct = direct && (lists[k].len == 0 || same_strides(p, *lists[k][i]));
    Slot slots[N];
    for (int k = 0; k < N; ++k) {
      if (lists[k].len) slots[k] = Slot(*lists[k][i], direct, k != 1);
    }
    step(p, slots);
    for (const Slot& slot : slots) slot.finish();
  }
}

void adam_kernel(const rb::Args& a) {
  AdamStep s;
  s.lr = a.real(5);
  s.beta1 = a.real(6);
  s.beta2 = a.real(7);
  s.eps = a.real(8);
  s.weight_decay = a.real(9);
  s.decoupled = a.boolean(10);
  s.maximize = a.boolean(11);
  s.step_size = s.lr / a.real(12);
  s.root_correction2 = std::sqrt(a.real(13));
  static const char* const names[] = {"params", "grads", "exp_avgs", "exp_avg_sqs",
                                      "max_exp_avg_sqs"};
  const OptimTable& table = RB_PICK_LEVEL(optim_table);
  for_tensors(a, names, [&](const RbTensor& p, const Slot* slots) {
    if (!slots[2].data() && p.numel) rb::fail(RB_E_ARG, "fused_adam: `exp_avgs` is empty");
    if (!slots[3].data() && p.numel) rb::fail(RB_E_ARG, "fused_adam: `exp_avg_sqs` is empty");
    auto run = [&](auto zero, auto fn) {
      using T = decltype(zero);
      const AdamRow<T> row = {static_cast<T*>(slots[0].data()),
                              static_cast<const T*>(slots[1].data()),
                              static_cast<T*>(slots[2].data()), static_cast<T*>(slots[3].data()),
                              static_cast<T*>(slots[4].data())};
      rb::parallel_for(p.numel, kOptimGrain,
                       [&](int64_t begin, int64_t end) { fn(row, s, begin, end); });
    };
    if (p.dtype_id == RB_F64) {
      run(0.0, table.adam_f64);
    } else {
      run(0.0f, table.adam_f32);
    }
  });
}

void sgd_kernel(const rb::Args& a) {
  SgdStep s;
  s.lr = a.real(3);
  s.momentum = a.real(4);
  s.dampening = a.real(5);
  s.weight_decay = a.real(6);
  s.nesterov = a.boolean(7);
  s.maximize = a.boolean(8);
  s.first_step = a.boolean(9);
  static const char* const names[] = {"params", "grads", "momentum_buffers"};
  const OptimTable& table = RB_PICK_LEVEL(optim_table);
  for_tensors(a, names, [&](const RbTensor& p, const Slot* slots) {
    auto run = [&](auto zero, auto fn) {
      using T = decltype(zero);
      const SgdRow<T> row = {static_cast<T*>(slots[0].data()),
                             static_cast<const T*>(slots[1].data()),
                             static_cast<T*>(slots[2].data())};
      rb::parallel_for(p.numel, kOptimGrain,
                       [&](int64_t begin, int64_t end) { fn(row, s, begin, end); });
    };
    if (p.dtype_id == RB_F64) {
      run(0.0, table.sgd_f64);
    } else {
      run(0.0f, table.sgd_f32);
    }
  });
}

const rb::KernelSpec kKernels[] = {
    {"fused_adam", rb::wrap<adam_kernel>},
    {"fused_sgd", rb::wrap<sgd_kernel>},
};

}  // namespace

int32_t add_optim(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcpu
