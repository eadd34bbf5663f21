// Optimizer steps, norms, scaling and clamping on lists of tensors. All tensors of a call are one
// parallel region: what is split is the elements of the list.
#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "common/kernels.h"
#include "common/level.h"
#include "common/view.h"
#include "optim/optim_rows.h"

namespace rbcpu {
namespace {

constexpr int64_t kOptimGrain = 16384;
constexpr int64_t kBlock = 512;        // elements that are converted at a time
constexpr int64_t kNormBlock = 16384;  // elements whose partial norms are joined in order
constexpr int kMaxLists = 2 + kOptimStates;

bool half(int dtype) { return dtype == RB_F16 || dtype == RB_BF16; }
int computed_dtype(int dtype) { return half(dtype) ? static_cast<int>(RB_F32) : dtype; }

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

// A tensor without an order that serves: worked on as a row-major copy, which is written back.
class Copied {
 public:
  Copied(const RbTensor& t, bool written)
      : tensor_(&t), written_(written), data_(std::make_unique<rb::Scratch<char>>(bytes(t))) {
    copy_view(view(), view_of(t));
  }
  char* data() const { return data_->data(); }
  void finish() const {
    if (written_) copy_view(view_of(*tensor_), view());
  }

 private:
  static int64_t bytes(const RbTensor& t) { return t.numel * kItemSize[t.dtype_id]; }
  View view() const { return dense_view(data_->data(), tensor_->dtype_id, view_of(*tensor_)); }

  const RbTensor* tensor_;
  bool written_;
  std::unique_ptr<rb::Scratch<char>> data_;
};

// The same elements of every list, one after another in memory.
struct Part {
  char* data[kMaxLists];  // null: an empty list
  uint8_t dtype[kMaxLists];
  bool direct;    // all of the dtype that is computed in
  int64_t begin;  // place in the numbering of all elements
};

// The parameters, gradients and states of one call.
class Lists {
 public:
  Lists(const rb::Args& a, const char* const* names, int count, unsigned required,
        bool written = true)
      : count_(count), written_(written), params_(a.tensors(0)), parts_(params_.len) {
    rb::Span<RbTensor*> lists[kMaxLists];
    for (int k = 0; k < count; ++k) {
      lists[k] = a.tensors(k);
      if (lists[k].len != params_.len && (lists[k].len != 0 || required >> k & 1)) {
        rb::fail(RB_E_ARG, "%s: `%s` has %u tensors, `%s` has %u", a.op_name(), names[0],
                 params_.len, names[k], lists[k].len);
      }
      for (uint32_t i = 0; i < lists[k].len; ++i) check(a, names[k], i, lists[k][i]);
    }
    for (uint32_t i = 0; i < params_.len; ++i) add(lists, i);
  }

  int64_t total() const { return total_; }
  uint32_t size() const { return params_.len; }
  int dtype(uint32_t i) const { return params_[i]->dtype_id; }
  const Part& part(uint32_t i) const { return parts_[i]; }
  int64_t numel(uint32_t i) const { return params_[i]->numel; }

  /// Call body(i, begin, end), elements of part i, for the elements [begin, end) of all.
  template <class Body>
  void for_range(int64_t begin, int64_t end, const Body& body) const {
    const Part* first = parts_.data();
    const Part* past = std::upper_bound(first, first + size(), begin,
                                        [](int64_t at, const Part& p) { return at < p.begin; });
    for (uint32_t i = static_cast<uint32_t>(past - first) - 1; i < size() && begin < end; ++i) {
      const int64_t from = begin - parts_[i].begin;
      const int64_t to = std::min(end - parts_[i].begin, params_[i]->numel);
      if (from < to) body(i, from, to);
      begin = parts_[i].begin + to;
    }
  }
  void finish() const {
    for (const Copied& c : copies_) c.finish();
  }

