// Elementwise loops of float32 and float64, once per instruction-set level.
#include "common/level.h"
#include "elementwise/elementwise_loops.h"

namespace {

// sin, cos and tan: the polynomials' reduction holds up to kTrigLimit; larger arguments go to
// libm.
struct Sine {
  template <class V>
  RB_INLINE V f(const V& x) {
    return vm_sincos(x, 0);
  }
  template <class T>
  RB_INLINE T any(T x) {
    return m_sin(x);
  }
};
struct Cosine {
  template <class V>
  RB_INLINE V f(const V& x) {
    return vm_sincos(x, 1);
  }
  template <class T>
  RB_INLINE T any(T x) {
    return m_cos(x);
  }
};
struct Tangent {
  template <class V>
  RB_INLINE V f(const V& x) {
    return vm_tan(x);
  }
  template <class T>
  RB_INLINE T any(T x) {
    return m_tan(x);
  }
};
// Each result depends on its own element only: arguments that are too large for the vector code are
// recomputed one by one. `r` may be `x`.
template <class T, class Function>
__attribute__((noinline)) void trig_chunk(const T* x, T* r, int64_t n) {
  using V = Block<T>;
  const V limit(kTrigLimit<V>);
  for (int64_t i = 0; i < n; i += kLanesOf<V>) {
    const V given = pack_load<V>(x + i);
    const auto small = vm_abs(given) < limit;
    if (__builtin_expect(!vm_any(small == typename V::Mask(0)), 1)) {
      pack_store(r + i, Function::f(given));
      continue;
    }
    alignas(64) T before[kLanesOf<V>];
    pack_store(before, given);
    pack_store(r + i, Function::f(vm_select(small, given, V(T(0)))));
    for (int k = 0; k < kLanesOf<V>; ++k) {
      const bool fits = before[k] < kTrigLimit<V> && before[k] > -kTrigLimit<V>;
      if (!fits) r[i + k] = Function::any(before[k]);
    }
  }
}
template <class T, class Function>
int trig(const LoopArgs* a) {
  alignas(64) T buffer[kGather];
  const bool dense = a->in_stride[0] == sizeof(T) && a->out_stride == sizeof(T);
  for (int64_t done = 0; done < a->n;) {
    const char* from = a->in[0] + done * a->in_stride[0];
    char* to = a->out + done * a->out_stride;
    int64_t n = a->n - done < kGather ? a->n - done : kGather;
    if (dense && n >= kStep) {
      n = n / kStep * kStep;
      trig_chunk<T, Function>(reinterpret_cast<const T*>(from), reinterpret_cast<T*>(to), n);
    } else {
      gather(buffer, from, a->in_stride[0], n);
      trig_chunk<T, Function>(buffer, buffer, (n + kStep - 1) / kStep * kStep);
      scatter(to, a->out_stride, buffer, n);
    }
    done += n;
  }
  return 0;
}

template <class T>
constexpr rbcpu::FnTable with_trig(rbcpu::FnTable t) {
  t.loops[static_cast<int>(rbcpu::Fn::k_sin)] = &trig<T, Sine>;
  t.loops[static_cast<int>(rbcpu::Fn::k_cos)] = &trig<T, Cosine>;
  t.loops[static_cast<int>(rbcpu::Fn::k_tan)] = &trig<T, Tangent>;
  return t;
}
constexpr rbcpu::FnTable f32_table = with_trig<float>(table<float>);
constexpr rbcpu::FnTable f64_table = with_trig<double>(table<double>);

}  // namespace

namespace rbcpu {
extern const FloatTables RB_LEVEL_NAME(float_tables) = {&f32_table, &f64_table};
}
