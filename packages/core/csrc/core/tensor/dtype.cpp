#include "tensor/dtype.h"

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstring>
#include <mutex>

#include "tensor/float16.h"
#include "tensor/float8.h"
#include "thread/error.h"

namespace rabbet {

namespace {

constexpr Category category_of(int kind) {
  switch (kind) {
    case RB_CLASS_BOOL:
      return kBool;
    case RB_CLASS_INT:
    case RB_CLASS_UINT:
      return kInt;
    case RB_CLASS_FLOAT:
      return kFloat;
    case RB_CLASS_COMPLEX:
      return kComplex;
    default:
      return kOpaque;
  }
}

struct Limits {
  double max = 0, tiny = 0, eps = 0;
};
constexpr Limits kHalf = {65504.0, 0x1p-14, 0x1p-10}, kBrain = {0x1.fep127, 0x1p-126, 0x1p-7},
                 kSingle = {0x1.fffffep127, 0x1p-126, 0x1p-23},
                 kDouble = {0x1.fffffffffffffp1023, 0x1p-1022, 0x1p-52};

// A dtype whose elements are whole bytes. DLPack's codes: 0 signed, 1 unsigned, 2 float, 3 opaque,
// 4 bfloat, 5 complex, 6 bool, 10 float8_e4m3fn, 12 float8_e5m2.
constexpr DTypeInfo row(int id, const char* name, int kind, int bytes, uint8_t code,
                        const Limits& limits = {}) {
  DTypeInfo d{};
  d.struct_size = sizeof(RbDTypeInfo);
  d.name = name;
  d.kind = kind;
  d.bits = 8 * bytes;
  d.itemsize = bytes;
  d.compute = id;
  d.dlpack = {code, static_cast<uint8_t>(8 * bytes), 1};
  d.max = limits.max;
  d.tiny = limits.tiny;
  d.eps = limits.eps;
  d.category = category_of(kind);
  return d;
}
constexpr DTypeInfo added(DTypeInfo d, int compute, decltype(RbDTypeInfo::decode) decode,
                          decltype(RbDTypeInfo::encode) encode) {
  d.compute = compute;
  d.decode = decode;
  d.encode = encode;
  return d;
}

constexpr int kFloat8E4M3FN = RB_DTYPE_COUNT, kFloat8E5M2 = kFloat8E4M3FN + 1,
              kOwnDTypes = kComplex32 + 1;

}  // namespace

DTypeInfo kDTypes[RB_MAX_DTYPES] = {
    row(RB_BOOL8, "bool", RB_CLASS_BOOL, 1, 6),
    row(RB_U8, "uint8", RB_CLASS_UINT, 1, 1),
    row(RB_I8, "int8", RB_CLASS_INT, 1, 0),
    row(RB_I16, "int16", RB_CLASS_INT, 2, 0),
    row(RB_I32, "int32", RB_CLASS_INT, 4, 0),
    row(RB_I64, "int64", RB_CLASS_INT, 8, 0),
    row(RB_U16, "uint16", RB_CLASS_UINT, 2, 1),
    row(RB_U32, "uint32", RB_CLASS_UINT, 4, 1),
    row(RB_U64, "uint64", RB_CLASS_UINT, 8, 1),
    row(RB_F16, "float16", RB_CLASS_FLOAT, 2, 2, kHalf),
    row(RB_BF16, "bfloat16", RB_CLASS_FLOAT, 2, 4, kBrain),
    row(RB_F32, "float32", RB_CLASS_FLOAT, 4, 2, kSingle),
    row(RB_F64, "float64", RB_CLASS_FLOAT, 8, 2, kDouble),
    row(RB_C64, "complex64", RB_CLASS_COMPLEX, 8, 5, kSingle),
    row(RB_C128, "complex128", RB_CLASS_COMPLEX, 16, 5, kDouble),
    added(row(kFloat8E4M3FN, "float8_e4m3fn", RB_CLASS_FLOAT, 1, 10, {448.0, 0x1p-6, 0x1p-3}),
          RB_F32, decode_float8<float8::kE4M3FN>, encode_float8<float8::kE4M3FN>),
    added(row(kFloat8E5M2, "float8_e5m2", RB_CLASS_FLOAT, 1, 12, {57344.0, 0x1p-14, 0x1p-2}),
          RB_F32, decode_float8<float8::kE5M2>, encode_float8<float8::kE5M2>),
    added(row(kComplex32, "complex32", RB_CLASS_COMPLEX, 4, 5, kHalf), RB_C64, decode_complex32,
          encode_complex32),
};
uint8_t kDTypeKinds[RB_MAX_DTYPES];

namespace {

std::atomic<int> default_dtype_{RB_F32};
std::atomic<int> count_{kOwnDTypes};
std::mutex adding;

const bool kinds_filled = [] {
  for (int d = 0; d < RB_MAX_DTYPES; ++d)
    kDTypeKinds[d] = static_cast<uint8_t>(d < kOwnDTypes ? kDTypes[d].kind : +RB_CLASS_OPAQUE);
  return true;
}();

struct Alias {
  const char* name;
  int dtype;
};
const Alias kAliases[] = {{"float", RB_F32},  {"double", RB_F64},   {"half", RB_F16},
                          {"long", RB_I64},   {"int", RB_I32},      {"short", RB_I16},
                          {"cfloat", RB_C64}, {"cdouble", RB_C128}, {"chalf", kComplex32}};

bool is_unsigned(int d) { return kDTypes[d].kind == RB_CLASS_UINT; }

bool is_wide_unsigned(int d) { return is_unsigned(d) && d != RB_U8; }

int promote_ints(int a, int b) {
  if (is_wide_unsigned(a) || is_wide_unsigned(b)) {
    fail(RB_E_TYPE,
         "Promotion for uint16, uint32, uint64 types is not supported, attempted to promote %s and "
         "%s: cast one of them",
         kDTypes[a].name, kDTypes[b].name);
  }
  if (a == RB_BOOL8) return b;
  if (b == RB_BOOL8) return a;
  if (!is_unsigned(a) && !is_unsigned(b)) return kDTypes[a].itemsize >= kDTypes[b].itemsize ? a : b;
  const int with_sign = is_unsigned(a) ? b : a;  // beside uint8
  return with_sign == RB_I8 ? +RB_I16 : with_sign;
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
  return dtype == RB_F64 ? +RB_C128 : dtype == RB_F16 ? kComplex32 : +RB_C64;
}

int to_real(int dtype) {
  if (!is_complex(dtype)) return dtype;
  return dtype == RB_C128 ? RB_F64 : dtype == kComplex32 ? RB_F16 : RB_F32;
}

static_assert(kComplex32 == kFloat8E5M2 + 1);

int dtype_count() { return count_.load(std::memory_order_acquire); }

namespace {

void check_dtype(const RbDTypeInfo& d) {
  const auto refuse = [&](const char* why) { fail(RB_E_ARG, "add_dtype: '%s': %s", d.name, why); };
  const bool is_name = std::isalpha(static_cast<unsigned char>(d.name[0])) &&
                       std::all_of(d.name, d.name + std::strlen(d.name),
                                   [](unsigned char c) { return std::isalnum(c) || c == '_'; });
  if (!is_name) refuse("a name has letters, digits and underscores, a letter first");
  if (d.kind < RB_CLASS_BOOL || d.kind > RB_CLASS_OPAQUE) refuse("`kind` is no RB_CLASS_*");
  if (d.itemsize < 1 || d.itemsize > 16 || (d.itemsize & (d.itemsize - 1)))
    refuse("`itemsize` must be 1, 2, 4, 8 or 16");
  if (d.bits < 1 || d.bits > 8 * d.itemsize) refuse("`bits` must be 1 to 8 times `itemsize`");
  if (d.kind == RB_CLASS_OPAQUE) return;
  if (d.compute < 0 || d.compute >= RB_DTYPE_COUNT)
    refuse("`compute` must be a dtype of the header");
  if (!d.decode || !d.encode) refuse("`decode` and `encode` are required, unless it is opaque");
}

bool is_same(const RbDTypeInfo& a, const RbDTypeInfo& b) {
  return a.kind == b.kind && a.bits == b.bits && a.itemsize == b.itemsize &&
         (a.kind == RB_CLASS_OPAQUE || a.compute == b.compute);
}

}  // namespace

int add_dtype(const RbDTypeInfo& info) {
  check_dtype(info);
  std::lock_guard<std::mutex> lock(adding);
  const int known = dtype_by_name(info.name);
  if (known >= 0) {
    if (is_added(known) && is_same(info, kDTypes[known])) return known;
    fail(RB_E_PLUGIN, "add_dtype: there is another dtype '%s' already", info.name);
  }
  const int id = dtype_count();
  if (id == RB_MAX_DTYPES)
    fail(RB_E_PLUGIN, "add_dtype: '%s': there are %d dtypes already", info.name, id);
  DTypeInfo& d = kDTypes[id];
  static_cast<RbDTypeInfo&>(d) = info;
  d.struct_size = sizeof(RbDTypeInfo);
  d.name = strdup(info.name);  // for the life of the process
  d.category = category_of(info.kind);
  if (info.kind == RB_CLASS_OPAQUE) d.compute = id;
  if (!d.dlpack.lanes) d.dlpack = {3, static_cast<uint8_t>(8 * d.itemsize), 1};
  kDTypeKinds[id] = static_cast<uint8_t>(d.kind);
  count_.store(id + 1, std::memory_order_release);
  return id;
}

void drop_dtype(int dtype) {
  std::lock_guard<std::mutex> lock(adding);
  kDTypeKinds[dtype] = RB_CLASS_OPAQUE;
  kDTypes[dtype].name = "";  // the id is not given again while a later one is in use
  if (dtype == dtype_count() - 1) count_.store(dtype, std::memory_order_release);
}

int promote(int a, int b) {
  if (a == b) return a;
  const auto has_promotion = [](int d) { return !is_added(d) || d == kComplex32; };
  if (!has_promotion(a) || !has_promotion(b)) {
    fail(RB_E_TYPE, "there is no common dtype of %s and %s: cast one of them", kDTypes[a].name,
         kDTypes[b].name);
  }
  const int category_a = kDTypes[a].category, category_b = kDTypes[b].category;
  if (category_a == kComplex || category_b == kComplex) {
    const int real_a = to_real(a), real_b = to_real(b);
    return to_complex(is_integral(a)   ? real_b
                      : is_integral(b) ? real_a
                                       : promote_floats(real_a, real_b));
  }
  if (category_a == kFloat || category_b == kFloat) {
    if (category_a != kFloat) return b;
    if (category_b != kFloat) return a;
    return promote_floats(a, b);
  }
  return promote_ints(a, b);
}

int dtype_by_name(const char* name) {
  for (int d = 0; d < dtype_count(); ++d) {
    if (!std::strcmp(kDTypes[d].name, name)) return d;
  }
  for (const Alias& alias : kAliases) {
    if (!std::strcmp(alias.name, name)) return alias.dtype;
  }
  return -1;
}

bool can_cast(int from, int to) {
  if (from == to) return true;
  const int category_from = kDTypes[from].category, category_to = kDTypes[to].category;
  if (category_from == kComplex && category_to != kComplex) return false;
  if (category_from == kFloat && category_to <= kInt) return false;
  if (category_from == kOpaque || category_to == kOpaque) return false;
  return !(category_to == kBool && category_from != kBool);
}

}  // namespace rabbet
