// Optimizer steps, norms, scaling and clamping on lists of tensors: a kernel per tensor.
#include <algorithm>
#include <cmath>

#include "view.h"

namespace rbcl {
namespace {

// A tensor that is changed in place, as row-major memory: its own, or a copy that goes back at the
// end.
class Changed {
 public:
  Changed(Device& device, const RbTensor& t)
      : device_(device), view_(view_of(t)), dense_(device, t, t.dtype_id) {}
  char* data() const { return dense_.data(); }
  void finish() const {
    if (data() != view_.data) copy_view(device_, view_, dense_view(data(), view_.dtype, view_));
  }

 private:
  Device& device_;
  View view_;
  DenseInput dense_;
};

// Lists 0 (parameters), 1 (gradients), 2 ... (states) of a step, checked.
class Lists {
 public:
  Lists(const rb::Args& a, const char* const* names, int count, unsigned required)
      : count_(count), params_(a.tensors(0)) {
    for (int k = 0; k < count; ++k) {
      lists_[k] = a.tensors(k);
      if (lists_[k].len != params_.len && (lists_[k].len != 0 || required >> k & 1)) {
        rb::fail(RB_E_ARG, "%s: `%s` has %u tensors, `%s` has %u", a.op_name(), names[0],
                 params_.len, names[k], lists_[k].len);
      }
      for (uint32_t i = 0; i < lists_[k].len; ++i) check(a, names[k], i, lists_[k][i]);
    }
  }

  /// f(launch) sets what follows the tensors' pointers.
  template <class F>
  void step(const char* kernel, const F& f) const {
    for (uint32_t i = 0; i < params_.len; ++i) {
      const RbTensor& p = *params_[i];
      Device& device = device_of(p);
      const DenseInput grad(device, *lists_[1][i], p.dtype_id);
      std::vector<std::unique_ptr<Changed>> changed(count_);
      for (int k = 0; k < count_; ++k) {
        if (k != 1 && lists_[k].len) changed[k] = std::make_unique<Changed>(device, *lists_[k][i]);
      }
      {
        Launch launch(device, p.dtype_id, kernel);
        for (int k = 0; k < count_; ++k)
          launch.pointer(k == 1 ? grad.data() : changed[changed[k] ? k : 0]->data());
        f(launch, p.dtype_id);
        launch.value(p.numel).run(p.numel);
      }
      for (const auto& c : changed) {
        if (c) c->finish();
      }
    }
  }
  bool given(int k) const { return lists_[k].len != 0; }

 private:
  void check(const rb::Args& a, const char* name, uint32_t i, const RbTensor* t) const {
    const RbTensor& p = *params_[i];
    if (!(kFloat >> p.dtype_id & 1)) {
      rb::fail(RB_E_TYPE, "%s on 'opencl' supports float32 and float64; got %s", a.op_name(),
               dtype_name(p.dtype_id));
    }
    bool same = t && t->ndim == p.ndim && t->dtype_id == p.dtype_id;
    for (int d = 0; same && d < p.ndim; ++d) same = t->shape[d] == p.shape[d];
    if (!same) {
      rb::fail(RB_E_ARG, "%s: `%s`[%u] differs from the parameter in shape or dtype", a.op_name(),
               name, i);
    }
  }

