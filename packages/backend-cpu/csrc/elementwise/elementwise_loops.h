// 1-d loops over the scalar bodies and the table of them for one dtype. Internal linkage, as in
// scalar.h.
#pragma once
#include "common/scalar.h"
#include "elementwise/ops.h"

namespace {

using rbcpu::LoopArgs;

template <class T>
RB_INLINE T load(const char* p) {
  return *reinterpret_cast<const T*>(p);
}
template <class T>
RB_INLINE T& at(char* p) {
  return *reinterpret_cast<T*>(p);
}

// Functions that are long enough to be worth whole blocks: loops of fixed length, which leave no
// scalar remainder, over the data or over a buffer that the last elements are copied to.
template <class Op, class... Ops>
constexpr bool is_one_of = (std::is_same<Op, Ops>::value || ...);
template <class T, class Op>
constexpr bool is_long =
    (is_f32<T> && is_one_of<Op, op_log2, op_log10, op_erfc>) ||
    (is_fp<T> && is_one_of<Op, op_exp, op_expm1, op_log, op_log1p, op_tanh, op_erf, op_gelu,
                           op_gelu_tanh, op_pow, op_fmod, op_remainder, op_div_floor, op_asin,
                           op_acos, op_atan, op_atan2, op_sinh, op_cosh>);
constexpr int64_t kStep = 64;     // elements of a block
constexpr int64_t kGather = 512;  // elements of a buffer

template <class T>
using Block = Pack<T, 2>;

template <class T, class Op>
__attribute__((noinline)) void blocks(const T* x, T* r, int64_t n) {
  using V = Block<T>;
  for (int64_t i = 0; i < n; i += kLanesOf<V>) pack_store(r + i, Op::f(pack_load<V>(x + i)));
}
template <class T, class Op>
__attribute__((noinline)) void blocks(const T* x, const T* y, T* r, int64_t n) {
  using V = Block<T>;
  for (int64_t i = 0; i < n; i += kLanesOf<V>)
    pack_store(r + i, Op::f(pack_load<V>(x + i), pack_load<V>(y + i)));
}
// n elements at any stride to a buffer, filled up to a whole block with an ordinary value.
template <class T>
RB_INLINE void gather(T* to, const char* from, int64_t stride, int64_t n) {
  if (stride == sizeof(T))
    __builtin_memcpy(to, from, static_cast<uint64_t>(n) * sizeof(T));
  else if (const T c = load<T>(from); stride == 0)
    for (int64_t i = 0; i < n; ++i) to[i] = c;
  else
    for (int64_t i = 0; i < n; ++i) to[i] = load<T>(from + i * stride);
  for (int64_t i = n; i % kStep; ++i) to[i] = T(1);
}
template <class T>
RB_INLINE void scatter(char* to, int64_t stride, const T* from, int64_t n) {
  if (stride == sizeof(T))
    __builtin_memcpy(to, from, static_cast<uint64_t>(n) * sizeof(T));
  else
    for (int64_t i = 0; i < n; ++i) at<T>(to + i * stride) = from[i];
}
// Arity inputs through `blocks`.
template <class T, class Op, int Arity>
RB_INLINE void run_blocks(const LoopArgs* a) {
  alignas(64) T buffer[Arity][kGather], result[kGather];
  bool dense = a->out_stride == sizeof(T);
  for (int k = 0; k < Arity; ++k) dense = dense && a->in_stride[k] == sizeof(T);
  int64_t done = 0;
  if (dense && a->n >= kStep) {
    done = a->n / kStep * kStep;
    T* r = reinterpret_cast<T*>(a->out);
    const T* x = reinterpret_cast<const T*>(a->in[0]);
    if constexpr (Arity == 1)
      blocks<T, Op>(x, r, done);
    else
      blocks<T, Op>(x, reinterpret_cast<const T*>(a->in[1]), r, done);
  }
  while (done < a->n) {
    const int64_t n = a->n - done < kGather ? a->n - done : kGather;
    const int64_t whole = (n + kStep - 1) / kStep * kStep;
    for (int k = 0; k < Arity; ++k)
      gather(buffer[k], a->in[k] + done * a->in_stride[k], a->in_stride[k], n);
    if constexpr (Arity == 1)
      blocks<T, Op>(buffer[0], result, whole);
    else
      blocks<T, Op>(buffer[0], buffer[1], result, whole);
    scatter(a->out + done * a->out_stride, a->out_stride, result, n);
    done += n;
  }
}

// Outputs may be the inputs themselves (in-place calls), element for element: hence ivdep instead
// of restrict.
template <class T, class R, class Op>
int unary(const LoopArgs* a) {
  const int64_t n = a->n;
  if constexpr (is_long<T, Op>) {
    run_blocks<T, Op, 1>(a);
    return 0;
  }
  if (a->in_stride[0] == sizeof(T) && a->out_stride == sizeof(R)) {
    const T* x = reinterpret_cast<const T*>(a->in[0]);
    R* r = reinterpret_cast<R*>(a->out);
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) r[i] = Op::template f<T>(x[i]);
    return 0;
  }
  const char* x = a->in[0];
  char* r = a->out;
  for (int64_t i = 0; i < n; ++i, x += a->in_stride[0], r += a->out_stride)
    at<R>(r) = Op::template f<T>(load<T>(x));
  return 0;
}

