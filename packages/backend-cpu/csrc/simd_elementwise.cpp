// Elementwise loops of float32 and float64, once per instruction-set level.
#include "elementwise_loops.h"
#include "level.h"

namespace {

// sin and cos: the polynomial's reduction holds up to kTrigLimit; chunks with larger arguments go
// to libm.
template <class T, uint32_t Quarter>
__attribute__((noinline)) void trig_chunk(const T* x, T* r, int64_t n) {
  using V = Block<T>;
  typename V::Mask small(-1);
  for (int64_t i = 0; i < n; i += kLanesOf<V>)
    small = small & (vm_abs(pack_load<V>(x + i)) < V(kTrigLimit<V>));
  if (vm_any(small == typename V::Mask(0))) {
    for (int64_t i = 0; i < n; ++i) r[i] = Quarter ? m_cos(x[i]) : m_sin(x[i]);
  } else {
    for (int64_t i = 0; i < n; i += kLanesOf<V>)
      pack_store(r + i, vm_sincos(pack_load<V>(x + i), Quarter));
  }
}
template <class T, uint32_t Quarter>
int trig(const LoopArgs* a) {
  alignas(64) T buffer[kGather];
  const bool dense = a->in_stride[0] == sizeof(T) && a->out_stride == sizeof(T);
  for (int64_t done = 0; done < a->n;) {
    const char* from = a->in[0] + done * a->in_stride[0];
    char* to = a->out + done * a->out_stride;
    int64_t n = a->n - done < kGather ? a->n - done : kGather;
    if (dense && n >= kStep) {
      n = n / kStep * kStep;
      trig_chunk<T, Quarter>(reinterpret_cast<const T*>(from), reinterpret_cast<T*>(to), n);
    } else {
      gather(buffer, from, a->in_stride[0], n);
      trig_chunk<T, Quarter>(buffer, buffer, (n + kStep - 1) / kStep * kStep);
      scatter(to, a->out_stride, buffer, n);
    }
    done += n;
  }
  return 0;
}

template <class T>
constexpr rbcpu::FnTable with_trig(rbcpu::FnTable t) {
  t.loops[static_cast<int>(rbcpu::Fn::k_sin)] = &trig<T, 0>;
  t.loops[static_cast<int>(rbcpu::Fn::k_cos)] = &trig<T, 1>;
  return t;
}
constexpr rbcpu::FnTable f32_table = with_trig<float>(table<float>);
constexpr rbcpu::FnTable f64_table = with_trig<double>(table<double>);

}  // namespace

namespace rbcpu {
extern const FloatTables RB_LEVEL_NAME(float_tables) = {&f32_table, &f64_table};
}