 private:
  // States of a 16-bit parameter may be float32, which is what they are computed in.
  void check(const rb::Args& a, const char* name, uint32_t i, const RbTensor* t) const {
    const RbTensor& p = *params_[i];
    if (!(kMaskFloat >> p.dtype_id & 1)) {
      rb::fail(RB_E_TYPE, "%s: expected floating parameters, got %s", a.op_name(),
               kDTypeNames[p.dtype_id]);
    }
    bool ok = t && t->ndim == p.ndim;
    for (int d = 0; ok && d < p.ndim; ++d) ok = t->shape[d] == p.shape[d];
    ok = ok && (t->dtype_id == p.dtype_id || t->dtype_id == computed_dtype(p.dtype_id));
    if (!ok) {
      rb::fail(RB_E_ARG, "%s: `%s`[%u] differs from the parameter in shape or dtype", a.op_name(),
               name, i);
    }
  }

  void add(const rb::Span<RbTensor*>* lists, uint32_t i) {
    const RbTensor& p = *params_[i];
    bool ordered = gapless(p);
    for (int k = 1; k < count_ && ordered; ++k)
      ordered = lists[k].len == 0 || same_strides(p, *lists[k][i]);
    Part& part = parts_[i];
    part.direct = true;
    part.begin = total_;
    for (int k = 0; k < count_; ++k) {
      part.data[k] = nullptr;
      part.dtype[k] = 0;
      if (lists[k].len == 0) continue;
      const RbTensor& t = *lists[k][i];
      part.dtype[k] = static_cast<uint8_t>(t.dtype_id);
      part.direct = part.direct && !half(t.dtype_id);
      if (ordered) {
        part.data[k] = static_cast<char*>(t.data);
      } else {
        copies_.emplace_back(t, written_ && k != 1);
        part.data[k] = copies_.back().data();
      }
    }
    total_ += p.numel;
  }

  int count_;
  bool written_;
  rb::Span<RbTensor*> params_;
  std::vector<Part> parts_;
  std::vector<Copied> copies_;
  int64_t total_ = 0;
};

void convert_run(char* to, int to_dtype, const char* from, int from_dtype, int64_t n) {
  LoopArgs args{};
  args.n = n;
  args.out = to;
  args.out_stride = kItemSize[to_dtype];
  args.in[0] = from;
  args.in_stride[0] = kItemSize[from_dtype];
  cast_loop(to_dtype, from_dtype)(&args);
}

template <class T>
OptimRow<T> row_at(const Part& part, int count, int64_t at) {
  OptimRow<T> row = {};
  row.param = reinterpret_cast<T*>(part.data[0]) + at;
  row.grad = reinterpret_cast<const T*>(part.data[1]) + at;
  for (int k = 2; k < count; ++k)
    row.state[k - 2] = part.data[k] ? reinterpret_cast<T*>(part.data[k]) + at : nullptr;
  return row;
}

// A step on elements some of which are 16-bit floats: block by block in float32.
template <class Step>
void half_step(const Part& part, int count, OptimSteps<float>::Fn<Step> fn, const Step& step,
               int64_t begin, int64_t end) {
  float buffers[kMaxLists][kBlock];
  for (int64_t at = begin; at < end; at += kBlock) {
    const int64_t n = std::min(kBlock, end - at);
    OptimRow<float> row = row_at<float>(part, count, at);
    float** const fields[kMaxLists] = {&row.param, const_cast<float**>(&row.grad), &row.state[0],
                                       &row.state[1], &row.state[2]};
    for (int k = 0; k < count; ++k) {
      if (!part.data[k] || !half(part.dtype[k])) continue;
      *fields[k] = buffers[k];
      convert_run(reinterpret_cast<char*>(buffers[k]), RB_F32, part.data[k] + at * 2, part.dtype[k],
                  n);
    }
    fn(row, step, n);
    for (int k = 0; k < count; ++k) {
      if (k == 1 || !part.data[k] || !half(part.dtype[k])) continue;
      convert_run(part.data[k] + at * 2, part.dtype[k], reinterpret_cast<const char*>(buffers[k]),
                  RB_F32, n);
    }
  }
}

// The value of a tensor of one element.
double value_of(const RbTensor& t, int64_t at = 0) {
  double v = 0;
  convert_run(reinterpret_cast<char*>(&v), RB_F64,
              static_cast<const char*>(t.data) + at * kItemSize[t.dtype_id], t.dtype_id, 1);
  return v;
}

// Options of a call: where they are, numbers or tensors ("NAME.tensors", whose tensors begin where
// the numbers that depend on the count of steps stand).
class Options {
 public:
  Options(const rb::Args& a, bool tensors, int lr, int maximize, int first, int factors)
      : args_(a), first_(first), sign_(a.boolean(maximize) ? -1 : 1), lr_(a.real(lr)) {
    if (!tensors) return;
    if (factors) factors_ = &a.tensor(first++);
    if (const RbTensor* lr_now = a.optional_tensor(first)) lr_ = value_of(*lr_now);
    if (const RbTensor* scale = a.optional_tensor(first + 1)) sign_ /= value_of(*scale);
    const RbTensor* found_inf = a.optional_tensor(first + 2);
    skip_ = found_inf && value_of(*found_inf) != 0;
  }
  double lr() const { return lr_; }
  double sign() const { return sign_; }
  bool skip() const { return skip_; }
  /// Whether the factors are those of each tensor.
  bool by_tensor() const { return factors_; }
  /// The k-th number that depends on the count of steps of tensor i.
  double factor(uint32_t i, int k) const {
    if (!factors_) return args_.real(first_ + k);
    return value_of(*factors_, i * factors_->strides[0] + k * factors_->strides[1]);
  }