template <class T, class Op>
int check_operands(const LoopArgs* a) {
  constexpr bool divides =
      std::is_same<Op, op_div_floor>::value || std::is_same<Op, op_div_trunc>::value ||
      std::is_same<Op, op_remainder>::value || std::is_same<Op, op_fmod>::value;
  if constexpr (std::is_integral<T>::value && divides) {
    const char* y = a->in[1];
    const int64_t n = a->in_stride[1] == 0 ? 1 : a->n;
    bool bad = false;
    for (int64_t i = 0; i < n; ++i, y += a->in_stride[1]) bad |= load<T>(y) == T(0);
    if (bad) return rbcpu::kLoopZeroDivision;
  }
  return 0;
}

template <class T, class R, class Op>
int binary(const LoopArgs* a) {
  const int64_t n = a->n, sx = a->in_stride[0], sy = a->in_stride[1];
  if (int status = check_operands<T, Op>(a)) return status;
  if constexpr (is_long<T, Op>) {
    run_blocks<T, Op, 2>(a);
    return 0;
  }
  if (a->out_stride == sizeof(R)) {
    const T* x = reinterpret_cast<const T*>(a->in[0]);
    const T* y = reinterpret_cast<const T*>(a->in[1]);
    R* r = reinterpret_cast<R*>(a->out);
    if (sx == sizeof(T) && sy == sizeof(T)) {
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) r[i] = Op::template f<T>(x[i], y[i]);
      return 0;
    }
    if (sx == sizeof(T) && sy == 0) {
      const T c = *y;
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) r[i] = Op::template f<T>(x[i], c);
      return 0;
    }
    if (sx == 0 && sy == sizeof(T)) {
      const T c = *x;
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) r[i] = Op::template f<T>(c, y[i]);
      return 0;
    }
  }
  const char *x = a->in[0], *y = a->in[1];
  char* r = a->out;
  for (int64_t i = 0; i < n; ++i, x += sx, y += sy, r += a->out_stride) {
    at<R>(r) = Op::template f<T>(load<T>(x), load<T>(y));
  }
  return 0;
}

template <class T, class Op>
int ternary(const LoopArgs* a) {
  const int64_t n = a->n, sx = a->in_stride[0], sy = a->in_stride[1], sz = a->in_stride[2];
  if (a->out_stride == sizeof(T) && sx == sizeof(T) && sz == 0) {
    const T* x = reinterpret_cast<const T*>(a->in[0]);
    const T* y = reinterpret_cast<const T*>(a->in[1]);
    T* r = reinterpret_cast<T*>(a->out);
    const T c = load<T>(a->in[2]);
    if (sy == sizeof(T)) {
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) r[i] = Op::template f<T>(x[i], y[i], c);
      return 0;
    }
    if (sy == 0) {
      const T b = *y;
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) r[i] = Op::template f<T>(x[i], b, c);
      return 0;
    }
  }
  const char *x = a->in[0], *y = a->in[1], *z = a->in[2];
  char* r = a->out;
  for (int64_t i = 0; i < n; ++i, x += sx, y += sy, z += sz, r += a->out_stride) {
    at<T>(r) = Op::template f<T>(load<T>(x), load<T>(y), load<T>(z));
  }
  return 0;
}

template <class T, class Op>
constexpr rbcpu::Loop pick_unary() {
  if constexpr (supports<Op, T>)
    return &unary<T, T, Op>;
  else
    return nullptr;
}
template <class T, class Op>
constexpr rbcpu::Loop pick_test() {
  if constexpr (supports<Op, T>)
    return &unary<T, bool, Op>;
  else
    return nullptr;
}
template <class T, class Op>
constexpr rbcpu::Loop pick_binary() {
  if constexpr (supports<Op, T>)
    return &binary<T, T, Op>;
  else
    return nullptr;
}
template <class T, class Op>
constexpr rbcpu::Loop pick_compare() {
  if constexpr (supports<Op, T>)
    return &binary<T, bool, Op>;
  else
    return nullptr;
}
template <class T, class Op>
constexpr rbcpu::Loop pick_ternary() {
  if constexpr (supports<Op, T>)
    return &ternary<T, Op>;
  else
    return nullptr;
}

template <class T>
constexpr rbcpu::FnTable table = {{
#define RB_ROW(name) pick_unary<T, op_##name>(),
    RB_UNARY(RB_ROW)
#undef RB_ROW
#define RB_ROW(name) pick_test<T, op_##name>(),
        RB_TEST(RB_ROW)
#undef RB_ROW
#define RB_ROW(name) pick_binary<T, op_##name>(),
            RB_BINARY(RB_ROW)
#undef RB_ROW
#define RB_ROW(name) pick_compare<T, op_##name>(),
                RB_COMPARE(RB_ROW)
#undef RB_ROW
#define RB_ROW(name) pick_ternary<T, op_##name>(),
                    RB_TERNARY(RB_ROW)
#undef RB_ROW
}};

}  // namespace
