#include "tensor/promotion.h"

#include <cmath>
#include <cstdio>

#include "tensor/dtype.h"
#include "thread/error.h"

namespace rabbet {

int number_dtype(const RbValue& number) {
  switch (number.tag) {
    case RB_BOOL:
      return RB_BOOL8;
    case RB_FLOAT:
      return default_dtype();
    case RB_COMPLEX:
      return to_complex(default_dtype());
    default:
      return RB_I64;
  }
}

namespace {

double max_of(int dtype) {
  const DTypeInfo& d = kDTypes[dtype];
  if (d.category != kInt) return d.max;
  return std::ldexp(1.0, d.bits - (d.kind == RB_CLASS_INT)) - 1;  // of 64 bits: rounded up
}

bool integer_fits(const RbValue& v, int dtype) {
  const DTypeInfo& d = kDTypes[dtype];
  if (d.category != kInt)
    return v.tag == RB_UINT ? double(v.v.u) <= d.max : std::fabs(double(v.v.i)) <= d.max;
  const bool is_signed = d.kind == RB_CLASS_INT;
  const uint64_t max = ~uint64_t{0} >> (64 - d.bits + is_signed);
  if (v.tag == RB_UINT || v.v.i >= 0) return v.v.u <= max;
  return -static_cast<uint64_t>(v.v.i) <= max + is_signed;
}

bool float_fits(double f, int dtype) {
  const DTypeInfo& d = kDTypes[dtype];
  if (d.category != kInt) return !std::isfinite(f) || std::fabs(f) <= d.max;
  const double max = max_of(dtype);
  return f <= max && f >= (d.kind == RB_CLASS_INT ? -max - (d.bits < 64) : 0.0);  // NaN does not
}

}  // namespace

bool number_fits(const RbValue& v, int dtype) {
  const Category category = kDTypes[dtype].category;
  if (category == kBool || category == kOpaque || v.tag == RB_BOOL) return true;
  if (v.tag == RB_COMPLEX) {
    return float_fits(v.v.fs[0], dtype) &&
           (category == kComplex ? float_fits(v.v.fs[1], dtype) : v.v.fs[1] == 0);
  }
  return v.tag == RB_FLOAT ? float_fits(v.v.f, dtype) : integer_fits(v, dtype);
}

void check_number_fits(const char* op, const char* argument, const RbValue& number, int dtype) {
  if (number_fits(number, dtype)) return;
  char text[64];
  if (number.tag == RB_INT || number.tag == RB_UINT) {
    std::snprintf(text, sizeof text, number.tag == RB_INT ? "%lld" : "%llu",
                  static_cast<long long>(number.v.i));
  } else if (number.tag == RB_COMPLEX) {
    std::snprintf(text, sizeof text, "%g%+gj", number.v.fs[0], number.v.fs[1]);
  } else {
    std::snprintf(text, sizeof text, "%g", number.v.f);
  }
  fail(RB_E_ARG, "%s: value cannot be converted to type %s without overflow: '%s' is %s", op,
       kDTypes[dtype].name, argument, text);
}

void Promotion::join(int& into, int dtype) { into = into < 0 ? dtype : promote(into, dtype); }

namespace {
// The lower priority only decides when it is of a higher category (int tensor + float number).
int combine(int higher, int lower) {
  if (higher < 0) return lower;
  if (lower < 0) return higher;
  if (is_complex(higher)) return higher;
  if (is_floating(higher)) return is_complex(lower) ? to_complex(higher) : higher;
  if (higher == RB_BOOL8 || is_floating(lower) || is_complex(lower)) return promote(higher, lower);
  return higher;
}
}  // namespace

int Promotion::result() const { return combine(dims_, combine(scalars_, numbers_)); }

namespace {
// Of tensors that have one dtype, which needs no table; -1: of others, of lists or numbers.
int shared_dtype(const RbValue* args, int nargs, uint64_t mask) {
  int dtype = -1;
  for (uint64_t rest = mask; rest; rest &= rest - 1) {
    const int i = __builtin_ctzll(rest);
    if (i >= nargs || args[i].tag == RB_NONE) continue;
    if (args[i].tag != RB_TENSOR || (dtype >= 0 && args[i].v.t->dtype_id != dtype)) return -1;
    dtype = args[i].v.t->dtype_id;
  }
  return dtype;
}
}  // namespace

int promote_arguments(const RbValue* args, int nargs, uint64_t mask) {
  if (const int dtype = shared_dtype(args, nargs, mask); dtype >= 0) return dtype;
  Promotion p;
  for (int i = 0; i < nargs; ++i) {
    if (!(mask >> i & 1)) continue;
    if (args[i].tag == RB_TENSOR) {
      p.add_tensor(args[i].v.t->ndim, args[i].v.t->dtype_id);
    } else if (args[i].tag == RB_TENSORS) {
      for (uint32_t j = 0; j < args[i].len; ++j) {
        if (args[i].v.ts[j]) p.add_tensor(args[i].v.ts[j]->ndim, args[i].v.ts[j]->dtype_id);
      }
    } else if (is_number(args[i])) {
      p.add_number(args[i]);
    }
  }
  return p.result();
}

}  // namespace rabbet