 private:
  const rb::Args& args_;
  int first_;
  double sign_, lr_;
  const RbTensor* factors_ = nullptr;
  bool skip_ = false;
};

template <class Step>
void run_step(const Lists& lists, int count, const rb::Scratch<Step>& steps, bool by_tensor,
              OptimSteps<float>::Fn<Step> OptimSteps<float>::* f32,
              OptimSteps<double>::Fn<Step> OptimSteps<double>::* f64) {
  const OptimTable& table = RB_PICK_LEVEL(optim_table);
  rb::parallel_for(lists.total(), kOptimGrain, [&](int64_t begin, int64_t end) {
    lists.for_range(begin, end, [&](uint32_t i, int64_t from, int64_t to) {
      const Part& part = lists.part(i);
      const Step& step = steps[by_tensor ? i : 0];
      if (!part.direct) {
        half_step<Step>(part, count, table.f32.*f32, step, from, to);
      } else if (lists.dtype(i) == RB_F64) {
        (table.f64.*f64)(row_at<double>(part, count, from), step, to - from);
      } else {
        (table.f32.*f32)(row_at<float>(part, count, from), step, to - from);
      }
    });
  });
  lists.finish();
}
// `set(step, i)` gives the step of tensor i what Options has for it.
template <class Step, class Set>
void run_steps(const Lists& lists, int count, const Options& options, const Set& set,
               OptimSteps<float>::Fn<Step> OptimSteps<float>::* f32,
               OptimSteps<double>::Fn<Step> OptimSteps<double>::* f64) {
  if (options.skip()) return;
  const uint32_t rows = options.by_tensor() ? lists.size() : 1;
  rb::Scratch<Step> steps(std::max(rows, 1u));
  for (uint32_t i = 0; i < rows; ++i) {
    steps[i].sign = options.sign();
    set(steps[i], i);
  }
  run_step<Step>(lists, count, steps, options.by_tensor(), f32, f64);
}
#define RB_RUN_STEP(lists, count, options, Step, name, ...)                                      \
  run_steps<Step>(lists, count, options, [&](Step & s, [[maybe_unused]] uint32_t i) __VA_ARGS__, \
                  &OptimSteps<float>::name, &OptimSteps<double>::name)

// Bits of the lists that may not be empty: `names` in order.
constexpr unsigned kGrads = 2, kState1 = 4, kState2 = 8;

template <bool Tensors>
void adam_kernel(const rb::Args& a) {
  static const char* const names[] = {"params", "grads", "exp_avgs", "exp_avg_sqs",
                                      "max_exp_avg_sqs"};
  const Lists lists(a, names, 5, kGrads | kState1 | kState2);
  const Options options(a, Tensors, 5, 11, 12, 2);
  RB_RUN_STEP(lists, 5, options, AdamStep, adam, {
    s.lr = options.lr();
    s.beta1 = a.real(6);
    s.beta2 = a.real(7);
    s.eps = a.real(8);
    s.weight_decay = a.real(9);
    s.decoupled = a.boolean(10);
    s.step_size = s.lr / options.factor(i, 0);
    s.root_correction2 = std::sqrt(options.factor(i, 1));
  });
}

template <bool Tensors>
void sgd_kernel(const rb::Args& a) {
  static const char* const names[] = {"params", "grads", "momentum_buffers"};
  const Lists lists(a, names, 3, kGrads);
  const Options options(a, Tensors, 3, 8, 10, 0);
  RB_RUN_STEP(lists, 3, options, SgdStep, sgd, {
    s.lr = options.lr();
    s.momentum = a.real(4);
    s.dampening = a.real(5);
    s.weight_decay = a.real(6);
    s.nesterov = a.boolean(7);
    s.first_step = a.boolean(9);
  });
}

template <bool Tensors>
void rmsprop_kernel(const rb::Args& a) {
  static const char* const names[] = {"params", "grads", "square_avgs", "momentum_buffers",
                                      "grad_avgs"};
  const Lists lists(a, names, 5, kGrads | kState1);
  const Options options(a, Tensors, 5, 10, 11, 0);
  RB_RUN_STEP(lists, 5, options, RmspropStep, rmsprop, {
    s.lr = options.lr();
    s.alpha = a.real(6);
    s.eps = a.real(7);
    s.weight_decay = a.real(8);
    s.momentum = a.real(9);
  });
}

template <bool Tensors>
void adagrad_kernel(const rb::Args& a) {
  static const char* const names[] = {"params", "grads", "state_sums"};
  const Lists lists(a, names, 3, kGrads | kState1);
  const Options options(a, Tensors, 3, 6, 7, Tensors);
  RB_RUN_STEP(lists, 3, options, AdagradStep, adagrad, {
    s.lr = options.lr() * (Tensors ? options.factor(i, 0) : 1);
    s.eps = a.real(4);
    s.weight_decay = a.real(5);
  });
}

template <bool Tensors>
void adamax_kernel(const rb::Args& a) {
  static const char* const names[] = {"params", "grads", "exp_avgs", "exp_infs"};
  const Lists lists(a, names, 4, kGrads | kState1 | kState2);
  const Options options(a, Tensors, 4, 9, 10, 1);
  RB_RUN_STEP(lists, 4, options, AdamaxStep, adamax, {
    s.beta1 = a.real(5);
    s.beta2 = a.real(6);
    s.eps = a.real(7);
    s.weight_decay = a.real(8);
    s.step_size = options.lr() / options.factor(i, 0);
  });
}

template <bool Tensors>
void nadam_kernel(const rb::Args& a) {
  static const char* const names[] = {"params", "grads", "exp_avgs", "exp_avg_sqs"};
  const Lists lists(a, names, 4, kGrads | kState1 | kState2);
  const Options options(a, Tensors, 4, 10, 11, 3);
  RB_RUN_STEP(lists, 4, options, NadamStep, nadam, {
    s.lr = options.lr();
    s.beta1 = a.real(5);
    s.beta2 = a.real(6);
    s.eps = a.real(7);
    s.weight_decay = a.real(8);
    s.decoupled = a.boolean(9);
    s.grad_step = s.lr * options.factor(i, 0);
    s.mean_step = s.lr * options.factor(i, 1);
    s.root_correction2 = std::sqrt(options.factor(i, 2));
  });
}

template <bool Tensors>
void radam_kernel(const rb::Args& a) {
  static const char* const names[] = {"params", "grads", "exp_avgs", "exp_avg_sqs"};
  const Lists lists(a, names, 4, kGrads | kState1 | kState2);
  const Options options(a, Tensors, 4, 10, 11, 2);
  RB_RUN_STEP(lists, 4, options, RadamStep, radam, {
    s.lr = options.lr();
    s.beta1 = a.real(5);
    s.beta2 = a.real(6);
    s.eps = a.real(7);
    s.weight_decay = a.real(8);
    s.decoupled = a.boolean(9);
    s.step_size = s.lr / options.factor(i, 0);
    s.rectification = options.factor(i, 1);
  });
}

// Whether the argument is a tensor whose only element is not 0.
bool holds(const rb::Args& a, int at) {
  const RbTensor* t = a.optional_tensor(at);
  return t && value_of(*t) != 0;
}

void count_kernel(const rb::Args& a) {
  const auto counts = a.tensors(0);
  const bool skip = holds(a, 1);
  double* out = static_cast<double*>(a.ret().data);
  for (uint32_t i = 0; i < counts.len; ++i) {
    const RbTensor& t = *counts[i];
    out[i] = value_of(t) + 1;
    if (!skip)
      convert_run(static_cast<char*>(t.data), t.dtype_id, reinterpret_cast<const char*>(&out[i]),
                  RB_F64, 1);
  }
}

// ---- norms and limits of gradients

// One element of the list's tensors as float or double, converted if it is a 16-bit float.
template <class Body>
void for_blocks(const Part& part, int64_t begin, int64_t end, bool written, const Body& body) {
  if (part.dtype[0] == RB_F64) {
    body(reinterpret_cast<double*>(part.data[0]) + begin, end - begin);
    return;
  }
  if (part.direct) {
    body(reinterpret_cast<float*>(part.data[0]) + begin, end - begin);
    return;
  }
  float buffer[kBlock];
  for (int64_t at = begin; at < end; at += kBlock) {
    const int64_t n = std::min(kBlock, end - at);
    convert_run(reinterpret_cast<char*>(buffer), RB_F32, part.data[0] + at * 2, part.dtype[0], n);
    body(buffer, n);
    if (written) {
      convert_run(part.data[0] + at * 2, part.dtype[0], reinterpret_cast<const char*>(buffer),
                  RB_F32, n);
    }
  }
}

const OptimSteps<float>& steps_for(const float*) { return RB_PICK_LEVEL(optim_table).f32; }
const OptimSteps<double>& steps_for(const double*) { return RB_PICK_LEVEL(optim_table).f64; }

enum class Norm { kOne, kTwo, kMax };

// NaN if one of them is.
double larger(double a, double b) { return a != a || a >= b ? a : b; }

double norm_of_block(Norm norm, const Part& part, int64_t begin, int64_t end) {
  double joined = 0;
  for_blocks(part, begin, end, false, [&](auto* x, int64_t n) {
    const auto& steps = steps_for(x);
    if (norm == Norm::kMax) {
      joined = larger(joined, steps.largest(x, n));
    } else {
      joined += norm == Norm::kTwo ? steps.squares(x, n) : steps.magnitudes(x, n);
    }
  });
  return joined;
}

// sqrt of the sum of squares of a tensor whose squares leave the range of double.
double scaled_norm(const Part& part, int64_t n) {
  const double top = norm_of_block(Norm::kMax, part, 0, n);
  if (top == 0 || top - top != 0) return top;
  double total = 0;
  for_blocks(part, 0, n, false, [&](auto* x, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const double ratio = static_cast<double>(x[i]) / top;
      total += ratio * ratio;
    }
  });
  return top * std::sqrt(total);
}

// One norm per tensor. Blocks of a fixed size make the result the same for any number of threads.
void norm_kernel(const rb::Args& a) {
  static const char* const names[] = {"tensors"};
  const Lists lists(a, names, 1, 0, false);
  const double ord = a.real(1);
  if (ord != 1 && ord != 2 && ord != HUGE_VAL)
    rb::fail(RB_E_NOTIMPL, "%s: the order of the norm must be 1, 2 or inf, got %g", a.op_name(),
             ord);
  const Norm norm = ord == 1 ? Norm::kOne : ord == 2 ? Norm::kTwo : Norm::kMax;
  std::vector<int64_t> first(lists.size() + 1, 0);  // number of the first block of each tensor
  for (uint32_t i = 0; i < lists.size(); ++i)
    first[i + 1] = first[i] + (lists.numel(i) + kNormBlock - 1) / kNormBlock;
  rb::Scratch<double> partial(first.back());
  rb::parallel_for(first.back(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const auto i = std::upper_bound(first.begin(), first.end(), block) - first.begin() - 1;
      const int64_t from = (block - first[i]) * kNormBlock;
      partial[block] =
          norm_of_block(norm, lists.part(i), from, std::min(from + kNormBlock, lists.numel(i)));
    }
  });
  double* out = static_cast<double*>(a.ret().data);
  for (uint32_t i = 0; i < lists.size(); ++i) {
    double joined = 0;
    for (int64_t block = first[i]; block < first[i + 1]; ++block) {
      joined = norm == Norm::kMax ? larger(joined, partial[block]) : joined + partial[block];
    }
    if (norm == Norm::kTwo) {
      const bool exact = joined - joined == 0 && joined > 1e-280;
      joined = exact ? std::sqrt(joined) : scaled_norm(lists.part(i), lists.numel(i));
    }
    out[i] = joined;
  }
}