  int count_;
  rb::Span<RbTensor*> params_, lists_[5];
};

void numbers(Launch& launch, int dtype, std::initializer_list<double> values) {
  for (double v : values) launch.number(dtype, v, 0);
}
double sign_of(bool maximize) { return maximize ? -1.0 : 1.0; }
// Weight decay is part of the gradient, or shrinks the parameter.
struct Decay {
  double part, shrink;
  Decay(double weight_decay, double lr, bool decoupled)
      : part(decoupled ? 0 : weight_decay), shrink(decoupled ? 1 - lr * weight_decay : 1) {}
};

constexpr unsigned kGrads = 2, kState1 = 4, kState2 = 8;

void adam_kernel(const rb::Args& a) {
  static const char* const names[] = {"params", "grads", "exp_avgs", "exp_avg_sqs",
                                      "max_exp_avg_sqs"};
  const Lists lists(a, names, 5, kGrads | kState1 | kState2);
  const double lr = a.real(5), beta1 = a.real(6), beta2 = a.real(7);
  const Decay decay(a.real(9), lr, a.boolean(10));
  lists.step("adam", [&](Launch& launch, int dtype) {
    launch.value(static_cast<int>(lists.given(4)));
    numbers(launch, dtype,
            {sign_of(a.boolean(11)), decay.part, decay.shrink, 1 - beta1, beta2, 1 - beta2,
             1 / std::sqrt(a.real(13)), a.real(8), lr / a.real(12)});
  });
}

void sgd_kernel(const rb::Args& a) {
  static const char* const names[] = {"params", "grads", "momentum_buffers"};
  const Lists lists(a, names, 3, kGrads);
  const bool nesterov = a.boolean(7);
  lists.step("sgd", [&](Launch& launch, int dtype) {
    launch.value(!lists.given(2) ? 0 : a.boolean(9) ? 1 : 2);
    numbers(launch, dtype,
            {sign_of(a.boolean(8)), a.real(6), a.real(3), a.real(4), 1 - a.real(5),
             nesterov ? 1.0 : 0.0, nesterov ? a.real(4) : 1.0});
  });
}

void rmsprop_kernel(const rb::Args& a) {
  static const char* const names[] = {"params", "grads", "square_avgs", "momentum_buffers",
                                      "grad_avgs"};
  const Lists lists(a, names, 5, kGrads | kState1);
  lists.step("rmsprop", [&](Launch& launch, int dtype) {
    launch.value(static_cast<int>(lists.given(3))).value(static_cast<int>(lists.given(4)));
    numbers(launch, dtype,
            {sign_of(a.boolean(10)), a.real(8), a.real(5), a.real(6), 1 - a.real(6), a.real(7),
             a.real(9)});
  });
}

void adagrad_kernel(const rb::Args& a) {
  static const char* const names[] = {"params", "grads", "state_sums"};
  const Lists lists(a, names, 3, kGrads | kState1);
  lists.step("adagrad", [&](Launch& launch, int dtype) {
    numbers(launch, dtype, {sign_of(a.boolean(6)), a.real(5), a.real(3), a.real(4)});
  });
}

void adamax_kernel(const rb::Args& a) {
  static const char* const names[] = {"params", "grads", "exp_avgs", "exp_infs"};
  const Lists lists(a, names, 4, kGrads | kState1 | kState2);
  lists.step("adamax", [&](Launch& launch, int dtype) {
    numbers(launch, dtype,
            {sign_of(a.boolean(9)), a.real(8), 1 - a.real(5), a.real(6), a.real(7),
             a.real(4) / a.real(10)});
  });
}

void nadam_kernel(const rb::Args& a) {
  static const char* const names[] = {"params", "grads", "exp_avgs", "exp_avg_sqs"};
  const Lists lists(a, names, 4, kGrads | kState1 | kState2);
  const double lr = a.real(4), beta2 = a.real(6);
  const Decay decay(a.real(8), lr, a.boolean(9));
  lists.step("nadam", [&](Launch& launch, int dtype) {
    numbers(launch, dtype,
            {sign_of(a.boolean(10)), decay.part, decay.shrink, 1 - a.real(5), beta2, 1 - beta2,
             1 / std::sqrt(a.real(13)), a.real(7), lr * a.real(11), lr * a.real(12)});
  });
}

void radam_kernel(const rb::Args& a) {
  static const char* const names[] = {"params", "grads", "exp_avgs", "exp_avg_sqs"};
  const Lists lists(a, names, 4, kGrads | kState1 | kState2);
  const double lr = a.real(4), beta2 = a.real(6), rectification = a.real(12);
  const Decay decay(a.real(8), lr, a.boolean(9));
  lists.step("radam", [&](Launch& launch, int dtype) {
    launch.value(static_cast<int>(rectification != 0));
    numbers(launch, dtype,
            {sign_of(a.boolean(10)), decay.part, decay.shrink, 1 - a.real(5), beta2, 1 - beta2,
             a.real(7), lr / a.real(11) * (rectification != 0 ? rectification : 1)});
  });
}

void check_floating(const rb::Args& a, const RbTensor& t) {
  if (!(kFloat >> t.dtype_id & 1)) {
    rb::fail(RB_E_TYPE, "%s on 'opencl' supports float32 and float64; got %s", a.op_name(),
             dtype_name(t.dtype_id));
  }
}

void change_all(const rb::Args& a, const char* kernel, std::initializer_list<double> values) {
  for (const RbTensor* t : a.tensors(0)) {
    check_floating(a, *t);
    Device& device = device_of(*t);
    const Changed x(device, *t);
    {
      Launch launch(device, t->dtype_id, kernel);
      launch.pointer(x.data());
      numbers(launch, t->dtype_id, values);
      launch.value(t->numel).run(t->numel);
    }
    x.finish();
  }
}
void scale_kernel(const rb::Args& a) {
  if (a.real(1) != 1) change_all(a, "scale_all", {a.real(1)});
}
void clamp_kernel(const rb::Args& a) { change_all(a, "clamp_all", {a.real(1), a.real(2)}); }

void norm_kernel(const rb::Args& a) {
  const double ord = a.real(1);
  if (ord != 1 && ord != 2 && ord != HUGE_VAL)
    rb::fail(RB_E_NOTIMPL, "%s: the order of the norm must be 1, 2 or inf, got %g", a.op_name(),
             ord);
  const int order = ord == HUGE_VAL ? 0 : static_cast<int>(ord);
  const RbTensor& out = a.ret();
  const auto tensors = a.tensors(0);
  for (uint32_t i = 0; i < tensors.len; ++i) {
    const RbTensor& t = *tensors[i];
    check_floating(a, t);
    Device& device = device_of(t);
    const DenseInput x(device, t, t.dtype_id);
    const int64_t segments = std::clamp<int64_t>(t.numel / 1024, 1, 1024);
    const int64_t segment = (t.numel + segments - 1) / segments;
    const Temp parts(device, RB_F64, segments);
    Launch(device, t.dtype_id, "norm_parts")
        .pointer(parts.data())
        .pointer(x.data())
        .value(order)
        .value(segment)
        .value(segments)
        .value(t.numel)
        .run(segments);
    Launch(device, t.dtype_id, "join_norm")
        .pointer(static_cast<double*>(out.data) + i * out.strides[0])
        .pointer(parts.data())
        .value(order)
        .value(segments)
        .run(1);
  }
}

const rb::KernelSpec kKernels[] = {
    {"fused_adam", rb::wrap<adam_kernel>},       {"fused_sgd", rb::wrap<sgd_kernel>},
    {"fused_rmsprop", rb::wrap<rmsprop_kernel>}, {"fused_adagrad", rb::wrap<adagrad_kernel>},
    {"fused_adamax", rb::wrap<adamax_kernel>},   {"fused_nadam", rb::wrap<nadam_kernel>},
    {"fused_radam", rb::wrap<radam_kernel>},     {"foreach_scale", rb::wrap<scale_kernel>},
    {"foreach_clamp", rb::wrap<clamp_kernel>},
};
// Its result is float64.
const rb::KernelSpec kNorm[] = {{"foreach_norm", rb::wrap<norm_kernel>, 0, 1ull << RB_F64}};

}  // namespace

int32_t add_optim(const RbHost* host, RbTxn* txn, uint64_t dtypes) {
  // Lists have no compute dtype that core could hold against a mask: the kernels look themselves.
  if (int32_t code = rb::add_kernels(host, txn, kBackendName, kKernels)) return code;
  return dtypes >> RB_F64 & 1 ? rb::add_kernels(host, txn, kBackendName, kNorm) : RB_OK;
}

}  // namespace rbcl
