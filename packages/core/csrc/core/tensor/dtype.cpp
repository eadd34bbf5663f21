#include "tensor/dtype.h"

#include <atomic>
#include <cstring>

namespace rabbet {

// DLPack type codes: 0 signed, 1 unsigned, 2 float, 4 bfloat, 5 complex, 6 bool.
const DTypeInfo kDTypes[RB_DTYPE_COUNT] = {
    {"bool", 1, kBool, {6, 8, 1}},
    {"uint8", 1, kInt, {1, 8, 1}},
    {"int8", 1, kInt, {0, 8, 1}},
    {"int16", 2, kInt, {0, 16, 1}},
    {"int32", 4, kInt, {0, 32, 1}},
    {"int64", 8, kInt, {0, 64, 1}},
    {"uint16", 2, kInt, {1, 16, 1}},
    {"uint32", 4, kInt, {1, 32, 1}},
    {"uint64", 8, kInt, {1, 64, 1}},
    {"float16", 2, kFloat, {2, 16, 1}},
    {"bfloat16", 2, kFloat, {4, 16, 1}},
    {"float32", 4, kFloat, {2, 32, 1}},
    {"float64", 8, kFloat, {2, 64, 1}},
    {"complex64", 8, kComplex, {5, 64, 1}},
    {"complex128", 16, kComplex, {5, 128, 1}},
};

namespace {

std::atomic<int> default_dtype_{RB_F32};

struct Alias {
  const char* name;
  int dtype;
};
const Alias kAliases[] = {{"float", RB_F32},  {"double", RB_F64},  {"half", RB_F16},
                          {"long", RB_I64},   {"int", RB_I32},     {"short", RB_I16},
                          {"cfloat", RB_C64}, {"cdouble", RB_C128}};

bool is_unsigned(int d) { return kDTypes[d].dlpack.code == 1; }

int promote_ints(int a, int b) {
  if (a == RB_BOOL8) return b;
  if (b == RB_BOOL8) return a;
  const int size_a = kDTypes[a].itemsize, size_b = kDTypes[b].itemsize;
  if (is_unsigned(a) == is_unsigned(b)) return size_a >= size_b ? a : b;
  const int with_sign = is_unsigned(a) ? b : a, without = is_unsigned(a) ? a : b;
  if (kDTypes[with_sign].itemsize > kDTypes[without].itemsize) return with_sign;
  switch (kDTypes[without].itemsize) {  // the next larger signed type holds both
    case 1:
      return RB_I16;
    case 2:
      return RB_I32;
    default:
      return RB_I64;
  }
}

int promote_floats(int a, int b) {
  if ((a == RB_F16 && b == RB_BF16) || (a == RB_BF16 && b == RB_F16)) return RB_F32;
  return kDTypes[a].itemsize >= kDTypes[b].itemsize ? a : b;
}

}  // namespace

int default_dtype() { return default_dtype_.load(std::memory_order_relaxed); }
void set_default_dtype(int dtype) { default_dtype_.store(dtype, std::memory_order_relaxed); }

int to_complex(int dtype) {
  if (is_complex(dtype)) return dtype;
  if (is_integral(dtype)) dtype = default_dtype();
  return dtype == RB_F64 ? RB_C128 : RB_C64;
}

int to_real(int dtype) { return dtype == RB_C64 ? RB_F32 : dtype == RB_C128 ? RB_F64 : dtype; }

int promote(int a, int b) {
  if (a == b) return a;
  const int category_a = kDTypes[a].category, category_b = kDTypes[b].category;
  if (category_a == kComplex || category_b == kComplex) {
    const int real_a = to_real(a), real_b = to_real(b);
    const bool wide = (real_a == RB_F64) || (real_b == RB_F64);
    return wide ? RB_C128 : RB_C64;
  }
  if (category_a == kFloat || category_b == kFloat) {
    if (category_a != kFloat) return b;
    if (category_b != kFloat) return a;
    return promote_floats(a, b);
  }
  return promote_ints(a, b);
}

int dtype_by_name(const char* name) {
  for (int d = 0; d < RB_DTYPE_COUNT; ++d) {
    if (!std::strcmp(kDTypes[d].name, name)) return d;
  }
  for (const Alias& alias : kAliases) {
    if (!std::strcmp(alias.name, name)) return alias.dtype;
  }
  return -1;
}

bool can_cast(int from, int to) {
  const int category_from = kDTypes[from].category, category_to = kDTypes[to].category;
  if (category_from == kComplex && category_to != kComplex) return false;
  if (category_from == kFloat && category_to <= kInt) return false;
  return !(category_to == kBool && category_from != kBool);
}

}  // namespace rabbet
