// Loops of the fused kernels, once per instruction-set level.
#include "common/half_runs.h"
#include "common/level.h"
#include "common/scalar.h"
#include "elementwise/fused.h"

#ifndef INFINITY
#define INFINITY __builtin_inff()
#endif

namespace {

using rbcpu::FusedBody;
using rbcpu::FusedContext;
using rbcpu::LoopArgs;

// The output may be an input, element for element: hence ivdep instead of restrict.
template <class T, class F>
void fused_loop(int64_t n, T* r, const T* const* in, const T* given) {
  const T* x0 = in[0];
  const T* x1 = in[F::inputs > 1 ? 1 : 0];
  const T* x2 = in[F::inputs > 2 ? 2 : 0];
  T p[F::numbers + 1] = {};
  for (int k = 0; k < F::numbers; ++k) p[k] = given[k];
  if constexpr (F::packs == 2 || (F::packs == 1 && is_f32<T>)) {
    using V = Pack<T, 2>;
    V vp[F::numbers + 1];
    for (int k = 0; k < F::numbers; ++k) vp[k] = V(p[k]);
    auto step = [&](T* to, const T* a, const T* b, const T* c) {
      pack_store(to, F::template f<V>(pack_load<V>(a), pack_load<V>(b), pack_load<V>(c), vp));
    };
    int64_t i = 0;
    for (; i + kLanesOf<V> <= n; i += kLanesOf<V>) step(r + i, x0 + i, x1 + i, x2 + i);
    if (i == n) return;
    // The rest in a pack that is filled up with an ordinary value.
    alignas(64) T rest[4][kLanesOf<V>];
    const T* from[3] = {x0, x1, x2};
    for (int k = 0; k < F::inputs; ++k) {
      for (int64_t j = 0; j < kLanesOf<V>; ++j) rest[k][j] = i + j < n ? from[k][i + j] : T(1);
    }
    step(rest[3], rest[0], rest[F::inputs > 1 ? 1 : 0], rest[F::inputs > 2 ? 2 : 0]);
    __builtin_memcpy(r + i, rest[3], static_cast<uint64_t>(n - i) * sizeof(T));
  } else {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) r[i] = F::template f<T>(x0[i], x1[i], x2[i], p);
  }
}
template <class T, class F>
int rows(const LoopArgs* a) {
  const T* const in[] = {reinterpret_cast<const T*>(a->in[0])};
  fused_loop<T, F>(a->n, reinterpret_cast<T*>(a->out), in, nullptr);
  return 0;
}
template <class F>
constexpr FusedBody body() {
  if constexpr (F::wide)
    return {nullptr, &fused_loop<double, F>, nullptr,
            F::inputs == 1 && F::numbers == 0 ? &rows<double, F> : nullptr};
  else if constexpr (F::narrow)
    return {&fused_loop<float, F>, nullptr,
            F::inputs == 1 && F::numbers == 0 ? &rows<float, F> : nullptr, nullptr};
  else if constexpr (F::inputs == 1 && F::numbers == 0)
    return {&fused_loop<float, F>, &fused_loop<double, F>, &rows<float, F>, &rows<double, F>};
  else
    return {&fused_loop<float, F>, &fused_loop<double, F>, nullptr, nullptr};
}

#include "fused_bodies.inc"

RB_INLINE void run_body(const FusedBody& b, int64_t n, float* r, const float* const* in,
                        const float* p) {
  b.f32(n, r, in, p);
}
RB_INLINE void run_body(const FusedBody& b, int64_t n, double* r, const double* const* in,
                        const double* p) {
  b.f64(n, r, in, p);
}

RB_INLINE const float* numbers(const FusedContext& c, float) { return c.f32; }
RB_INLINE const double* numbers(const FusedContext& c, double) { return c.f64; }
RB_INLINE const float* constants(const FusedContext& c, float) { return c.constant32; }
RB_INLINE const double* constants(const FusedContext& c, double) { return c.constant64; }

// Memory of type S with any strides, computed as T. What is not a contiguous T already goes through
// chunks that stay in the cache; results of the 16-bit floats are rounded once, at the end.
template <class S, class T>
int fused(const LoopArgs* a) {
  constexpr bool same = std::is_same<S, T>::value;
  constexpr int64_t kChunk = 512;
  const FusedContext& c = *static_cast<const FusedContext*>(a->ctx);
  const T* p = numbers(c, T());
  const T* in[rbcpu::kMaxInputs];
  bool direct = same && a->out_stride == sizeof(T);  // a constant has stride 0
  for (int k = 0; k < c.inputs; ++k) {
    in[k] = reinterpret_cast<const T*>(a->in[k]);
    direct = direct && a->in_stride[k] == sizeof(T);
  }
  if (direct) {
    run_body(c.body, a->n, reinterpret_cast<T*>(a->out), in, p);
    return 0;
  }
  alignas(64) T chunk[rbcpu::kMaxInputs][kChunk];
  alignas(64) T out[kChunk];
  for (int k = 0; k < c.inputs; ++k) {
    if (a->in_stride[k] != 0) continue;
    const T value = c.constant[k] ? constants(c, T())[k]
                                  : static_cast<T>(*reinterpret_cast<const S*>(a->in[k]));
    const int64_t n = a->n < kChunk ? a->n : kChunk;
    for (int64_t i = 0; i < n; ++i) chunk[k][i] = value;
    in[k] = chunk[k];
  }
  for (int64_t done = 0; done < a->n; done += kChunk) {
    const int64_t n = a->n - done < kChunk ? a->n - done : kChunk;
    for (int k = 0; k < c.inputs; ++k) {
      const int64_t stride = a->in_stride[k];
      if (stride == 0) continue;
      const char* x = a->in[k] + done * stride;
      in[k] = chunk[k];
      if (same && stride == sizeof(S)) {
        in[k] = reinterpret_cast<const T*>(x);
      } else if (stride == sizeof(S)) {
        convert_run(reinterpret_cast<const S*>(x), chunk[k], n);
      } else {
        for (int64_t i = 0; i < n; ++i)
          chunk[k][i] = static_cast<T>(*reinterpret_cast<const S*>(x + i * stride));
      }
    }
    char* r = a->out + done * a->out_stride;
    if (same && a->out_stride == sizeof(S)) {
      run_body(c.body, n, reinterpret_cast<T*>(r), in, p);
      continue;
    }
    run_body(c.body, n, out, in, p);
    if (a->out_stride == sizeof(S)) {
      convert_run(out, reinterpret_cast<S*>(r), n);
    } else {
      for (int64_t i = 0; i < n; ++i) *reinterpret_cast<S*>(r + i * a->out_stride) = S(out[i]);
    }
  }
  return 0;
}

}  // namespace

namespace rbcpu {
extern const FusedTable RB_LEVEL_NAME(fused_table) = {
    kBodies, &fused<float, float>, &fused<double, double>, &fused<F16, float>, &fused<BF16, float>};
}
