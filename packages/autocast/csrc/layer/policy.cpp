#include "policy.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <new>
#include <set>
#include <tuple>
#include <vector>

#include "cache.h"
#include "modes.h"

namespace autocast {

namespace {

constexpr int kMaxArgs = RB_MAX_ARGS;
constexpr int32_t kKeep = -1;  // no cast

// ---- low precision that a backend lacks

// What has turned out to have no kernel: such operators stay in the dtype they came in.
class Missing {
 public:
  bool has(const RbOp* op, int32_t backend, int32_t dtype) {
    if (!any_.load(std::memory_order_acquire)) return false;
    std::lock_guard<std::mutex> lock(mutex_);
    return set_.count({op, backend, dtype}) != 0;
  }
  void add(const RbOp* op, int32_t backend, int32_t dtype) {
    std::lock_guard<std::mutex> lock(mutex_);
    set_.insert({op, backend, dtype});
    any_.store(true, std::memory_order_release);
  }

 private:
  std::atomic<bool> any_{false};
  std::mutex mutex_;
  std::set<std::tuple<const RbOp*, int32_t, int32_t>> set_;
};
Missing& missing() {
  static Missing* const instance = new Missing;
  return *instance;
}

// ---- which tensors, to which dtype

struct Rule {
  uint64_t enabled;  // backends
  int32_t policy;
  int32_t widest = RB_DTYPE_NONE;  // for RB_AUTOCAST_PROMOTE

  bool eligible(const RbTensor* t) const {
    return (enabled >> t->backend & 1) && rb::is_floating(t->dtype_id) && t->dtype_id != RB_F64;
  }
  int32_t target(const RbTensor* t) const {
    if (!t || !eligible(t)) return kKeep;
    const int32_t to = policy == RB_AUTOCAST_LOW    ? modes().dtype(t->backend)
                       : policy == RB_AUTOCAST_FP32 ? static_cast<int32_t>(RB_F32)
                       : policy >= RB_AUTOCAST_TO   ? policy - RB_AUTOCAST_TO
                                                    : widest;
    return to == t->dtype_id ? kKeep : to;
  }
};

template <class F>
void each_tensor(const RbValue* args, int32_t nargs, F f) {
  for (int32_t i = 0; i < nargs; ++i) {
    if (args[i].tag == RB_TENSOR) f(args[i].v.t);
    if (args[i].tag != RB_TENSORS) continue;
    for (uint32_t j = 0; j < args[i].len; ++j) {
      if (args[i].v.ts[j]) f(args[i].v.ts[j]);
    }
  }
}

// float32 where the eligible tensors differ, else what they have.
int32_t widest_dtype(const Rule& rule, const RbValue* args, int32_t nargs) {
  int32_t widest = RB_DTYPE_NONE;
  each_tensor(args, nargs, [&](const RbTensor* t) {
    if (!rule.eligible(t)) return;
    const int32_t dtype = t->dtype_id;
    widest = widest == RB_DTYPE_NONE || widest == dtype ? dtype : static_cast<int32_t>(RB_F32);
  });
  return widest;
}

// ---- casts

int32_t run_cast(RbTensor* t, int32_t to, RbTensor** out) {
  static const RbOp* const op = host->find_op("cast");
  const RbValue args[2] = {rb::tensor_value(t), rb::dtype_value(to)};
  rb::Ref cast;
  const int32_t rc = rb::call1(op, args, 2, cast);
  *out = cast.take();
  return rc;
}

int32_t cast_or_find(RbTensor* t, int32_t to, bool may_keep, RbTensor** out) {
  bool recorded = false;
  if (!may_keep || !Cache::takes(t, &recorded)) return run_cast(t, to, out);
  if (RbTensor* known = cache().find(t, to, recorded)) {
    host->retain(known);
    *out = known;
    return RB_OK;
  }
  const int32_t rc = run_cast(t, to, out);
  if (rc == RB_OK) cache().put(t, *out, recorded);
  return rc;
}

/// The arguments of a call after the casts, and what they own.
class Casts {
 public:
  Casts(const RbValue* args, int32_t nargs) : nargs_(nargs) {
    std::copy(args, args + nargs, args_);
  }
  ~Casts() {
    for (int i = 0; i < nowned_; ++i) host->release(owned_[i]);
    for (RbTensor* t : more_) host->release(t);
  }
  Casts(const Casts&) = delete;
  Casts& operator=(const Casts&) = delete;

