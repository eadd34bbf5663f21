// Elementwise kernels: which loop a call means, its operands, and the 16-bit floats by way of
// float32.
#include <algorithm>
#include <cmath>

#include "common/convert.h"
#include "common/dtype.h"
#include "common/kernels.h"
#include "common/level.h"
#include "elementwise/ops.h"

namespace rbcpu {

namespace {
const FnTable* tables[RB_DTYPE_COUNT];  // filled by add_elementwise, before any kernel can run
void fill_tables() {
  const FloatTables& floats = RB_PICK_LEVEL(float_tables);
  const IntTables& integers = RB_PICK_LEVEL(int_tables);
  for (int d = 0; d < RB_DTYPE_COUNT; ++d) {
    tables[d] = d == RB_F64               ? floats.f64
                : (kMaskFloat >> d & 1)   ? floats.f32
                : (kMaskComplex >> d & 1) ? &complex_table(d)
                                          : integers.by_dtype[d];
  }
}
}  // namespace

const FnTable& fn_table(int dtype) { return *tables[dtype]; }

namespace {

struct alignas(16) Number {
  char bytes[16];
};

bool is_half(int dtype) { return dtype == RB_F16 || dtype == RB_BF16; }

Loop half_loop(int dtype) {
  const ConvertTable& table = RB_PICK_LEVEL(convert_table);
  return dtype == RB_BF16 ? table.bf16 : table.f16;
}

const char* name_of(const RbCall* call) { return rb::host->op_info(call->op)->name; }

// The only status but kLoopOk is kLoopZeroDivision.
__attribute__((cold, noinline)) int32_t report(const RbCall* call) {
  return rb::set_error(RB_E_ARG, "%s: integer division by zero", name_of(call));
}
__attribute__((cold, noinline)) int32_t report_dtype(const RbCall* call, int dtype) {
  return rb::set_error(RB_E_NOTIMPL, "%s: the cpu backend has no kernel for %s", name_of(call),
                       kDTypeNames[dtype]);
}

// Gather operands; `dtype` becomes the compute dtype, which all tensors have.
struct Operands {
  LoopInput in[kMaxInputs];
  Number storage[kMaxInputs];
  int dtype;
  uint32_t numbers;
};
inline int32_t gather(Operands& o, const RbValue* const* values, int nin, const RbTensor& out,
                      const RbCall* call) {
  o.dtype = -1;
  o.numbers = 0;
  for (int k = 0; k < nin; ++k) {
    if (values[k]->tag != RB_TENSOR) continue;
    const RbTensor* t = values[k]->v.t;
    if (o.dtype >= 0 && t->dtype_id != o.dtype) {
      return rb::set_error(RB_E_INTERNAL, "%s: operands arrived as %s and %s", name_of(call),
                           kDTypeNames[o.dtype], kDTypeNames[t->dtype_id]);
    }
    o.dtype = t->dtype_id;
  }
  if (o.dtype < 0) o.dtype = out.dtype_id;
  const int item = kItemSize[o.dtype];
  for (int k = 0; k < nin; ++k) {
    o.in[k].item = item;
    if (values[k]->tag == RB_TENSOR) {
      o.in[k].tensor = values[k]->v.t;
      continue;
    }
    if (!rb::is_number(*values[k])) {
      return rb::set_error(RB_E_TYPE, "%s: operand %d is neither a tensor nor a number",
                           name_of(call), k);
    }
    o.in[k].tensor = nullptr;
    o.in[k].value = &o.storage[k];
    o.numbers |= 1u << k;
    store_value(*values[k], is_half(o.dtype) ? static_cast<int>(RB_F32) : o.dtype, &o.storage[k]);
  }
  return RB_OK;
}

int32_t run_loop(Loop loop, Operands& o, int nin, bool to_bool, const RbTensor& out, int64_t grain,
                 const RbCall* call, const void* ctx = nullptr) {
  if (__builtin_expect(!loop, 0)) return report_dtype(call, o.dtype);
  const int expected = to_bool ? static_cast<int>(RB_BOOL8) : o.dtype;
  if (__builtin_expect(out.dtype_id != expected, 0)) {
    return rb::set_error(RB_E_INTERNAL, "%s: expected a result of %s, got %s", name_of(call),
                         kDTypeNames[expected], kDTypeNames[out.dtype_id]);
  }
  int status;
  if (is_half(o.dtype)) {
    HalfContext half{loop, ctx, nin, o.numbers, !to_bool};
    status = run_elementwise(half_loop(o.dtype), out, o.in, nin, grain, &half);
  } else {
    status = run_elementwise(loop, out, o.in, nin, grain, ctx);
  }
  return __builtin_expect(status, 0) ? report(call) : RB_OK;
}

// Few elements, no broadcasting, no 16-bit floats: straight to the loop. False where that does not
// hold.
template <int Nin>
inline bool run_quick(Fn fn, const RbValue* args, bool to_bool, const RbTensor& out, int64_t grain,
                      int& status) {
  static_assert(Nin == 1 || Nin == 2);
  if (args[0].tag != RB_TENSOR || args[Nin - 1].tag != RB_TENSOR) return false;
  const RbTensor &x = *args[0].v.t, &y = *args[Nin - 1].v.t;
  const int64_t n = out.numel;
  if (!(x.flags & y.flags & out.flags & RB_T_CONTIGUOUS) || x.numel != n || y.numel != n ||
      static_cast<uint64_t>(n - 1) >= static_cast<uint64_t>(grain))
    return false;
  const int dtype = x.dtype_id;
  if (y.dtype_id != dtype || out.dtype_id != (to_bool ? +RB_BOOL8 : dtype) || is_half(dtype))
    return false;
  const Loop loop = tables[dtype]->loops[static_cast<int>(fn)];
  if (!loop) return false;
  LoopArgs a;
  a.n = n;
  a.ctx = nullptr;
  a.out = static_cast<char*>(out.data);
  a.out_stride = to_bool ? 1 : kItemSize[dtype];
  a.in[0] = static_cast<const char*>(x.data);
  a.in_stride[0] = kItemSize[dtype];
  if constexpr (Nin == 2) {
    a.in[1] = static_cast<const char*>(y.data);
    a.in_stride[1] = kItemSize[dtype];
  }
  status = loop(&a);
  return true;
}

int32_t run_fn(Fn fn, const RbValue* const* values, int nin, bool to_bool, RbTensor& out,
               int64_t grain, const RbCall* call) {
  Operands o;
  if (int32_t code = gather(o, values, nin, out, call)) return code;
  return run_loop(fn_table(o.dtype).loops[static_cast<int>(fn)], o, nin, to_bool, out, grain, call);
}

// ---- kernels that are one function

struct FnSpec {
  const char* op;
  Fn fn;
  uint8_t nin;
  bool to_bool;
  int64_t grain;
};

int32_t plain(void* self, const RbCall* call, const RbValue* args, int32_t, RbValue* rets,
              int32_t) noexcept {
  const FnSpec& spec = *static_cast<const FnSpec*>(self);
  int status = 0;
  if (spec.nin == 1 ? run_quick<1>(spec.fn, args, spec.to_bool, *rets[0].v.t, spec.grain, status)
                    : run_quick<2>(spec.fn, args, spec.to_bool, *rets[0].v.t, spec.grain, status)) {
    return __builtin_expect(status, 0) ? report(call) : RB_OK;
  }
  const RbValue* values[] = {args, args + 1, args + 2};
  return run_fn(spec.fn, values, spec.nin, spec.to_bool, *rets[0].v.t, spec.grain, call);
}

#define RB_LIGHT1(name) {#name, Fn::k_##name, 1, false, kGrain}
#define RB_HEAVY1(name) {#name, Fn::k_##name, 1, false, kGrainHeavy}
#define RB_TO_BOOL1(name) {#name, Fn::k_##name, 1, true, kGrain}
#define RB_LIGHT2(name) {#name, Fn::k_##name, 2, false, kGrain}
#define RB_HEAVY2(name) {#name, Fn::k_##name, 2, false, kGrainHeavy}
#define RB_TO_BOOL2(name) {#name, Fn::k_##name, 2, true, kGrain}
const FnSpec kPlain[] = {
    RB_LIGHT1(neg),
    RB_LIGHT1(sgn),
    {"sign", Fn::k_sgn, 1, false, kGrain},
    RB_HEAVY1(exp),
    RB_HEAVY1(expm1),
    RB_HEAVY1(log),
    RB_HEAVY1(log2),
    RB_HEAVY1(log10),
    RB_HEAVY1(log1p),
    RB_LIGHT1(sqrt),
    RB_HEAVY1(sin),
    RB_HEAVY1(cos),
    RB_HEAVY1(tan),
    RB_HEAVY1(asin),
    RB_HEAVY1(acos),
    RB_HEAVY1(atan),
    RB_HEAVY1(sinh),
    RB_HEAVY1(cosh),
    RB_HEAVY1(tanh),
    RB_HEAVY1(erf),
    RB_HEAVY1(erfc),
    RB_LIGHT1(floor),
    RB_LIGHT1(ceil),
    RB_LIGHT1(trunc),
    RB_LIGHT1(relu),
    RB_LIGHT1(bitwise_not),
    RB_LIGHT1(conj),
    RB_TO_BOOL1(isnan),
    RB_TO_BOOL1(isinf),
    RB_TO_BOOL1(isfinite),
    RB_TO_BOOL1(logical_not),
    RB_LIGHT2(mul),
    RB_HEAVY2(remainder),
    RB_HEAVY2(fmod),
    RB_HEAVY2(atan2),
    RB_LIGHT2(copysign),
    RB_HEAVY2(gcd),
    RB_LIGHT2(maximum),
    RB_LIGHT2(minimum),
    RB_LIGHT2(relu_vjp),
    RB_LIGHT2(bitwise_and),
    RB_LIGHT2(bitwise_or),
    RB_LIGHT2(bitwise_xor),
    RB_LIGHT2(bitwise_left_shift),
    RB_LIGHT2(bitwise_right_shift),
    RB_TO_BOOL2(eq),
    RB_TO_BOOL2(ne),
    RB_TO_BOOL2(lt),
    RB_TO_BOOL2(le),
    RB_TO_BOOL2(gt),
    RB_TO_BOOL2(ge),
    RB_TO_BOOL2(logical_and),
    RB_TO_BOOL2(logical_or),
    RB_TO_BOOL2(logical_xor),
};

// ---- kernels that look at their arguments first

bool is_one(const RbValue& v) {
  return v.tag == RB_FLOAT ? v.v.f == 1.0 : v.tag != RB_COMPLEX && v.v.i == 1;
}

// input, other, alpha
template <Fn Simple, Fn Scaled>
int32_t with_alpha(void*, const RbCall* call, const RbValue* args, int32_t nargs, RbValue* rets,
                   int32_t) noexcept {
  const RbValue* values[] = {args, args + 1, args + 2};
  if (nargs < 3 || args[2].tag == RB_NONE || is_one(args[2])) {
    int status = 0;
    if (run_quick<2>(Simple, args, false, *rets[0].v.t, kGrain, status)) return RB_OK;
    return run_fn(Simple, values, 2, false, *rets[0].v.t, kGrain, call);
  }
  return run_fn(Scaled, values, 3, false, *rets[0].v.t, kGrain, call);
}

bool is_str(const RbValue* args, int32_t nargs, int i, const char* text) {
  return i < nargs && args[i].tag == RB_STR && std::strcmp(args[i].v.s, text) == 0;
}

int32_t div_kernel(void*, const RbCall* call, const RbValue* args, int32_t nargs, RbValue* rets,
                   int32_t) noexcept {
  const RbValue* values[] = {args, args + 1};
  Fn fn = Fn::k_div;
  if (is_str(args, nargs, 2, "floor")) fn = Fn::k_div_floor;
  if (is_str(args, nargs, 2, "trunc")) fn = Fn::k_div_trunc;
  return run_fn(fn, values, 2, false, *rets[0].v.t, kGrain, call);
}

int32_t pow_kernel(void*, const RbCall* call, const RbValue* args, int32_t, RbValue* rets,
                   int32_t) noexcept {
  const RbValue* values[] = {args, args + 1};
  if (args[0].tag == RB_TENSOR && rb::is_number(args[1]) && args[1].tag != RB_COMPLEX) {
    const double exponent = rb::to_double(args[1]);
    const bool floating = ((kMaskFloat >> args[0].v.t->dtype_id) & 1) != 0;
    const RbValue* twice[] = {args, args};
    if (exponent == 2.0) return run_fn(Fn::k_mul, twice, 2, false, *rets[0].v.t, kGrain, call);
    for (const auto& [power, fn] :
         {std::pair{0.5, Fn::k_sqrt}, {-0.5, Fn::k_rsqrt}, {3.0, Fn::k_cube}})
      if (floating && exponent == power)
        return run_fn(fn, values, 1, false, *rets[0].v.t, kGrain, call);
    // Powers of a tensor that are no integers are 0; a number is refused, as in PyTorch.
    if (exponent < 0 && (kMaskInt >> rets[0].v.t->dtype_id & 1))
      return rb::set_error(RB_E_ARG, "%s: Integers to negative integer powers are not allowed.",
                           name_of(call));
    if (floating && exponent == -1.0) {
      RbValue one = {};
      one.tag = RB_INT;
      one.v.i = 1;
      const RbValue* quotient[] = {&one, args};
      return run_fn(Fn::k_div, quotient, 2, false, *rets[0].v.t, kGrain, call);
    }
  }
  return run_fn(Fn::k_pow, values, 2, false, *rets[0].v.t, kGrainHeavy, call);
}

int32_t nextafter_kernel(void*, const RbCall* call, const RbValue* args, int32_t, RbValue* rets,
                         int32_t) noexcept {
  const RbValue* values[] = {args, args + 1};
  return run_fn(Fn::k_nextafter, values, 2, false, *rets[0].v.t, kGrain, call);
}

template <Fn Exact, Fn Tanh>
int32_t gelu_kernel(void*, const RbCall* call, const RbValue* args, int32_t nargs, RbValue* rets,
                    int32_t) noexcept {
  const RbValue* values[] = {args};
  if (is_str(args, nargs, 1, "tanh"))
    return run_fn(Tanh, values, 1, false, *rets[0].v.t, kGrainHeavy, call);
  return run_fn(Exact, values, 1, false, *rets[0].v.t, kGrainHeavy, call);
}

int32_t clamp_kernel(void*, const RbCall* call, const RbValue* args, int32_t nargs, RbValue* rets,
                     int32_t) noexcept {
  const bool low = nargs > 1 && args[1].tag != RB_NONE, high = nargs > 2 && args[2].tag != RB_NONE;
  const RbValue* values[] = {args, args + 1, args + 2};
  if (!low && !high)
    return rb::set_error(RB_E_ARG, "clamp: at least one of `min` and `max` must be given");
  if (low && high) return run_fn(Fn::k_clamp, values, 3, false, *rets[0].v.t, kGrain, call);
  if (high) values[1] = args + 2;
  return run_fn(low ? Fn::k_maximum : Fn::k_minimum, values, 2, false, *rets[0].v.t, kGrain, call);
}

// round(x * 10^d) / 10^d; integers only change for negative d.
template <class T>
int round_loop(const LoopArgs* a) {
  const int decimals = *static_cast<const int*>(a->ctx);
  const double factor = std::pow(10.0, std::abs(decimals));
  for (int64_t i = 0; i < a->n; ++i) {
    const T x = *reinterpret_cast<const T*>(a->in[0] + i * a->in_stride[0]);
    T& r = *reinterpret_cast<T*>(a->out + i * a->out_stride);
    if constexpr (std::is_floating_point_v<T>) {
      const T scaled = decimals > 0 ? std::nearbyint(x * T(factor)) / T(factor)
                                    : std::nearbyint(x / T(factor)) * T(factor);
      r = std::isfinite(x) ? scaled : x;
    } else {
      r = decimals > 0 ? x : convert<T>(std::nearbyint(static_cast<double>(x) / factor) * factor);
    }
  }
  return 0;
}
int32_t round_kernel(void*, const RbCall* call, const RbValue* args, int32_t nargs, RbValue* rets,
                     int32_t) noexcept {
  const RbValue* values[] = {args};
  int decimals = nargs > 1 && args[1].tag == RB_INT
                     ? static_cast<int>(std::clamp<int64_t>(args[1].v.i, -400, 400))
                     : 0;
  if (decimals == 0) return run_fn(Fn::k_round, values, 1, false, *rets[0].v.t, kGrain, call);
  Operands o;
  if (int32_t code = gather(o, values, 1, *rets[0].v.t, call)) return code;
  Loop loop = nullptr;
  visit_dtype<kMaskInt | bit(RB_F32) | bit(RB_F64)>(
      is_half(o.dtype) ? static_cast<int>(RB_F32) : o.dtype,
      [&](auto tag) { loop = &round_loop<typename decltype(tag)::type>; });
  return run_loop(loop, o, 1, false, *rets[0].v.t, kGrainHeavy, call, &decimals);
}

// ---- complex to real and back

int32_t zero_fill(RbTensor& out) {
  static const Number zero = {};
  const LoopInput in = {nullptr, &zero, item_size(out)};
  const Loop loop = fn_table(out.dtype_id).loops[static_cast<int>(Fn::k_conj)];
  if (is_half(out.dtype_id)) {
    HalfContext half{loop, nullptr, 1, 1, true};
    run_elementwise(half_loop(out.dtype_id), out, &in, 1, kGrain, &half);
  } else {
    run_elementwise(loop, out, &in, 1, kGrain);
  }
  return RB_OK;
}

template <ComplexPart Part>
int32_t part_kernel(void*, const RbCall* call, const RbValue* args, int32_t, RbValue* rets,
                    int32_t) noexcept {
  RbTensor& out = *rets[0].v.t;
  if (args[0].tag == RB_TENSOR && (kMaskComplex >> args[0].v.t->dtype_id & 1)) {
    const int dtype = args[0].v.t->dtype_id;
    const LoopInput in = {args[0].v.t, nullptr, kItemSize[dtype]};
    run_elementwise(complex_part_loop(Part, dtype), out, &in, 1, kGrain);
    return RB_OK;
  }
  const RbValue* values[] = {args};
  if (Part == ComplexPart::kImag) return zero_fill(out);
  return run_fn(Part == ComplexPart::kAbs ? Fn::k_abs : Fn::k_conj, values, 1, false, out, kGrain,
                call);
}

int32_t complex_kernel(void*, const RbCall* call, const RbValue* args, int32_t, RbValue* rets,
                       int32_t) noexcept {
  RbTensor& out = *rets[0].v.t;
  const RbValue* values[] = {args, args + 1};
  Operands o;
  if (int32_t code = gather(o, values, 2, out, call)) return code;
  if ((o.dtype != RB_F32 || out.dtype_id != RB_C64) &&
      (o.dtype != RB_F64 || out.dtype_id != RB_C128)) {
    return report_dtype(call, o.dtype);
  }
  run_elementwise(complex_join_loop(o.dtype), out, o.in, 2, kGrain);
  return RB_OK;
}

uint64_t mask_of(Fn fn) {
  uint64_t mask = 0;
  for (int d = 0; d < RB_DTYPE_COUNT; ++d) {
    if (fn_table(d).loops[static_cast<int>(fn)]) mask |= bit(d);
  }
  return mask;
}

const rb::KernelSpec kSpecial[] = {
    {"add", with_alpha<Fn::k_add, Fn::k_add_alpha>},
    {"sub", with_alpha<Fn::k_sub, Fn::k_sub_alpha>, 0, kMaskAll & ~kMaskBool},
    {"div", div_kernel},
    {"pow", pow_kernel},
    {"gelu", gelu_kernel<Fn::k_gelu, Fn::k_gelu_tanh>, 0, kMaskFloat},
    // This kernel would compute 16-bit floats in float32, so they use the decomposition.
    {"nextafter", nextafter_kernel, 0, bit(RB_F32) | bit(RB_F64)},
    {"clamp", clamp_kernel, 0, kMaskReal},
    {"round", round_kernel, 0, kMaskReal},
    {"abs", part_kernel<ComplexPart::kAbs>},
    {"real", part_kernel<ComplexPart::kReal>},
    {"imag", part_kernel<ComplexPart::kImag>},
    {"complex", complex_kernel, 0, bit(RB_F32) | bit(RB_F64)},
};

}  // namespace

int32_t add_elementwise(const RbHost* host, RbTxn* txn) {
  fill_tables();
  for (const FnSpec& spec : kPlain) {
    const rb::KernelSpec kernel = {spec.op, plain, 0, mask_of(spec.fn), &spec};
    if (int32_t code = rb::add_kernels(host, txn, kBackendName, &kernel, 1)) return code;
  }
  return rb::add_kernels(host, txn, kBackendName, kSpecial);
}

}  // namespace rbcpu
