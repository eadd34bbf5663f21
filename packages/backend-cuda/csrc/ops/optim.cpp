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

constexpr int kLists = 5, kTensors = 64, kNumbers = 10;
constexpr int64_t kChunk = 4096;

struct Table {  // twin of the kernels'
  struct Entry {
    void* at[kLists];
    int64_t n;
  } entries[kTensors];
  int32_t first[kTensors + 1], count;
};
struct Numbers {  // twin of the kernels'
  double at[kNumbers];
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

// `step` is the macro with its arguments; the numbers are the step's.
void run(const Lists& lists, const char* step, Numbers numbers, unsigned written) {
  lists.for_tables([&](Table& table, size_t, const Item& item) {
    const int32_t blocks = table.first[table.count];
    if (blocks == 0) return;
    void* arguments[] = {&table, &numbers};
    launch(device_of(*item.tensors[0]), Kernel{lists.op(), types_of(item), kText_optim, step},
           Grid{static_cast<unsigned>(blocks), 1, 1, 256}, arguments);
  });
  lists.write_back(written);
}

// Bits of the lists that may not be empty, and of those that are written.
constexpr unsigned kGrads = 2, kState1 = 4, kState2 = 8, kWritten = 1 | 4 | 8 | 16;

double sign(bool maximize) { return maximize ? -1 : 1; }
// decay and shrink: of the gradient, or decoupled from it.
struct Decay {
  double decay, shrink;
  Decay(double lr, double weight_decay, bool decoupled)
      : decay(decoupled ? 0 : weight_decay), shrink(decoupled ? 1 - lr * weight_decay : 1) {}
};

void adam_kernel(const rb::Args& a) {
  const Lists lists(a, {"params", "grads", "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs"},
                    kGrads | kState1 | kState2);
  const double lr = a.real(5), beta1 = a.real(6), beta2 = a.real(7);
  const Decay d(lr, a.real(9), a.boolean(10));
  const bool largest = a.tensors(4).len > 0;
  run(lists, largest ? "RB_OPTIM(AdamLargest, 15, 7)\n" : "RB_OPTIM(Adam, 11, 3)\n",
      {{sign(a.boolean(11)), d.decay, d.shrink, 1 - beta1, 1 - beta2, beta2,
        1 / std::sqrt(a.real(13)), a.real(8), lr / a.real(12)}},
      kWritten);
}

void sgd_kernel(const rb::Args& a) {
  const Lists lists(a, {"params", "grads", "momentum_buffers"}, kGrads);
  const double momentum = a.real(4);
  const bool nesterov = a.boolean(7);
  const Numbers numbers = {{sign(a.boolean(8)), a.real(6), a.real(3), nesterov ? 1.0 : 0.0,
                            nesterov ? momentum : 1.0, momentum, 1 - a.real(5)}};
  const char* step = a.tensors(2).len == 0 ? "RB_OPTIM(Plain, 8, 0)\n"
                     : a.boolean(9)        ? "RB_OPTIM(MomentumFirst, 8, 1)\n"
                                           : "RB_OPTIM(Momentum, 9, 1)\n";
  run(lists, step, numbers, kWritten);
}

void rmsprop_kernel(const rb::Args& a) {
  const Lists lists(a, {"params", "grads", "square_avgs", "momentum_buffers", "grad_avgs"},
                    kGrads | kState1);
  const bool momentum = a.tensors(3).len > 0, centered = a.tensors(4).len > 0;
  const char* step = momentum && centered ? "RB_OPTIM(RmspropBoth, 15, 7)\n"
                     : momentum           ? "RB_OPTIM(RmspropMomentum, 11, 3)\n"
                     : centered           ? "RB_OPTIM(RmspropCentered, 13, 5)\n"
                                          : "RB_OPTIM(Rmsprop, 9, 1)\n";
  run(lists, step,
      {{sign(a.boolean(10)), a.real(8), a.real(5), a.real(6), 1 - a.real(6), a.real(7), a.real(9)}},
      kWritten);
}

void adagrad_kernel(const rb::Args& a) {
  const Lists lists(a, {"params", "grads", "state_sums"}, kGrads | kState1);
  run(lists, "RB_OPTIM(Adagrad, 9, 1)\n", {{sign(a.boolean(6)), a.real(5), a.real(3), a.real(4)}},
      kWritten);
}

void adamax_kernel(const rb::Args& a) {
  const Lists lists(a, {"params", "grads", "exp_avgs", "exp_infs"}, kGrads | kState1 | kState2);
  run(lists, "RB_OPTIM(Adamax, 11, 3)\n",
      {{sign(a.boolean(9)), a.real(8), 1, 1 - a.real(5), 0, a.real(6), 0, a.real(7),
        a.real(4) / a.real(10)}},
      kWritten);
}

void nadam_kernel(const rb::Args& a) {
  const Lists lists(a, {"params", "grads", "exp_avgs", "exp_avg_sqs"}, kGrads | kState1 | kState2);
  const double lr = a.real(4), beta1 = a.real(5), beta2 = a.real(6);
  const Decay d(lr, a.real(8), a.boolean(9));
  run(lists, "RB_OPTIM(Nadam, 11, 3)\n",
      {{sign(a.boolean(10)), d.decay, d.shrink, 1 - beta1, 1 - beta2, beta2,
        1 / std::sqrt(a.real(13)), a.real(7), lr * a.real(12), lr * a.real(11)}},
      kWritten);
}

void radam_kernel(const rb::Args& a) {
  const Lists lists(a, {"params", "grads", "exp_avgs", "exp_avg_sqs"}, kGrads | kState1 | kState2);
  const double lr = a.real(4), beta1 = a.real(5), beta2 = a.real(6), rectification = a.real(12);
  const Decay d(lr, a.real(8), a.boolean(9));
  const double step = lr / a.real(11);
  run(lists, rectification != 0 ? "RB_OPTIM(Radam, 11, 3)\n" : "RB_OPTIM(RadamPlain, 11, 3)\n",
      {{sign(a.boolean(10)), d.decay, d.shrink, 1 - beta1, 1 - beta2, beta2, 0, a.real(7),
        rectification != 0 ? step * rectification : step}},
      kWritten);
}

void scale_kernel(const rb::Args& a) {
  const Lists lists(a, {"tensors"}, 0);
  if (a.real(1) == 1) return;
  run(lists, "RB_OPTIM(Scale, 0, 0)\n", {{a.real(1)}}, 1);
}
void clamp_kernel(const rb::Args& a) {
  const Lists lists(a, {"tensors"}, 0);
  run(lists, "RB_OPTIM(Clamp, 0, 0)\n", {{a.real(1), a.real(2)}}, 1);
}

void norm_kernel(const rb::Args& a) {
  const Lists lists(a, {"tensors"}, 0);
  const double ord = a.real(1);
  const std::string order = ord == 1 ? "(1)\n" : ord == 2 ? "(2)\n" : "(0)\n";
  const RbTensor& out = a.ret();
  lists.for_tables([&](Table& table, size_t begin, const Item& item) {
    const int32_t blocks = table.first[table.count];
    const Temporary parts(out, int64_t{8} * std::max(blocks, 1));
    int64_t step = out.strides[0];
    void *partial = parts.data(), *to = static_cast<double*>(out.data) + begin * step;
    Device& device = device_of(out);
    if (blocks) {
      void* arguments[] = {&table, &partial};
      launch(device, Kernel{lists.op(), types_of(item), kText_optim, "RB_NORM_PARTS" + order},
             Grid{static_cast<unsigned>(blocks), 1, 1, 256}, arguments);
    }
    void* arguments[] = {&to, &partial, &table, &step};
    launch(device, Kernel{lists.op(), types_of(item), kText_optim, "RB_NORMS" + order},
           Grid{static_cast<unsigned>(table.count), 1, 1, 128}, arguments);
  });
}

const rb::KernelSpec kKernels[] = {
    {"fused_adam", rb::wrap<adam_kernel>, 0, kFloat},
    {"fused_sgd", rb::wrap<sgd_kernel>, 0, kFloat},
    {"fused_rmsprop", rb::wrap<rmsprop_kernel>, 0, kFloat},
    {"fused_adagrad", rb::wrap<adagrad_kernel>, 0, kFloat},
    {"fused_adamax", rb::wrap<adamax_kernel>, 0, kFloat},
    {"fused_nadam", rb::wrap<nadam_kernel>, 0, kFloat},
    {"fused_radam", rb::wrap<radam_kernel>, 0, kFloat},
    {"foreach_norm", rb::wrap<norm_kernel>, 0, kFloat},
    {"foreach_scale", rb::wrap<scale_kernel>, 0, kFloat},
    {"foreach_clamp", rb::wrap<clamp_kernel>, 0, kFloat},
};

}  // namespace

int32_t add_optim(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcuda
