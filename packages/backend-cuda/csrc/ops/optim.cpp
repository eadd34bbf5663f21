// Optimizer steps, norms, factors and limits on lists of tensors: one launch for up to 64 tensors.
#include <algorithm>
#include <cmath>
#include <vector>

#include "launch/jit.h"
#include "launch/temporary.h"
#include "launch/texts.h"
#include "ops/families.h"

namespace rbcuda {
namespace {

#define RB_FUNCTION inline
#include "../../kernels/coefficients.cuh"
#undef RB_FUNCTION

constexpr int kLists = 5, kTensors = 64;
constexpr int64_t kChunk = 4096;

struct Table {  // twin of the kernels'
  struct Entry {
    void* at[kLists];
    int64_t n;
  } entries[kTensors];
  int32_t first[kTensors + 1], count;
};
struct Now {  // twin of the kernels'
  const double* factors;
  int64_t width;
  const double* divisor;
  const float *lr, *skip;
};

// The memory is filled without gaps, in any order of dimensions.
bool gapless(const RbTensor& t) {
  int64_t expected = 1;
  for (int round = 0; round < t.ndim && expected != t.numel; ++round) {
    int at = 0;
    while (at < t.ndim && !(t.shape[at] != 1 && t.strides[at] == expected)) ++at;
    if (at == t.ndim) return false;
    expected *= t.shape[at];
  }
  return expected == t.numel || t.numel == 0;
}
bool same_strides(const RbTensor& a, const RbTensor& b) {
  for (int d = 0; d < a.ndim; ++d)
    if (a.shape[d] != 1 && a.strides[d] != b.strides[d]) return false;
  return true;
}

// The same elements of every list. Tensors in another order than rows without gaps are worked on
// as copies, which are written back.
struct Item {
  const RbTensor* tensors[kLists] = {};
  Temporary copies[kLists];
  const RbTensor* at(int k) const { return copies[k].data() ? &copies[k].tensor() : tensors[k]; }
  int dtype(int k) const { return tensors[k] ? tensors[k]->dtype_id : tensors[0]->dtype_id; }
};

class Lists {
 public:
  /// `required`: bits of the lists that may not be empty.
  Lists(const rb::Args& a, std::initializer_list<const char*> names, unsigned required) {
    const auto params = a.tensors(0);
    op_ = a.op_name();
    items_.resize(params.len);
    for (int k = 0; k < static_cast<int>(names.size()); ++k) {
      const auto list = a.tensors(k);
      if (list.len != params.len && (list.len != 0 || (required >> k & 1)))
        rb::fail(RB_E_ARG, "%s: `params` has %u tensors, `%s` has %u", op_, params.len,
                 names.begin()[k], list.len);
      for (uint32_t i = 0; i < list.len; ++i) {
        check(names.begin()[k], i, *params[i], list[i]);
        items_[i].tensors[k] = list[i];
      }
    }
    for (Item& item : items_) order(item);
  }
  const char* op() const { return op_; }
  const std::vector<Item>& items() const { return items_; }

  /// Call body(table, first, items' dtypes' representative) for runs of items of equal dtypes.
  template <class Body>
  void for_tables(const Body& body) const {
    size_t i = 0;
    while (i < items_.size()) {
      Table table = {};
      const size_t begin = i;
      for (; i < items_.size() && table.count < kTensors && alike(items_[begin], items_[i]); ++i) {
        Table::Entry& e = table.entries[table.count];
        for (int k = 0; k < kLists; ++k)
          e.at[k] = items_[i].tensors[k] ? items_[i].at(k)->data : nullptr;
        e.n = items_[i].tensors[0]->numel;
        const int64_t blocks = (e.n + kChunk - 1) / kChunk;
        if (blocks + table.first[table.count] > INT32_MAX)
          rb::fail(RB_E_NOTIMPL, "%s on 'cuda': tensors of this size", op_);
        table.first[table.count + 1] = table.first[table.count] + static_cast<int32_t>(blocks);
        ++table.count;
      }
      body(table, begin, items_[begin]);
    }
  }
  void write_back(unsigned written) const {
    for (const Item& item : items_)
      for (int k = 0; k < kLists; ++k)
        if ((written >> k & 1) && item.copies[k].data() && item.tensors[k]->numel)
          copy(op_, *item.tensors[k], item.copies[k].tensor());
  }