template <class Body>
void change_all(const Lists& lists, const Body& body) {
  rb::parallel_for(lists.total(), kOptimGrain, [&](int64_t begin, int64_t end) {
    lists.for_range(begin, end, [&](uint32_t i, int64_t from, int64_t to) {
      for_blocks(lists.part(i), from, to, true, body);
    });
  });
  lists.finish();
}

void divide_kernel(const rb::Args& a) {
  static const char* const names[] = {"tensors"};
  const Lists lists(a, names, 1, 0);
  const RbTensor* divisor = a.optional_tensor(1);
  if (!divisor || holds(a, 2)) return;
  const double factor = 1 / value_of(*divisor);
  if (factor == 1) return;
  change_all(lists, [&](auto* x, int64_t n) {
    steps_for(x).scale(x, static_cast<std::remove_reference_t<decltype(*x)>>(factor), n);
  });
}

void clamp_kernel(const rb::Args& a) {
  static const char* const names[] = {"tensors"};
  const Lists lists(a, names, 1, 0);
  const double low = a.real(1), high = a.real(2);
  change_all(lists, [&](auto* x, int64_t n) {
    using T = std::remove_reference_t<decltype(*x)>;
    steps_for(x).clamp(x, static_cast<T>(low), static_cast<T>(high), n);
  });
}

