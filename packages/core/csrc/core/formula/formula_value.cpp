#include "formula/formula_value.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "call/check_call.h"
#include "call/dispatch.h"
#include "device/backends.h"
#include "rules/shape_rules.h"
#include "tensor/dtype.h"
#include "tensor/promotion.h"
#include "thread/error.h"

namespace rabbet {

Val Val::from(const RbValue& value) {
  if (value.tag == RB_INTS) {
    Val x = list();
    for (uint32_t i = 0; i < value.len; ++i) x.items->push_back(integer(value.v.is[i]));
    return x;
  }
  if (value.tag == RB_TENSORS) {
    Val x = list();
    for (uint32_t i = 0; i < value.len; ++i) {
      x.items->push_back(value.v.ts[i] ? borrow(value_tensor(value.v.ts[i])) : Val());
    }
    return x;
  }
  return borrow(value);
}

Val Val::complex(double re, double im) {
  Val x;
  x.parts_ = std::shared_ptr<double>(new double[2]{re, im}, std::default_delete<double[]>());
  x.v.tag = RB_COMPLEX;
  x.v.v.fs = x.parts_.get();
  return x;
}

Described describe(const Val& x) {
  Described d;
  if (x.tag() == RB_TENSOR) {
    const RbTensor* t = x.v.v.t;
    d = {true, t->ndim, t->dtype_id, t->backend, t->device.id, t->shape};
  } else if (x.tag() == RB_META) {
    const RbMeta* m = x.v.v.meta;
    d = {true, m->ndim, m->dtype_id, m->backend, m->device_index, m->shape};
  }
  return d;
}

Val as_list(const Val& v, const std::string& where) {
  if (!v.items) fail(RB_E_INTERNAL, "%s: a formula expected a list", where.c_str());
  return v;
}

std::string value_text(const Val& v) {
  if (v.items) {
    std::string text;
    for (const Val& item : *v.items) text += (text.empty() ? "" : ", ") + value_text(item);
    return "(" + text + (v.items->size() == 1 ? ",)" : ")");
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

double number_value(const Val& x) {
  return x.tag() == RB_FLOAT ? x.v.v.f : static_cast<double>(x.v.v.i);
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

RbValue take_tensor(Val& x, const std::string& where) {
  if (x.is_tensor()) {
    retain(x.v.v.t);
    return x.v;
  }
  if (x.is_number()) {
    static const Op* const full = find_op("full");
    RbValue args[4] = {value_none(), x.v, value_none(), value_none()};
    args[0].tag = RB_INTS;
    return value_tensor(call1(full, args, 4).release_ownership());
  }
  fail(RB_E_INTERNAL, "%s: a formula gave no tensor", where.c_str());
}

RbValue take_tensors(Val& x, const std::string& where) {
  const Val items = as_list(x, where);
  RbValue out = value_none();
  out.tag = RB_TENSORS;
  RbTensor** array = tensors_new(static_cast<uint32_t>(items.items->size()));
  out.v.ts = array;
  try {
    for (Val& item : *items.items) {
      if (item.tag() != RB_ZERO && item.tag() != RB_NONE)
        array[out.len] = take_tensor(item, where).v.t;
      ++out.len;
    }
  } catch (...) {
    value_release(&out);
    throw;
  }
  return out;
}

// ---- CallFrame

void CallFrame::set(int i, Val v) {
  const Param& p = op.params[i];
  given |= 1u << i;
  if (v.items) {
    if (p.type == RB_A_TENSORS) {
      std::vector<RbTensor*> list;
      for (Val& item : *v.items) list.push_back(item.is_tensor() ? item.v.v.t : nullptr);
      tensors_.push_back(std::move(list));
      values[i].tag = RB_TENSORS;
      values[i].len = static_cast<uint32_t>(tensors_.back().size());
      values[i].v.ts = tensors_.back().data();
    } else {
      std::vector<int64_t> list;
      for (Val& item : *v.items) list.push_back(item.v.v.i);
      ints_.push_back(std::move(list));
      values[i].tag = RB_INTS;
      values[i].len = static_cast<uint32_t>(ints_.back().size());
      values[i].v.is = ints_.back().data();
    }
  } else {
    values[i] = v.v;
    const bool wants_list = p.type == RB_A_INTS || p.type == RB_A_DIMS || p.type == RB_A_SIZE;
    if (wants_list && v.tag() == RB_INT) {
      ints_.emplace_back(p.fixed_len ? p.fixed_len : 1, v.v.v.i);
      values[i].tag = RB_INTS;
      values[i].len = static_cast<uint32_t>(ints_.back().size());
      values[i].v.is = ints_.back().data();
    }
    if (p.type == RB_A_FLOAT && (v.tag() == RB_INT || v.tag() == RB_BOOL)) {
      values[i] = value_float(static_cast<double>(v.v.v.i));
    }
  }
  if (i < 6) {
    first_[i] = std::move(v);
  } else {
    others_.emplace_back(i, std::move(v));
  }
}

bool CallFrame::has_tensors() const {
  return std::any_of(values, values + count,
                     [](const RbValue& v) { return v.tag == RB_TENSOR || v.tag == RB_TENSORS; });
}

Val CallFrame::kept(int i) const {
  if (i < 6) return first_[i];
  for (auto& [index, value] : others_) {
    if (index == i) return value;
  }
  return Val::borrow(values[i]);
}

void CallFrame::fill_defaults() {
  for (int i = 0; i < count; ++i) {
    if (!(given >> i & 1)) values[i] = op.params[i].default_value;
  }
}

Val CallFrame::run() {
  RbValue rets[8];
  const int nrets = op.info.nrets;
  for (int i = 0; i < nrets; ++i) rets[i] = value_none();
  check(check_call(&op, values, count, rets, nrets, 0));
  check(call(&op, values, count, rets, nrets));
  if (nrets == 1 && rets[0].tag == RB_TENSOR) return Val::own(TensorRef(rets[0].v.t));
  Val list = Val::list();
  if (nrets == 1) {
    for (uint32_t i = 0; i < rets[0].len; ++i)
      list.items->push_back(Val::own(TensorRef(rets[0].v.ts[i])));
    std::free(const_cast<RbTensor**>(rets[0].v.ts));
  } else {
    for (int i = 0; i < nrets; ++i) list.items->push_back(Val::own(TensorRef(rets[i].v.t)));
  }
  return list;
}

}  // namespace rabbet