  int32_t apply(const Rule& rule) {
    const bool may_keep = rule.policy == RB_AUTOCAST_LOW && modes().cache_enabled;
    for (int32_t i = 0; i < nargs_; ++i) {
      int32_t rc = RB_OK;
      if (args_[i].tag == RB_TENSOR) {
        rc = replace(args_[i].v.t, rule, may_keep, &args_[i].v.t);
      } else if (args_[i].tag == RB_TENSORS) {
        rc = replace_list(args_[i], rule, may_keep);
      }
      if (rc != RB_OK) return rc;
    }
    return RB_OK;
  }
  void set_dtype(int32_t i, int32_t dtype) { args_[i] = rb::dtype_value(dtype); }
  const RbValue* args() const { return args_; }
  bool changed() const { return nowned_ > 0; }

 private:
  int32_t replace(RbTensor* t, const Rule& rule, bool may_keep, RbTensor** place) {
    const int32_t to = rule.target(t);
    if (to == kKeep) return RB_OK;
    RbTensor* cast = nullptr;
    const int32_t rc = cast_or_find(t, to, may_keep, &cast);
    if (rc != RB_OK) return rc;
    if (nowned_ < kMaxArgs) {
      owned_[nowned_++] = cast;
    } else {
      more_.push_back(cast);
    }
    *place = cast;
    return RB_OK;
  }
  int32_t replace_list(RbValue& v, const Rule& rule, bool may_keep) {
    lists_.emplace_back(v.v.ts, v.v.ts + v.len);
    std::vector<RbTensor*>& list = lists_.back();
    for (RbTensor*& t : list) {
      if (int32_t rc = replace(t, rule, may_keep, &t)) return rc;
    }
    v.v.ts = list.data();
    return RB_OK;
  }

