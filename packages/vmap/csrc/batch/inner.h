// What a rule makes for the one call of its operator on what the arguments stand for.
#pragma once
#include <algorithm>

#include "batch.h"

namespace batch {

/// A call's arguments as they are changed for the inner call, and what keeps them alive. A few of
/// each kind need no memory of their own.
class Values {
 public:
  explicit Values(const Call& c) : n(c.nargs) {
    if (n > kMaxArgs) rb::fail(RB_E_ARG, "%s: too many arguments", c.info.name);
    std::copy(c.args, c.args + n, v);
  }
  RbTensor* keep(Ref t) {
    if (tensors_ < kFew) {
      few_tensors_[tensors_] = std::move(t);
      return few_tensors_[tensors_++].get();
    }
    more_tensors_.push_back(std::move(t));
    return more_tensors_.back().get();
  }
  void set(int i, Ref t) { v[i] = tensor_value(keep(std::move(t))); }
  void set(int i, const Dims& dims) {
    Dims* place = lists_ < kFew ? &few_lists_[lists_++] : nullptr;
    if (!place) {
      more_lists_.push_back(std::make_unique<Dims>());
      place = more_lists_.back().get();
    }
    *place = dims;
    v[i] = list(*place);
  }
  /// The tensors of argument i, each changed by `f`.
  template <class F>
  void set_each(int i, const F& f) {
    arrays_.push_back(std::make_unique<RbTensor*[]>(v[i].len + 1));
    for (uint32_t j = 0; j < v[i].len; ++j)
      arrays_.back()[j] = v[i].v.ts[j] ? keep(f(v[i].v.ts[j])) : nullptr;
    v[i].v.ts = arrays_.back().get();
  }

  RbValue v[kMaxArgs];
  int n;

 private:
  static constexpr int kFew = 3;
  int tensors_ = 0, lists_ = 0;
  Ref few_tensors_[kFew];
  Dims few_lists_[kFew];
  std::vector<Ref> more_tensors_;
  std::vector<std::unique_ptr<Dims>> more_lists_;
  std::vector<std::unique_ptr<RbTensor*[]>> arrays_;
};

/// Results of an inner call; released unless taken.
class Results {
 public:
  Results(const Call& c, const Values& a) : n(c.nrets) {
    std::fill(v, v + n, none_value());
    rb::check(rb::host->call(c.c->op, a.v, a.n, v, n, 0));
  }
  ~Results() {
    for (int i = 0; i < n; ++i) rb::host->value_release(&v[i]);
  }
  Results(const Results&) = delete;
  Results& operator=(const Results&) = delete;
  Ref take(int i) {
    Ref t(v[i].v.t);
    v[i] = none_value();
    return t;
  }

  /// All of them, with the examples in front.
  void give_all(Call& c) {
    for (int i = 0; i < n; ++i) c.give(i, take(i), 0);
  }

  RbValue v[kMaxArgs];
  int n;
};

}  // namespace batch
