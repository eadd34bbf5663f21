#include "call/check_call.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "device/backends.h"
#include "record/op.h"
#include "tensor/dtype.h"
#include "tensor/tensor.h"
#include "thread/error.h"

namespace rabbet {

namespace {

constexpr uint32_t bit(int tag) { return 1u << tag; }
constexpr uint32_t kLastTag = RB_LAYOUT;
constexpr uint32_t kNumber =
    bit(RB_BOOL) | bit(RB_INT) | bit(RB_UINT) | bit(RB_FLOAT) | bit(RB_COMPLEX);

// The tags of values of the type RB_A_* that the record says: core and kernels read no others.
constexpr uint32_t kReadable[] = {
    bit(RB_TENSOR),     // tensor
    bit(RB_TENSORS),    // tensors
    kNumber,            // scalar
    bit(RB_INT),        // int
    bit(RB_FLOAT),      // float
    bit(RB_BOOL),       // bool
    bit(RB_STR),        // str
    bit(RB_DTYPE),      // dtype
    bit(RB_DEVICE),     // device
    bit(RB_GENERATOR),  // generator
    bit(RB_INT),        // dim
    bit(RB_INT),        // newdim
    bit(RB_INTS),       // dims
    bit(RB_INTS),       // perm
    bit(RB_INTS),       // size
    bit(RB_INTS),       // bsize
    bit(RB_INTS),       // ints
    bit(RB_FLOATS),     // floats
    bit(RB_BOOLS),      // bools
    bit(RB_STRS),       // strs
    bit(RB_SCALARS),    // scalars
    bit(RB_LAYOUT),     // layout
    bit(RB_OBJECT)      // callable
};
static_assert(sizeof kReadable / sizeof *kReadable == RB_A_CALLABLE + 1);

bool is_sound_number(const RbValue& v) {
  return v.tag <= kLastTag && (kNumber >> v.tag & 1) && (v.tag != RB_COMPLEX || v.v.p);
}

// Whether a list has as many ints as the record says, which a kernel may read unasked.
inline bool has_length(const Param& p, uint32_t len) {
  return !p.fixed_len || len == static_cast<uint32_t>(p.fixed_len) ||
         (!len && p.has_default && !p.default_value.len);
}

inline bool fits(const Op& op, int i, const RbValue& v) {
  const RbArgInfo& arg = op.arg_infos[i];
  if (__builtin_expect(v.tag == RB_TENSOR, 1)) return arg.type == RB_A_TENSOR && v.v.t;
  if (v.tag == RB_NONE) return (arg.flags & RB_ARG_OPTIONAL) || op.params[i].has_default;
  if (v.tag > kLastTag || !(kReadable[arg.type] >> v.tag & 1))
    return arg.type == RB_A_TENSOR && v.tag <= kLastTag && (kNumber >> v.tag & 1) &&
           op.takes_numbers();
  switch (v.tag) {
    case RB_TENSORS:
      if (v.len && !v.v.ts) return false;
      for (uint32_t k = 0; k < v.len; ++k) {
        if (!v.v.ts[k] && !op.params[i].optional_items) return false;
      }
      return true;
    case RB_INTS:
      return (!v.len || v.v.p) && has_length(op.params[i], v.len);
    case RB_FLOATS:
    case RB_BOOLS:
      return !v.len || v.v.p;
    case RB_STRS:
      return !v.len || (v.v.ss && std::all_of(v.v.ss, v.v.ss + v.len, [](auto* s) { return s; }));
    case RB_SCALARS:
      return !v.len || (v.v.vs && std::all_of(v.v.vs, v.v.vs + v.len, is_sound_number));
    case RB_COMPLEX:
    case RB_STR:
    case RB_OBJECT:
      return v.v.p;
    case RB_LAYOUT:
      return v.v.i == RB_STRIDED;
    case RB_DTYPE:
      return is_dtype(v.v.i);
    case RB_DEVICE:
      return v.v.dev.backend >= 0 && v.v.dev.backend < backend_count();
    default:
      return true;
  }
}

// Whether the value can stand for the tensor in a derivative's formula.
inline bool stands_for_tensor(const RbValue& v) {
  switch (v.tag) {
    case RB_NONE:
      return true;
    case RB_TENSOR:
    case RB_META:
      return v.v.p;
    case RB_TENSORS:
      return !v.len || v.v.p;
    default:
      return false;
  }
}
inline bool fits_derivative(const Op& op, int i, const RbValue& v) {
  if (v.tag == RB_META) return op.arg_infos[i].type == RB_A_TENSOR && v.v.p;
  return v.tag == RB_NONE || fits(op, i, v);
}

const char* tag_name(uint32_t tag) {
  static const char* const names[] = {
      "None",      "a bool",          "an int",      "a float",   "a complex number",
      "a dtype",   "a device",        "a str",       "a tensor",  "tensors",
      "ints",      "floats",          "a generator", "an RbMeta", "RB_ZERO",
      "an object", "an unsigned int", "bools",       "strs",      "numbers",
      "a layout"};
  return tag <= kLastTag ? names[tag] : "a value of unknown tag";
}

std::string text(const RbValue& v) {
  if (v.tag == RB_DTYPE) return "a dtype of id " + std::to_string(v.v.i);
  if (v.tag == RB_DEVICE) return "a device of backend " + std::to_string(v.v.dev.backend);
  return tag_name(v.tag) + std::string(v.tag == RB_TENSOR && !v.v.t ? " (null)" : "");
}

bool is_int_list(int type) {
  return type == RB_A_DIMS || type == RB_A_PERM || type == RB_A_SIZE || type == RB_A_BSIZE ||
         type == RB_A_INTS;
}
bool is_whole(const RbValue& v) {
  return v.tag == RB_INT || v.tag == RB_BOOL || (v.tag == RB_UINT && v.v.i >= 0);
}

}  // namespace

struct Converted::Room {
  RbValue values[RB_MAX_ARGS];
  std::deque<std::vector<int64_t>> ints;
  std::deque<std::vector<double>> floats;