 private:
  // States and gradients of a 16-bit parameter may be float32, which is what is computed in.
  void check(const char* name, uint32_t i, const RbTensor& p, const RbTensor* t) const {
    if (!(kFloat >> p.dtype_id & 1)) rb::fail(RB_E_TYPE, "%s: expected floating parameters", op_);
    bool ok = t && t->ndim == p.ndim && std::equal(p.shape, p.shape + p.ndim, t->shape) &&
              (t->dtype_id == p.dtype_id || t->dtype_id == computed(p.dtype_id)) &&
              t->backend == p.backend && t->device.id == p.device.id;
    if (!ok)
      rb::fail(RB_E_ARG, "%s: `%s`[%u] differs from the parameter in shape, dtype or device", op_,
               name, i);
  }
  void order(Item& item) const {
    const RbTensor& p = *item.tensors[0];
    bool ordered = gapless(p);
    for (const RbTensor* t : item.tensors) ordered = ordered && (!t || same_strides(p, *t));
    if (ordered) return;
    for (int k = 0; k < kLists; ++k) {
      if (!item.tensors[k]) continue;
      const RbTensor& t = *item.tensors[k];
      item.copies[k] = Temporary(t, t.dtype_id, t.ndim, t.shape);
      if (t.numel) copy(op_, item.copies[k].tensor(), t);
    }
  }
  static bool alike(const Item& a, const Item& b) {
    for (int k = 0; k < kLists; ++k)
      if (a.dtype(k) != b.dtype(k) || !a.tensors[k] != !b.tensors[k]) return false;
    return a.tensors[0]->device.id == b.tensors[0]->device.id;
  }

  const char* op_;
  std::vector<Item> items_;
};

Types types_of(const Item& item) {
  return {{"P", item.dtype(0)}, {"G", item.dtype(1)}, {"A", item.dtype(2)},
          {"B", item.dtype(3)}, {"C", item.dtype(4)}, {"T", computed(item.dtype(0))}};
}

// A tensor argument as numbers without gaps of `dtype`; null for None.
class Numerals {
 public:
  Numerals(const rb::Args& a, int at, int dtype) {
    const RbTensor* t = a.optional_tensor(at);
    if (!t) return;
    data_ = t->data;
    if (t->dtype_id == dtype && t->flags & RB_T_CONTIGUOUS) return;
    copy_ = Temporary(*t, dtype, t->ndim, t->shape);
    copy(a.op_name(), copy_.tensor(), *t);
    data_ = copy_.data();
  }
  void* data() const { return data_; }

 private:
  Temporary copy_;
  void* data_ = nullptr;
};

// Where the options of an operator are among its arguments. Of "NAME.tensors" tensors begin at
// `first`, where NAME has numbers that depend on the number of the step.
struct Places {
  int lr, maximize, first, factors;
};
class Given {
 public:
  Given(const rb::Args& a, bool tensors, Places at)
      : tensors_(tensors),
        factors_(a, tensors && at.factors ? at.first : a.nargs, RB_F64),
        lr_(a, tensors ? at.first + (at.factors != 0) : a.nargs, RB_F32),
        divisor_(a, tensors ? at.first + (at.factors != 0) + 1 : a.nargs, RB_F64),
        skip_(a, tensors ? at.first + (at.factors != 0) + 2 : a.nargs, RB_F32) {
    options.sign = a.boolean(at.maximize) ? -1 : 1;
    options.lr = a.real(at.lr);
    for (int k = 0; k < 3; ++k)
      options.factors[k] = !tensors && k < at.factors ? a.real(at.first + k) : 1;
    now_ = {static_cast<double*>(factors_.data()), at.factors,
            static_cast<double*>(divisor_.data()), static_cast<float*>(lr_.data()),
            static_cast<float*>(skip_.data())};
    if (!now_.factors) now_.width = 0;
  }
  /// A divisor and whether to skip, alone.
  Given(const rb::Args& a, int divisor)
      : tensors_(true),
        factors_(a, a.nargs, RB_F64),
        lr_(a, a.nargs, RB_F32),
        divisor_(a, divisor, RB_F64),
        skip_(a, divisor + 1, RB_F32),
        now_{nullptr, 0, static_cast<double*>(divisor_.data()), nullptr,
             static_cast<float*>(skip_.data())} {
    options.sign = 1;
  }
  bool tensors() const { return tensors_; }
  /// From the row of tensor `begin` on.
  Now now(size_t begin) const {
    Now n = now_;
    if (n.factors) n.factors += static_cast<int64_t>(begin) * n.width;
    return n;
  }

