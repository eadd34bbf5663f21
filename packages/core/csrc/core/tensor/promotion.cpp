#include "tensor/promotion.h"

#include "tensor/dtype.h"

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
