// Elementwise loops of float32 and float64, once per instruction-set level.
#include "elementwise_loops.h"
#include "level.h"

namespace {

// sin and cos: the polynomial's reduction holds up to kTrigLimit; blocks with larger arguments go
// to libm.
template <uint32_t Quarter>
int trig(const LoopArgs* a) {
  constexpr int64_t kBlock = 64;
  const char* x = a->in[0];
  char* r = a->out;
  const int64_t sx = a->in_stride[0], sr = a->out_stride;
  float buffer[kBlock];
  for (int64_t done = 0; done < a->n; done += kBlock) {
    const int64_t n = a->n - done < kBlock ? a->n - done : kBlock;
    const char* bx = x + done * sx;
    char* br = r + done * sr;
    for (int64_t i = 0; i < n; ++i) buffer[i] = load<float>(bx + i * sx);
    bool large = false;
    for (int64_t i = 0; i < n; ++i) large |= !(vm_abs(buffer[i]) < kTrigLimit);
    if (large) {
      for (int64_t i = 0; i < n; ++i) buffer[i] = Quarter ? m_cos(buffer[i]) : m_sin(buffer[i]);
    } else {
      for (int64_t i = 0; i < n; ++i) buffer[i] = vm_sincos(buffer[i], Quarter);
    }
    for (int64_t i = 0; i < n; ++i) at<float>(br + i * sr) = buffer[i];
  }
  return 0;
}

constexpr rbcpu::FnTable with_trig(rbcpu::FnTable t) {
  t.loops[static_cast<int>(rbcpu::Fn::k_sin)] = &trig<0>;
  t.loops[static_cast<int>(rbcpu::Fn::k_cos)] = &trig<1>;
  return t;
}
constexpr rbcpu::FnTable f32_table = with_trig(table<float>);

}  // namespace

namespace rbcpu {
extern const FloatTables RB_LEVEL_NAME(float_tables) = {&f32_table, &table<double>};
}