  Options options = {};

 private:
  bool tensors_;
  Numerals factors_, lr_, divisor_, skip_;
  Now now_;
};

// The texts of a step for numbers and for tensors; `bits`: of what it reads and writes.
struct Texts {
  const char *numbers, *tensors;
};
#define RB_TEXTS(step, coefficients, bits) \
  Texts{"RB_OPTIM(" step ", " bits ")\n", "RB_OPTIM_NOW(" step ", " coefficients ", " bits ")\n"}

void run(const Lists& lists, Texts texts, Numbers (*coefficients)(const Options&),
         const Given& given, unsigned written) {
  Numbers numbers = coefficients(given.options);
  Options options = given.options;
  lists.for_tables([&](Table& table, size_t begin, const Item& item) {
    const int32_t blocks = table.first[table.count];
    if (blocks == 0) return;
    Now now = given.now(begin);
    void* plain[] = {&table, &numbers};
    void* with_tensors[] = {&table, &options, &now};
    const Kernel kernel{lists.op(), types_of(item), kText_optim,
                        given.tensors() ? texts.tensors : texts.numbers};
    launch(device_of(*item.tensors[0]), kernel, Grid{static_cast<unsigned>(blocks), 1, 1, 256},
           given.tensors() ? with_tensors : plain);
  });
  lists.write_back(written);
}
void run(const Lists& lists, const char* step, Numbers numbers) {
  lists.for_tables([&](Table& table, size_t, const Item& item) {
    const int32_t blocks = table.first[table.count];
    if (blocks == 0) return;
    void* arguments[] = {&table, &numbers};
    launch(device_of(*item.tensors[0]), Kernel{lists.op(), types_of(item), kText_optim, step},
           Grid{static_cast<unsigned>(blocks), 1, 1, 256}, arguments);
  });
  lists.write_back(1);
}

// Bits of the lists that may not be empty, and of those that are written.
constexpr unsigned kGrads = 2, kState1 = 4, kState2 = 8, kWritten = 1 | 4 | 8 | 16;

// The options that steps by moments have from `at` on: betas, eps, weight decay, whether decoupled.
void moments(Options& o, const rb::Args& a, int at, bool may_decouple) {
  o.beta1 = a.real(at);
  o.beta2 = a.real(at + 1);
  o.eps = a.real(at + 2);
  o.weight_decay = a.real(at + 3);
  o.decoupled = may_decouple && a.boolean(at + 4);
}

template <bool Tensors>
void adam_kernel(const rb::Args& a) {
  const Lists lists(a, {"params", "grads", "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs"},
                    kGrads | kState1 | kState2);
  Given given(a, Tensors, {5, 11, 12, 2});
  moments(given.options, a, 6, true);
  run(lists,
      a.tensors(4).len ? RB_TEXTS("AdamLargest", "of_adam", "15, 7")
                       : RB_TEXTS("Adam", "of_adam", "11, 3"),
      of_adam, given, kWritten);
}

template <bool Tensors>
void sgd_kernel(const rb::Args& a) {
  const Lists lists(a, {"params", "grads", "momentum_buffers"}, kGrads);
  Given given(a, Tensors, {3, 8, 10, 0});
  Options& o = given.options;
  o.momentum = a.real(4);
  o.dampening = a.real(5);
  o.weight_decay = a.real(6);
  o.nesterov = a.boolean(7);
  const Texts texts = a.tensors(2).len == 0 ? RB_TEXTS("Plain", "of_sgd", "8, 0")
                      : a.boolean(9)        ? RB_TEXTS("MomentumFirst", "of_sgd", "8, 1")
                                            : RB_TEXTS("Momentum", "of_sgd", "9, 1");
  run(lists, texts, of_sgd, given, kWritten);
}

template <bool Tensors>
void rmsprop_kernel(const rb::Args& a) {
  const Lists lists(a, {"params", "grads", "square_avgs", "momentum_buffers", "grad_avgs"},
                    kGrads | kState1);
  Given given(a, Tensors, {5, 10, 11, 0});
  Options& o = given.options;
  o.beta2 = a.real(6);
  o.eps = a.real(7);
  o.weight_decay = a.real(8);
  o.momentum = a.real(9);
  const bool momentum = a.tensors(3).len > 0, centered = a.tensors(4).len > 0;
  const Texts texts = momentum && centered ? RB_TEXTS("RmspropBoth", "of_rmsprop", "15, 7")
                      : momentum           ? RB_TEXTS("RmspropMomentum", "of_rmsprop", "11, 3")
                      : centered           ? RB_TEXTS("RmspropCentered", "of_rmsprop", "13, 5")
                                           : RB_TEXTS("Rmsprop", "of_rmsprop", "9, 1");
  run(lists, texts, of_rmsprop, given, kWritten);
}

template <bool Tensors>
void adagrad_kernel(const rb::Args& a) {
  const Lists lists(a, {"params", "grads", "state_sums"}, kGrads | kState1);
  Given given(a, Tensors, {3, 6, 7, Tensors});
  given.options.eps = a.real(4);
  given.options.weight_decay = a.real(5);
  run(lists, RB_TEXTS("Adagrad", "of_adagrad", "9, 1"), of_adagrad, given, kWritten);
}

template <bool Tensors>
void adamax_kernel(const rb::Args& a) {
  const Lists lists(a, {"params", "grads", "exp_avgs", "exp_infs"}, kGrads | kState1 | kState2);
  Given given(a, Tensors, {4, 9, 10, 1});
  moments(given.options, a, 5, false);
  run(lists, RB_TEXTS("Adamax", "of_adamax", "11, 3"), of_adamax, given, kWritten);
}

template <bool Tensors>
void nadam_kernel(const rb::Args& a) {
  const Lists lists(a, {"params", "grads", "exp_avgs", "exp_avg_sqs"}, kGrads | kState1 | kState2);
  Given given(a, Tensors, {4, 10, 11, 3});
  moments(given.options, a, 5, true);
  run(lists, RB_TEXTS("Nadam", "of_nadam", "11, 3"), of_nadam, given, kWritten);
}

template <bool Tensors>
void radam_kernel(const rb::Args& a) {
  const Lists lists(a, {"params", "grads", "exp_avgs", "exp_avg_sqs"}, kGrads | kState1 | kState2);
  Given given(a, Tensors, {4, 10, 11, 2});
  moments(given.options, a, 5, true);
  run(lists, RB_TEXTS("Radam", "of_radam", "11, 3"), of_radam, given, kWritten);
}

void count_kernel(const rb::Args& a) {
  const Lists lists(a, {"counts"}, 0);
  const Numerals skip(a, 1, RB_F32);
  void* skipped = skip.data();
  lists.for_tables([&](Table& table, size_t begin, const Item& item) {
    void* out = static_cast<double*>(a.ret().data) + begin;
    void* arguments[] = {&table, &out, &skipped};
    launch(device_of(a.ret()), Kernel{lists.op(), types_of(item), kText_optim, "RB_COUNT()\n"},
           Grid{1, 1, 1, kTensors}, arguments);
  });
}

void divide_kernel(const rb::Args& a) {
  const Lists lists(a, {"tensors"}, 0);
  const Given given(a, 1);
  if (given.now(0).divisor) run(lists, RB_TEXTS("Scale", "of_scale", "0, 0"), of_scale, given, 1);
}
void clamp_kernel(const rb::Args& a) {
  const Lists lists(a, {"tensors"}, 0);
  run(lists, "RB_OPTIM(Clamp, 0, 0)\n", {{a.real(1), a.real(2)}});
}

void norm_kernel(const rb::Args& a) {
  const Lists lists(a, {"tensors"}, 0);
  const double ord = a.real(1);
  constexpr const char* kParts[] = {"RB_NORM_PARTS(0)\n", "RB_NORM_PARTS(1)\n",
                                    "RB_NORM_PARTS(2)\n"};
  constexpr const char* kNorms[] = {"RB_NORMS(0)\n", "RB_NORMS(1)\n", "RB_NORMS(2)\n"};
  const int order = ord == 1 ? 1 : ord == 2 ? 2 : 0;
  const RbTensor& out = a.ret();
  lists.for_tables([&](Table& table, size_t begin, const Item& item) {
    const int32_t blocks = table.first[table.count];
    const Temporary parts(out, int64_t{8} * std::max(blocks, 1));
    int64_t step = out.strides[0];
    void *partial = parts.data(), *to = static_cast<double*>(out.data) + begin * step;
    Device& device = device_of(out);
    if (blocks) {
      void* arguments[] = {&table, &partial};
      launch(device, Kernel{lists.op(), types_of(item), kText_optim, kParts[order]},
             Grid{static_cast<unsigned>(blocks), 1, 1, 256}, arguments);
    }
    void* arguments[] = {&to, &partial, &table, &step};
    launch(device, Kernel{lists.op(), types_of(item), kText_optim, kNorms[order]},
           Grid{static_cast<unsigned>(table.count), 1, 1, 128}, arguments);
  });
}

const rb::KernelSpec kKernels[] = {
    {"fused_adam", rb::wrap<adam_kernel<false>>, 0, kFloat},
    {"fused_adam.tensors", rb::wrap<adam_kernel<true>>, 0, kFloat},
    {"fused_sgd", rb::wrap<sgd_kernel<false>>, 0, kFloat},
    {"fused_sgd.tensors", rb::wrap<sgd_kernel<true>>, 0, kFloat},
    {"fused_rmsprop", rb::wrap<rmsprop_kernel<false>>, 0, kFloat},
    {"fused_rmsprop.tensors", rb::wrap<rmsprop_kernel<true>>, 0, kFloat},
    {"fused_adagrad", rb::wrap<adagrad_kernel<false>>, 0, kFloat},
    {"fused_adagrad.tensors", rb::wrap<adagrad_kernel<true>>, 0, kFloat},
    {"fused_adamax", rb::wrap<adamax_kernel<false>>, 0, kFloat},
    {"fused_adamax.tensors", rb::wrap<adamax_kernel<true>>, 0, kFloat},
    {"fused_nadam", rb::wrap<nadam_kernel<false>>, 0, kFloat},
    {"fused_nadam.tensors", rb::wrap<nadam_kernel<true>>, 0, kFloat},
    {"fused_radam", rb::wrap<radam_kernel<false>>, 0, kFloat},
    {"fused_radam.tensors", rb::wrap<radam_kernel<true>>, 0, kFloat},
    {"foreach_norm", rb::wrap<norm_kernel>, 0, kFloat},
    {"foreach_count", rb::wrap<count_kernel>, 0, kFloat},
    {"foreach_divide", rb::wrap<divide_kernel>, 0, kFloat},
    {"foreach_clamp", rb::wrap<clamp_kernel>, 0, kFloat},
};

}  // namespace

int32_t add_optim(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcuda
