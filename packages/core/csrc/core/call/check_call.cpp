#include "call/check_call.h"

#include <algorithm>
#include <string>

#include "device/backends.h"
#include "record/op.h"
#include "tensor/dtype.h"
#include "thread/error.h"

namespace rabbet {

namespace {

constexpr uint32_t bit(int tag) { return 1u << tag; }
constexpr uint32_t kLastTag = RB_LAYOUT;
constexpr uint32_t kNumber =
    bit(RB_BOOL) | bit(RB_INT) | bit(RB_UINT) | bit(RB_FLOAT) | bit(RB_COMPLEX);
constexpr uint32_t kInts = bit(RB_INTS) | bit(RB_INT) | bit(RB_BOOL);

// The tags that core and kernels can read where the record says the type RB_A_*.
constexpr uint32_t kReadable[] = {
    bit(RB_TENSOR),                 // tensor
    bit(RB_TENSORS),                // tensors
    kNumber,                        // scalar
    bit(RB_INT) | bit(RB_BOOL),     // int
    kNumber,                        // float
    bit(RB_BOOL) | bit(RB_INT),     // bool
    bit(RB_STR),                    // str
    bit(RB_DTYPE),                  // dtype
    bit(RB_DEVICE),                 // device
    bit(RB_GENERATOR),              // generator
    bit(RB_INT) | bit(RB_BOOL),     // dim
    bit(RB_INT) | bit(RB_BOOL),     // newdim
    kInts,                          // dims
    kInts,                          // perm
    kInts,                          // size
    kInts,                          // bsize
    kInts,                          // ints
    bit(RB_FLOATS) | bit(RB_INTS),  // floats
    bit(RB_BOOLS),                  // bools
    bit(RB_STRS),                   // strs
    bit(RB_SCALARS),                // scalars
    bit(RB_LAYOUT),                 // layout
    bit(RB_OBJECT)                  // callable
};
static_assert(sizeof kReadable / sizeof *kReadable == RB_A_CALLABLE + 1);

bool is_sound_number(const RbValue& v) {
  return v.tag <= kLastTag && (kNumber >> v.tag & 1) && (v.tag != RB_COMPLEX || v.v.p);
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

}  // namespace

int32_t check_call(const Op* op, const RbValue* args, int32_t nargs, const RbValue* rets,
                   int32_t nrets, uint32_t flags) {
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
