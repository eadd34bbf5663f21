#include "formula/formula_value.h"

#include <algorithm>

#include "tensor/dtype.h"
#include "tensor/shape.h"
#include "thread/error.h"

namespace rabbet {

void fail_formula(const std::string& name, const std::string& message) {
  const Op* op = find_op(name.c_str());
  const bool of_core = op ? op->of_core : name.find("::") == std::string::npos;
  fail(of_core ? RB_E_INTERNAL : RB_E_PLUGIN, "%s%s: %s", op ? (op->file + ": ").c_str() : "",
       name.c_str(), message.c_str());
}

/// Memory of lists and complex numbers; counted, by one thread.
struct Shared {
  int64_t count = 0;
  std::vector<int64_t> ints;
  std::vector<Val> items;
  double parts[2] = {0, 0};
};

namespace {
Shared* shared_of(uintptr_t owner) { return reinterpret_cast<Shared*>(owner & ~uintptr_t{1}); }
RbTensor* tensor_of(uintptr_t owner) { return reinterpret_cast<RbTensor*>(owner); }
}  // namespace

void Val::keep() const {
  if (owner_ & 1) {
    ++shared_of(owner_)->count;
  } else if (owner_) {
    retain(tensor_of(owner_));
  }
}

void Val::drop() {
  if (!(owner_ & 1)) {
    release(tensor_of(owner_));
  } else if (--shared_of(owner_)->count == 0) {
    delete shared_of(owner_);
  }
}

Val Val::shared(uint32_t tag, Shared* memory) {
  Val x;
  x.v.tag = tag;
  x.owner_ = reinterpret_cast<uintptr_t>(memory) | 1;
  memory->count = 1;
  return x;
}

Val Val::complex(double re, double im) {
  auto* memory = new Shared;
  memory->parts[0] = re;
  memory->parts[1] = im;
  Val x = shared(RB_COMPLEX, memory);
  x.v.v.fs = memory->parts;
  return x;
}

Val Val::ints(std::vector<int64_t> values) {
  auto* memory = new Shared;
  memory->ints = std::move(values);
  Val x = shared(RB_INTS, memory);
  x.v.len = static_cast<uint32_t>(memory->ints.size());
  x.v.v.is = memory->ints.data();
  return x;
}

Val Val::list(std::vector<Val> items) {
  const bool whole =
      std::all_of(items.begin(), items.end(), [](const Val& v) { return v.tag() == RB_INT; });
  if (whole) {
    std::vector<int64_t> values;
    for (const Val& v : items) values.push_back(v.v.v.i);
    return ints(std::move(values));
  }
  auto* memory = new Shared;
  memory->items = std::move(items);
  Val x = shared(RB_OBJECT, memory);
  x.v.len = static_cast<uint32_t>(memory->items.size());
  return x;
}

Val Val::shape_of(Val x, const int64_t* shape, int ndim) {
  x.v = value_ints(shape, ndim);
  return x;
}

Val Val::at(size_t i) const {
  if (v.tag == RB_INTS) return integer(v.v.is[i]);
  if (v.tag == RB_TENSORS) return v.v.ts[i] ? borrow(value_tensor(v.v.ts[i])) : Val();
  return shared_of(owner_)->items[i];
}

RbTensor* Val::take() {
  if (owner_ == reinterpret_cast<uintptr_t>(v.v.t)) {
    owner_ = 0;
  } else {
    retain(v.v.t);
  }
  return v.v.t;
}

Described describe(const RbValue& x) {
  Described d;
  if (x.tag == RB_TENSOR) {
    const RbTensor* t = x.v.t;
    d = {true, t->ndim, t->dtype_id, t->backend, t->device.id, t->shape};
  } else if (x.tag == RB_META) {
    const RbMeta* m = x.v.meta;
    d = {true, m->ndim, m->dtype_id, m->backend, m->device_index, m->shape};
  }
  return d;
}

std::string value_text(const Val& v) {
  if (v.is_list()) {
    std::string text;
    for (size_t i = 0; i < v.size(); ++i) text += (i ? ", " : "") + value_text(v.at(i));
    return "(" + text + (v.size() == 1 ? ",)" : ")");
  }
  switch (v.tag()) {
    case RB_NONE:
      return "None";
    case RB_BOOL:
      return v.v.v.i ? "True" : "False";
    case RB_INT:
      return std::to_string(v.v.v.i);
    case RB_FLOAT: {
      char text[32];
      std::snprintf(text, sizeof text, "%g", v.v.v.f);
      return text;
    }
    case RB_COMPLEX: {
      char text[64];
      std::snprintf(text, sizeof text, "%g%+gj", v.v.v.fs[0], v.v.v.fs[1]);
      return text;
    }
    case RB_STR:
      return std::string(v.v.v.s, v.v.len);
    case RB_DTYPE:
      return kDTypes[v.v.v.i].name;
    case RB_TENSOR:
      return "a tensor of shape " + shape_text(v.v.v.t->ndim, v.v.v.t->shape);
    default:
      return "?";
  }
}

double number_value(const RbValue& x) {
  return x.tag == RB_FLOAT ? x.v.f : static_cast<double>(x.v.i);
}

Val negate_number(const Val& x) {
  switch (x.tag()) {
    case RB_FLOAT:
      return Val::number(-x.v.v.f);
    case RB_COMPLEX:
      return Val::complex(-x.v.v.fs[0], -x.v.v.fs[1]);
    default:
      return Val::integer(-x.v.v.i);
  }
}

Val conj_number(const Val& x) {
  return x.tag() == RB_COMPLEX ? Val::complex(x.v.v.fs[0], -x.v.v.fs[1]) : x;
}

bool truth(const RbValue& v, const Op& op) {
  switch (v.tag) {
    case RB_NONE:
    case RB_ZERO:
      return false;
    case RB_BOOL:
    case RB_INT:
      return v.v.i != 0;
    case RB_FLOAT:
      return v.v.f != 0;
    case RB_STR:
    case RB_INTS:
    case RB_TENSORS:
    case RB_OBJECT:
      return v.len != 0;
    default:
      fail_formula(op.name, "a condition must be host data, not a tensor");
  }
}

bool is_zero(const RbValue& v) {
  if (v.tag == RB_ZERO || v.tag == RB_NONE) return true;
  return v.tag >= RB_BOOL && v.tag <= RB_FLOAT && number_value(v) == 0;
}

bool vanishes(const Op& op, const RbValue* values, uint32_t given) {
  bool linear = false;
  for (size_t i = 0; i < op.params.size(); ++i) {
    if (!(op.params[i].flags & (RB_ARG_LINEAR | RB_ARG_BILINEAR))) continue;
    linear = true;
    if (!(given >> i & 1)) continue;
    const RbValue& v = values[i];
    if (v.tag == RB_TENSOR || (v.tag == RB_FLOAT && v.v.f != 0) || (v.tag == RB_INT && v.v.i != 0))
      return false;
  }
  return linear;
}

}  // namespace rabbet