  // In place; false: there is no such conversion.
  bool convert(const Param& p, RbValue& v) {
    if (is_int_list(p.type)) {
      const bool one = v.tag == RB_INTS && v.len == 1 && v.v.is;
      if (!one && v.tag != RB_INT) return false;
      ints.emplace_back(p.fixed_len ? p.fixed_len : 1, one ? v.v.is[0] : v.v.i);
      v = value_ints(ints.back().data(), static_cast<int>(ints.back().size()));
      return true;
    }
    switch (p.type) {
      case RB_A_INT:
      case RB_A_DIM:
      case RB_A_NEWDIM:
        if (!is_whole(v)) return false;
        v = value_int(v.v.i);
        return true;
      case RB_A_BOOL:
        if (v.tag != RB_INT || (v.v.i & ~int64_t{1})) return false;
        v = value_bool(v.v.i != 0);
        return true;
      case RB_A_FLOAT:
        if (v.tag != RB_INT && v.tag != RB_BOOL && v.tag != RB_UINT) return false;
        v = value_float(v.tag == RB_UINT ? static_cast<double>(v.v.u) : static_cast<double>(v.v.i));
        return true;
      case RB_A_FLOATS:
        if (v.tag != RB_INTS || (v.len && !v.v.is)) return false;
        floats.emplace_back(v.v.is, v.v.is + v.len);
        v.tag = RB_FLOATS;
        v.v.fs = floats.back().data();
        return true;
      default:
        return false;
    }
  }
};

bool Converted::convert(const Op& op, const RbValue*& args, int32_t nargs, int i) {
  RbValue v = args[i];
  std::unique_ptr<Room> made(room_ ? nullptr : new Room);
  Room& room = made ? *made : *room_;
  if (!room.convert(op.params[i], v)) return false;
  if (made) {
    std::copy(args, args + nargs, room.values);
    args = room.values;
    room_ = made.release();
  }
  room.values[i] = v;
  return true;
}
void Converted::drop() { delete room_; }

int32_t check_call(const Op* op, const RbValue*& args, int32_t nargs, const RbValue* rets,
                   int32_t nrets, uint32_t flags, Converted& converted) {
  if (__builtin_expect(!op, 0)) return set_error(RB_E_ARG, "call: the operator is null");
  if (__builtin_expect(nargs < 0 || nargs > op->info.nargs || (nargs && !args), 0)) {
    return set_error(RB_E_ARG, op->name + ": expected " + std::to_string(op->info.nargs) +
                                   " arguments, got " + std::to_string(nargs) +
                                   (args ? "" : " at a null pointer"));
  }
  if (__builtin_expect(nrets != op->info.nrets || (nrets && !rets), 0)) {
    return set_error(RB_E_ARG, op->name + ": it has " + std::to_string(op->info.nrets) +
                                   " results, but there is room for " +
                                   std::to_string(rets ? nrets : 0));
  }
  for (int32_t i = 0; i < nargs; ++i) {
    if (__builtin_expect(fits(*op, i, args[i]), 1)) continue;
    if (converted.convert(*op, args, nargs, i)) continue;
    if (args[i].tag == RB_INTS && args[i].v.p && is_int_list(op->params[i].type)) {
      return set_error(RB_E_ARG, op->name + ": the argument '" + op->params[i].name_text +
                                     "' must have " + std::to_string(op->params[i].fixed_len) +
                                     " ints, got " + std::to_string(args[i].len));
    }
    return set_error(RB_E_TYPE, op->name + ": the argument '" + op->params[i].name_text +
                                    "' cannot be " + text(args[i]));
  }
  if (flags & RB_CALL_OUT) {
    for (int32_t i = 0; i < nrets; ++i) {
      if (rets[i].tag != RB_TENSOR || !rets[i].v.t)
        return set_error(RB_E_TYPE, op->name + ": a destination is no tensor");
    }
  }
  return RB_OK;
}

int32_t missing_argument(const Op& op, int32_t i) {
  return set_error(RB_E_TYPE,
                   op.name + ": the argument '" + op.params[i].name_text + "' is missing");
}

void check_derivative(const char* what, const Op& op, const RbValue* args, const RbValue* outs) {
  for (int32_t i = 0; i < op.info.nargs; ++i) {
    if (__builtin_expect(fits_derivative(op, i, args[i]), 1)) continue;
    fail(RB_E_TYPE, "%s of %s: the argument '%s' cannot be %s", what, op.name.c_str(),
         op.params[i].name, text(args[i]).c_str());
  }
  for (int32_t i = 0; i < op.info.nrets; ++i) {
    if (__builtin_expect(stands_for_tensor(outs[i]), 1)) continue;
    fail(RB_E_TYPE, "%s of %s: result %d cannot be %s", what, op.name.c_str(), i,
         text(outs[i]).c_str());
  }
}

bool is_moved(const RbValue& v) { return (v.tag == RB_TENSOR && v.v.t) || v.tag == RB_ZERO; }

void fail_moved(const char* what, const Op& op, const std::string& which, const RbValue& v) {
  fail(RB_E_TYPE, "%s of %s: the %s cannot be %s", what, op.name.c_str(), which.c_str(),
       text(v).c_str());
}

}  // namespace rabbet
