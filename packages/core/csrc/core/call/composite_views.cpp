#include "call/composite_views.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "layer/transforms.h"
#include "thread/error.h"

namespace rabbet {

namespace {

// ---- what memory a composite is made of

using Storages = std::vector<const Storage*>;  // sorted

void collect(const RbTensor* t, Storages& found) {
  found.push_back(owner_of(impl(t)->storage));
  if (!(t->flags & RB_T_COMPOSITE)) return;
  const Body& body = body_of(t);
  for (uint32_t i = 0; i < body.nparts; ++i) {
    if (body.parts()[i]) collect(body.parts()[i], found);
  }
}
Storages storages_of(const RbTensor* t) {
  Storages found;
  collect(t, found);
  std::sort(found.begin(), found.end());
  return found;
}
bool is_among(const RbTensor* t, const Storages& known) {
  return std::binary_search(known.begin(), known.end(), owner_of(impl(t)->storage));
}

// Which parts that hold elements lie in known memory.
struct Shares {
  uint32_t in = 0, outside = 0;  // numbers of parts
  uint32_t first_in = 0, first_outside = 0;
};
bool lies_in(const RbTensor* t, const Storages& known);
Shares shares_of(const RbTensor* composite, const Storages& known) {
  Shares found;
  const Body& body = body_of(composite);
  for (uint32_t i = 0; i < body.nparts; ++i) {
    const RbTensor* part = body.parts()[i];
    if (!part || !part->numel) continue;
    const bool in = lies_in(part, known);
    uint32_t& count = in ? found.in : found.outside;
    if (!count++) (in ? found.first_in : found.first_outside) = i;
  }
  return found;
}
bool lies_in(const RbTensor* t, const Storages& known) {
  if (is_among(t, known)) return true;
  return t->flags & RB_T_COMPOSITE && body_of(t).nparts && !shares_of(t, known).outside;
}

// ---- one result

class Finish {
 public:
  Finish(const LayerEntry& layer, const Op& op, const RbValue* args, int32_t nargs,
         const std::function<std::string()>& whose)
      : layer_(layer), op_(op), args_(args), nargs_(nargs), whose_(whose), base_(args[0].v.t) {}

  /// `entry`: see ViewRecord.
  void run(RbTensor*& r, int entry) {
    // The layer of differentiation gives each result a history of its own.
    if (r == base_ && op_.is_view()) replace(r, composite_alias(base_));
    if (r == base_) return;
    if (!(r->flags & RB_T_COMPOSITE)) return plain(r);
    if (same_memory(r, base_)) return record(r, entry);
    // Where the layer says what is a view, one of something else stays that.
    if (says_views() && impl(r)->view) return;
    const Kind kind = kind_of(r);
    if (kind == Kind::kCopy && op_.is_view()) protect(r);
    if (kind != Kind::kView) return;
    if (!can_be_recorded(args_, nargs_)) fail_unrecorded(op_.name.c_str());
    if (must_be_copied(r)) replace(r, composite_alias(r));
    share_version(impl(r), base_);
    record(r, entry);
  }

 private:
  enum class Kind { kView, kCopy, kResult };

  // The layer says it (RB_L_VIEWS), or there is nothing to say (stubs), or the parts do.
  Kind kind_of(const RbTensor* r) {
    if (says_views()) return op_.is_view() ? Kind::kView : Kind::kResult;
    if (!body_of(r).nparts) return op_.is_view() ? Kind::kView : Kind::kResult;
    const Shares shares = shares_of(r, known());
    if (!shares.outside) return Kind::kView;
    if (!shares.in) return Kind::kCopy;
    if (!op_.is_view()) return Kind::kResult;
    fail(RB_E_PLUGIN,
         "%s: %s returned a composite whose part %u shares memory with '%s' while part %u does "
         "not, so it is unclear whether writes to it reach '%s': compose it with `base` if they "
         "do, else give it copies of all parts",
         op_.name.c_str(), whose_().c_str(), shares.first_in, op_.params[0].name,
         shares.first_outside, op_.params[0].name);
  }

  // A tensor with memory cannot be a view of a tensor without.
  void plain(RbTensor*& r) {
    if (!op_.is_view() || !layer_.has_composites || is_made_of_parts(r)) return;
    if (r->numel && is_among(r, known())) {
      fail(RB_E_PLUGIN,
           "%s: %s returned a plain tensor that shares memory with a part of '%s': autograd would "
           "not see writes to it. Return a composite, or a copy",
           op_.name.c_str(), whose_().c_str(), op_.params[0].name);
    }
    protect(r);
  }

  bool says_views() const { return (layer_.desc.flags & RB_L_VIEWS) != 0; }
  // Others use the tensor, which is an object of its own class where the layer says what is a view,
  // or its storage, in whose place the view record may go.
  bool must_be_copied(const RbTensor* r) const {
    const Tensor* t = impl(r);
    const bool is_used = t->view || t->refs.load(std::memory_order_relaxed) > 1;
    return (is_used && !says_views()) || t->storage->refs.load(std::memory_order_relaxed) > 1;
  }
  static void replace(RbTensor*& r, Tensor* other) { release(std::exchange(r, other)); }

  static void protect(RbTensor*& r) {
    if (r->flags & RB_T_READONLY) return;
    if (impl(r)->view || impl(r)->refs.load(std::memory_order_relaxed) > 1)
      replace(r, tensor_alias(r));
    r->flags |= RB_T_READONLY;
  }

  void record(RbTensor*& r, int entry) const {
    if (impl(r)->view || op_.detached) return;
    if (entry > UINT16_MAX) fail_unrecorded(op_.name.c_str());
    set_view_record(impl(r), &op_, args_, nargs_, entry);
  }
  [[noreturn]] void fail_unrecorded(const char* name) const {
    fail(RB_E_NOTIMPL,
         "%s: %s returned a view, and how it was made cannot be recorded; return a copy", name,
         whose_().c_str());
  }

  const Storages& known() {
    if (known_.empty()) known_ = storages_of(base_);
    return known_;
  }

  const LayerEntry& layer_;
  const Op& op_;
  const RbValue* args_;
  const int32_t nargs_;
  const std::function<std::string()>& whose_;
  RbTensor* const base_;
  Storages known_;
};

}  // namespace

bool can_be_recorded(const RbValue* args, int32_t nargs) {
  constexpr uint32_t kKept = 1u << RB_NONE | 1u << RB_BOOL | 1u << RB_INT | 1u << RB_UINT |
                             1u << RB_FLOAT | 1u << RB_DTYPE | 1u << RB_DEVICE | 1u << RB_INTS |
                             1u << RB_LAYOUT;
  return std::all_of(args + 1, args + nargs, [](const RbValue& v) { return kKept >> v.tag & 1; });
}

void finish_views(const LayerEntry& layer, const Op& op, const RbValue* args, int32_t nargs,
                  RbValue* rets, int32_t nrets, const std::function<std::string()>& whose) {
  if (!(op.info.flags & (RB_OP_VIEW | RB_OP_MAYBE_VIEW)) || nrets != 1) return;
  if (args[0].tag != RB_TENSOR || !(args[0].v.t->flags & RB_T_COMPOSITE) ||
      body_of(args[0].v.t).layer != layer.bit)
    return;
  Finish finish(layer, op, args, nargs, whose);
  if (rets[0].tag == RB_TENSOR) {
    finish.run(rets[0].v.t, 0);
    return;
  }
  for (uint32_t k = 0; rets[0].tag == RB_TENSORS && k < rets[0].len; ++k)
    finish.run(const_cast<RbTensor**>(rets[0].v.ts)[k], static_cast<int>(k) + 1);
}

}  // namespace rabbet