const rb::KernelSpec kKernels[] = {
    {"fused_adam", rb::wrap<adam_kernel<false>>, 0, kMaskFloat},
    {"fused_adam.tensors", rb::wrap<adam_kernel<true>>, 0, kMaskFloat},
    {"fused_sgd", rb::wrap<sgd_kernel<false>>, 0, kMaskFloat},
    {"fused_sgd.tensors", rb::wrap<sgd_kernel<true>>, 0, kMaskFloat},
    {"fused_rmsprop", rb::wrap<rmsprop_kernel<false>>, 0, kMaskFloat},
    {"fused_rmsprop.tensors", rb::wrap<rmsprop_kernel<true>>, 0, kMaskFloat},
    {"fused_adagrad", rb::wrap<adagrad_kernel<false>>, 0, kMaskFloat},
    {"fused_adagrad.tensors", rb::wrap<adagrad_kernel<true>>, 0, kMaskFloat},
    {"fused_adamax", rb::wrap<adamax_kernel<false>>, 0, kMaskFloat},
    {"fused_adamax.tensors", rb::wrap<adamax_kernel<true>>, 0, kMaskFloat},
    {"fused_nadam", rb::wrap<nadam_kernel<false>>, 0, kMaskFloat},
    {"fused_nadam.tensors", rb::wrap<nadam_kernel<true>>, 0, kMaskFloat},
    {"fused_radam", rb::wrap<radam_kernel<false>>, 0, kMaskFloat},
    {"fused_radam.tensors", rb::wrap<radam_kernel<true>>, 0, kMaskFloat},
    {"foreach_norm", rb::wrap<norm_kernel>, 0, kMaskFloat},
    {"foreach_count", rb::wrap<count_kernel>, 0, kMaskFloat},
    {"foreach_divide", rb::wrap<divide_kernel>, 0, kMaskFloat},
    {"foreach_clamp", rb::wrap<clamp_kernel>, 0, kMaskFloat},
};

}  // namespace

int32_t add_optim(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcpu
