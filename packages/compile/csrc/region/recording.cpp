#include "region/recording.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <utility>

#include "region/results.h"
#include "region/shapes.h"

namespace compile {

namespace {

constexpr size_t kLongestText = 32;

// The same text for as long as the process lives; null: too long to keep.
const char* intern(const char* text, uint32_t length) {
  static std::set<std::string>* const texts = new std::set<std::string>;
  if (length > kLongestText || texts->size() > 1000) return nullptr;
  return texts->emplace(text, length).first->c_str();
}

// Bytes from the first element of `t` to the end of the last one, whatever its strides.
struct Range {
  const char *begin, *end;
  explicit Range(const RbTensor* t) {
    const int64_t item = item_size(t->dtype_id);
    int64_t low = 0, high = item;
    for (int d = 0; d < t->ndim; ++d) {
      const int64_t reach = (t->shape[d] - 1) * t->strides[d] * item;
      (reach < 0 ? low : high) += reach;
    }
    begin = static_cast<const char*>(t->data) + low;
    end = t->numel && t->data ? static_cast<const char*>(t->data) + high : begin;
  }
  bool meets(const Value& v) const { return begin < v.data + v.bytes && v.data < end; }
  bool meets(const Range& other) const { return begin < other.end && other.begin < end; }
};

// Whether two row-major tensors show the same elements in the same shape.
bool are_alike(const RbTensor* a, const RbTensor* b) {
  return a->data == b->data && a->dtype_id == b->dtype_id && a->ndim == b->ndim &&
         std::equal(a->shape, a->shape + a->ndim, b->shape);
}

RbMemory memory_of(const RbTensor* t) {
  RbMemory memory{};
  memory.struct_size = RB_SIZE(RbMemory, nbytes);
  trace->memory_get(t, &memory);
  return memory;
}
bool is_exposed(const RbTensor* t) { return memory_of(t).flags & RB_MEMORY_EXPOSED; }
bool has_other_tensors(const RbTensor* alias) { return memory_of(alias).tensors > 1; }

}  // namespace

int item_size(int32_t dtype) {
  static const auto sizes = [] {
    std::array<int, RB_DTYPE_COUNT> found{};
    for (int d = 0; d < RB_DTYPE_COUNT; ++d) found[d] = rb::dtype_info(d).itemsize;
    return found;
  }();
  return dtype >= 0 && dtype < RB_DTYPE_COUNT ? sizes[dtype] : rb::dtype_info(dtype).itemsize;
}

// The tensors of a call, as `resolve` and `place` find them.
struct Recording::Operands {
  int32_t dtype = -1;  // that the operator computes with
  RbPointwise kernel{RB_SIZE(RbPointwise, checks), 0, nullptr, nullptr, 0, 0};
  Shape shape;
  int64_t cols = 0;
  RbTensor* tensors[kMostArguments] = {};
  Extent extents[kMostArguments];
  int16_t values[kMostArguments];  // -1: not known yet
};

std::string Node::text() const {
  const std::string name = host->op_info(op)->name;
  return source.empty() ? name : name + " (" + source + ")";
}

int Recording::find(const RbTensor* t, Extent extent) const {
  for (int i = nvalues_ - 1; i >= 0; --i) {
    const Value& v = values_[i];
    if (v.current && v.held && v.extent == extent && v.data == t->data && v.dtype == t->dtype_id &&
        v.bytes == static_cast<uint64_t>(t->numel) * v.itemsize)
      return i;
  }
  return -1;
}

template <class Test>
bool Recording::any_meets(const RbTensor* t, Test&& test) const {
  const Range range(t);
  for (int i = 0; i < nvalues_; ++i) {
    if (values_[i].held && range.meets(values_[i]) && test(values_[i])) return true;
  }
  return false;
}

bool Recording::writes(const RbTensor* t) const {
  return any_meets(t, [](const Value& v) { return v.node >= 0; });
}
bool Recording::uses(const RbTensor* t) const {
  return any_meets(t, [](const Value&) { return true; });
}

bool Recording::uses_memory_of(const RbTensor* t) const {
  const RbMemory memory = memory_of(t);
  const auto* begin = static_cast<const char*>(memory.data);
  return std::any_of(values_, values_ + nvalues_, [&](const Value& v) {
    return v.held && begin < v.data + v.bytes && v.data < begin + memory.nbytes;
  });
}

// The checks that look at the arguments alone.
Recording::Outcome Recording::resolve(const RbValue* args, int32_t nargs, Operands& ops) const {
  for (int32_t i = 0; i < nargs; ++i) {
    switch (args[i].tag) {
      case RB_TENSOR: {
        RbTensor* t = args[i].v.t;
        if (!is_row_major(t) || !broadcast(ops.shape, t)) return Outcome::kUnsuited;
        ops.tensors[i] = t;
        break;
      }
      case RB_NONE:
      case RB_INT:
      case RB_FLOAT:
        break;
      case RB_STR:
        if (!intern(args[i].v.s, args[i].len)) return Outcome::kUnsuited;
        break;
      default:
        return Outcome::kUnsuited;
    }
  }
  return Outcome::kRecorded;
}

// How the tensors overlap with each other and with the recording.
Recording::Outcome Recording::place(Operands& ops, const RbTensor* target) const {
  bool conflict = !is_empty() && numel_ != ops.shape.numel;
  bool any_full = false;
  for (int i = 0; i < kMostArguments; ++i) {
    RbTensor* t = ops.tensors[i];
    if (!t) continue;
    int64_t cols = 0;
    if (!extent_of(t, ops.shape, &ops.extents[i], &cols)) return Outcome::kUnsuited;
    any_full = any_full || ops.extents[i] == Extent::kFull;
    if (cols) {
      if (ops.cols && ops.cols != cols) return Outcome::kUnsuited;
      ops.cols = cols;
    }
    const int known = find(t, ops.extents[i]);
    ops.values[i] = static_cast<int16_t>(known);
    if (known < 0 && is_exposed(t)) return Outcome::kUnsuited;
    if (known < 0 && writes(t)) conflict = true;
    // A tensor that is written is one of the arguments, or shares no memory with them.
    if (target && t != target && Range(t).meets(Range(target)) && !are_alike(t, target))
      return Outcome::kUnsuited;
  }
  if (!any_full) return Outcome::kUnsuited;
  if (ops.cols && cols_ && ops.cols != cols_) conflict = true;
  if (target && any_meets(target, [&](const Value& v) {
        return v.data != target->data || v.dtype != target->dtype_id ||
               v.bytes != static_cast<uint64_t>(target->numel) * v.itemsize;
      }))
    conflict = true;
  if (nnodes_ == kMostNodes || nvalues_ + kMostArguments + 1 > kMostValues) conflict = true;
  if (abandoned() > kMostAbandoned) conflict = true;
  return conflict ? Outcome::kConflict : Outcome::kRecorded;
}

int Recording::abandoned() const {
  return static_cast<int>(std::count_if(values_, values_ + nvalues_, [](const Value& v) {
    return v.node < 0 && v.held && v.extent == Extent::kFull && !has_other_tensors(v.held);
  }));
}

int16_t Recording::add_operand(RbTensor* t, Extent extent) {
  RbTensor* held = nullptr;
  rb::check(host->tensor_alias(t, &held));
  const int item = item_size(t->dtype_id);
  values_[nvalues_] = {held,
                       static_cast<char*>(t->data),
                       static_cast<uint64_t>(t->numel) * item,
                       -1,
                       t->dtype_id,
                       static_cast<uint8_t>(item),
                       extent,
                       false,
                       true};
  return static_cast<int16_t>(nvalues_++);
}

namespace {

// Whether core would write the result to `t` without resizing, casting or refusing.
bool is_plain_target(const RbTensor* t, const Shape& shape, int32_t dtype) {
  if (!is_row_major(t) || t->dtype_id != dtype || t->ndim != shape.ndim || is_exposed(t))
    return false;
  for (int d = 0; d < t->ndim; ++d) {
    if (t->shape[d] != shape.dims[d]) return false;
  }
  const uint32_t harmless = RB_T_VIEW | rb::thread_get().tensor_flags;
  return (t->flags & ~harmless) == RB_T_CONTIGUOUS;
}

}  // namespace

Recording::Outcome Recording::record(const RbCall& c, const RbOpInfo& info, const RbValue* args,
                                     int32_t nargs, RbValue* rets, const std::string& source) {
  if (nargs > kMostArguments) return Outcome::kUnsuited;
  Operands ops;
  if (const Outcome outcome = resolve(args, nargs, ops); outcome != Outcome::kRecorded)
    return outcome;
  int32_t first = -1;  // argument whose dtype it computes with
  for (int32_t i = 0; i < nargs; ++i) {
    if (!ops.tensors[i]) continue;
    if (first < 0 || (!(RB_ARG(&info, first)->flags & RB_ARG_COMPUTED) &&
                      RB_ARG(&info, i)->flags & RB_ARG_COMPUTED))
      first = i;
  }
  if (first < 0) return Outcome::kUnsuited;
  ops.dtype = ops.tensors[first]->dtype_id;
  if (trace->pointwise_kernel(c.op, cpu, ops.dtype, &ops.kernel) != RB_OK)
    return Outcome::kUnsuited;
  for (int32_t i = 0; i < nargs; ++i) {
    if (!ops.tensors[i] || ops.tensors[i]->dtype_id == ops.dtype) continue;
    const bool masks = ops.tensors[i]->dtype_id == RB_BOOL8 && !ops.kernel.all &&
                       !(RB_ARG(&info, i)->flags & RB_ARG_COMPUTED);
    if (!masks) return Outcome::kUnsuited;
  }
  RbTensor* const target = c.flags & RB_CALL_OUT ? rets[0].v.t : nullptr;
  const int made = result_dtype(c.op, info, ops.kernel, ops.dtype, args, nargs, ops.shape.numel);
  if (made < 0 || (target && !is_plain_target(target, ops.shape, made))) return Outcome::kUnsuited;
  if (const Outcome outcome = place(ops, target); outcome != Outcome::kRecorded) return outcome;

  drop_dead();
  RbTensor* fresh = nullptr;
  RbTensor* result = target;
  if (!target) {
    if (host->tensor_new(cpu, 0, made, ops.shape.ndim, ops.shape.dims, nullptr, &fresh) != RB_OK) {
      host->err_clear();
      return Outcome::kUnsuited;  // the call as it is says so
    }
    result = fresh;
  }
  numel_ = ops.shape.numel;
  if (ops.cols) cols_ = ops.cols;

  Node& node = nodes_[nnodes_];
  node.op = c.op;
  node.kernel = ops.kernel;
  node.nargs = static_cast<int16_t>(nargs);
  node.source = source;
  for (int32_t i = 0; i < nargs; ++i) {
    Node::Argument& arg = node.args[i];
    arg.value = -1;
    arg.literal = args[i];
    if (args[i].tag == RB_STR) arg.literal.v.s = intern(args[i].v.s, args[i].len);
    if (!ops.tensors[i]) continue;
    const int known = ops.values[i] >= 0 ? ops.values[i] : find(ops.tensors[i], ops.extents[i]);
    arg.value =
        known >= 0 ? static_cast<int16_t>(known) : add_operand(ops.tensors[i], ops.extents[i]);
  }
  const int before = target ? find(target, Extent::kFull) : -1;
  const int16_t at = add_operand(result, Extent::kFull);
  values_[at].node = static_cast<int16_t>(nnodes_);
  values_[at].made = !target || (before >= 0 && values_[before].made);
  if (before >= 0) {
    values_[before].current = false;
    if (values_[before].made) host->release(std::exchange(values_[before].held, nullptr));
  }
  node.result = at;
  ++nnodes_;
  if (target) {
    host->version_bump(target);
  } else {
    rets[0] = rb::tensor_value(fresh);
  }
  return Outcome::kRecorded;
}

void Recording::drop_dead() {
  for (int i = 0; i < nvalues_; ++i) {
    Value& v = values_[i];
    if (!v.made || !v.held || has_other_tensors(v.held)) continue;
    host->release(std::exchange(v.held, nullptr));
    v.current = false;
  }
}

void Recording::clear() {
  for (int i = 0; i < nvalues_; ++i) {
    if (values_[i].held) host->release(values_[i].held);
  }
  nnodes_ = nvalues_ = 0;
  numel_ = cols_ = 0;
}

}  // namespace compile