  int32_t nargs_;
  RbValue args_[kMaxArgs];
  RbTensor* owned_[kMaxArgs];
  int nowned_ = 0;
  std::vector<RbTensor*> more_;
  std::vector<std::vector<RbTensor*>> lists_;
};

// ---- calls

// The argument that chooses the dtype an operator computes in, else -1.
int32_t dtype_argument(const RbOpInfo* info) {
  for (int32_t i = 0; i < info->nargs; ++i) {
    if (RB_ARG(info, i)->type == RB_A_DTYPE) return i;
  }
  return -1;
}

const RbTensor* first_tensor(const RbValue* args, int32_t nargs) {
  const RbTensor* first = nullptr;
  each_tensor(args, nargs, [&](const RbTensor* t) {
    if (!first) first = t;
  });
  return first;
}

// A dtype that the user gave is left alone; without one the operator is asked for float32, which
// saves the cast.
int32_t run_in_float32(const RbCall* call, const Rule& rule, int32_t at, const RbValue* args,
                       int32_t nargs, RbValue* rets, int32_t nrets) {
  const RbTensor* first = first_tensor(args, nargs);
  LayerOff off;
  if (args[at].tag != RB_NONE || !first || !rule.eligible(first))
    return host->redispatch(call, layer, args, nargs, rets, nrets);
  Casts casts(args, nargs);
  casts.set_dtype(at, RB_F32);
  return host->redispatch(call, layer, casts.args(), nargs, rets, nrets);
}

int32_t run_cast_call(const RbCall* call, const Rule& rule, const RbValue* args, int32_t nargs,
                      RbValue* rets, int32_t nrets) {
  const RbTensor* first = first_tensor(args, nargs);
  const int32_t backend = first ? first->backend : 0;
  const int32_t low = rule.policy == RB_AUTOCAST_LOW ? modes().dtype(backend) : kKeep;
  LayerOff off;
  if (low != kKeep && missing().has(call->op, backend, low))
    return host->redispatch(call, layer, args, nargs, rets, nrets);
  int32_t rc = RB_OK;
  {
    Casts casts(args, nargs);
    rc = casts.apply(rule);
    if (rc != RB_OK) return rc;
    if (!casts.changed()) return host->redispatch(call, layer, args, nargs, rets, nrets);
    rc = host->redispatch_new(call, layer, casts.args(), nargs, rets, nrets);
  }
  if (rc != RB_E_NOTIMPL || low == kKeep) return rc;
  // There may be no kernel for the low dtype; with the tensors as they came there may be.
  host->err_clear();
  rc = host->redispatch(call, layer, args, nargs, rets, nrets);
  if (rc == RB_OK) missing().add(call->op, backend, low);
  return rc;
}

// An operator that is only a name for others, whose own policies count.
inline bool is_made_of_others(const RbOpInfo* info) {
  constexpr uint32_t kAny = RB_OP_HAS_VJP | RB_OP_HAS_DECOMP | RB_OP_VIEW;
  return info->kind == RB_KIND_COMPOSITE && (info->flags & kAny) == RB_OP_HAS_DECOMP;
}

int32_t pass(const RbCall* call, const RbOpInfo* info, const RbValue* args, int32_t nargs,
             RbValue* rets, int32_t nrets) {
  if (__builtin_expect(!is_made_of_others(info), 1))
    return host->redispatch(call, layer, args, nargs, rets, nrets);
  if (!(call->flags & RB_CALL_OUT)) return host->decompose(call, args, nargs, rets, nrets);
  LayerOff off;  // results that are given keep their dtype
  return host->redispatch(call, layer, args, nargs, rets, nrets);
}

}  // namespace

int32_t handle_call(void*, const RbCall* call, const RbValue* args, int32_t nargs, RbValue* rets,
                    int32_t nrets) {
  const RbOpInfo* info = host->op_info(call->op);
  if (info->autocast == RB_AUTOCAST_PASS || (call->flags & RB_CALL_OUT) || nargs > kMaxArgs)
    return pass(call, info, args, nargs, rets, nrets);
  try {
    Rule rule{modes().enabled_in_call(), info->autocast};
    if (info->autocast == RB_AUTOCAST_FP32) {
      const int32_t at = dtype_argument(info);
      if (at >= 0) return run_in_float32(call, rule, at, args, nargs, rets, nrets);
    } else if (info->autocast == RB_AUTOCAST_PROMOTE) {
      rule.widest = widest_dtype(rule, args, nargs);
    }
    return run_cast_call(call, rule, args, nargs, rets, nrets);
  } catch (const std::bad_alloc&) {
    return host->err_set(RB_E_OOM, "autocast: out of memory");
  }
}

int32_t explain_call(const RbOp* op, const RbValue* args, int32_t nargs, char* text,
                     uint32_t size) {
  static const char* const policies[] = {"pass", "low", "fp32", "promote"};
  const RbOpInfo* info = host->op_info(op);
  const RbTensor* first = first_tensor(args, nargs);
  if (!first || !(modes().enabled() >> first->backend & 1)) {
    std::snprintf(text, size, "autocast is off for {device}");
    return RB_EXPLAIN_PASSES;
  }
  if (info->autocast >= RB_AUTOCAST_TO) {
    std::snprintf(text, size, "the record names a dtype");
    return RB_EXPLAIN_ACTS;
  }
  std::snprintf(text, size, "the record says %s", policies[info->autocast]);
  if (info->autocast != RB_AUTOCAST_PASS) return RB_EXPLAIN_ACTS;
  if (!is_made_of_others(info)) return RB_EXPLAIN_PASSES;
  std::snprintf(text, size, "the operators that it is made of have policies: they are called");
  return RB_EXPLAIN_ENDS;
}

}  // namespace autocast
