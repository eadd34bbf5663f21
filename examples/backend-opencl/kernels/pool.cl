// Pooling of volumes in up to three directions. Windows are of a given size, or divide each
// direction (`adapted`).
typedef struct {  // twin of rbcl::Windows
  long in[3], out[3], kernel_size[3], stride[3], padding[3], dilation[3];
  long divisor;  // of a mean; 0: the window's size
  int adapted, count_padding;
} Windows;

// What a window sees of direction d: `count` elements from `begin` on, `step` apart; `full` counts
// the padding too.
typedef struct {
  long begin, count, step, full;
} Span;
Span window_span(const Windows* w, int d, long o) {
  Span s;
  if (w->adapted) {
    s.begin = o * w->in[d] / w->out[d];
    s.count = s.full = ((o + 1) * w->in[d] + w->out[d] - 1) / w->out[d] - s.begin;
    s.step = 1;
    return s;
  }
  const long start = o * w->stride[d] - w->padding[d], step = w->dilation[d];
  const long skip = start < 0 ? (-start + step - 1) / step : 0;
  s.begin = start + skip * step;
  const long room = w->in[d] - s.begin;
  s.count = clamp(w->kernel_size[d] - skip, 0L, room <= 0 ? 0L : (room + step - 1) / step);
  s.step = step;
  s.full = min(start + w->kernel_size[d], w->in[d] + w->padding[d]) - start;
  return s;
}
#define WINDOW(i)                                                          \
  const long plane = w.out[1] * w.out[2], volume = i / (w.out[0] * plane); \
  const long inside = i - volume * w.out[0] * plane;                       \
  const Span z = window_span(&w, 0, inside / plane);                       \
  const Span y = window_span(&w, 1, inside % plane / w.out[2]);            \
  const Span x = window_span(&w, 2, inside % w.out[2]);                    \
  const long in_size = w.in[0] * w.in[1] * w.in[2];
#define FOR_WINDOW(BODY)                                                                         \
  for (long c = 0; c < z.count; ++c)                                                             \
    for (long b = 0; b < y.count; ++b)                                                           \
      for (long a = 0; a < x.count; ++a) {                                                       \
        const long place = ((z.begin + c * z.step) * w.in[1] + y.begin + b * y.step) * w.in[2] + \
                           x.begin + a * x.step;                                                 \
        BODY                                                                                     \
      }

__kernel void max_pool(__global T* values, __global long* places, __global const T* from,
                       const Windows w, long n) {
  const long i = get_global_id(0);
  if (i >= n) return;
  WINDOW(i)
  T best = T_MIN;
  long at = (z.begin * w.in[1] + y.begin) * w.in[2] + x.begin;
  FOR_WINDOW(const T v = from[volume * in_size + place]; if (v > best || IS_NAN(v)) {
    best = v;
    at = place;
  })
  values[i] = best;
  places[i] = at;
}

// A work item per volume, in order.
__kernel void max_pool_gradient(__global T* to, __global const T* g, __global const long* places,
                                long in_size, long out_size, long volumes, __global int* fault,
                                int number) {
  const long v = get_global_id(0);
  if (v >= volumes) return;
  for (long i = 0; i < in_size; ++i) to[v * in_size + i] = 0;
  for (long i = v * out_size; i < (v + 1) * out_size; ++i) {
    const long place = places[i];
    if (place < 0 || place >= in_size)
      note_fault(fault, number);
    else
      to[v * in_size + place] += g[i];
  }
}

#if IS_FLOAT
T divisor_of(const Windows* w, Span z, Span y, Span x) {
  if (w->divisor) return w->divisor;
  return w->count_padding ? z.full * y.full * x.full : z.count * y.count * x.count;
}
__kernel void mean_pool(__global T* to, __global const T* from, const Windows w, long n) {
  const long i = get_global_id(0);
  if (i >= n) return;
  WINDOW(i)
  T sum = 0;
  FOR_WINDOW(sum += from[volume * in_size + place];)
  to[i] = sum / divisor_of(&w, z, y, x);
}
__kernel void mean_pool_gradient(__global T* to, __global const T* g, const Windows w,
                                 long volumes) {
  const long v = get_global_id(0);
  if (v >= volumes) return;
  const long outs = w.out[0] * w.out[1] * w.out[2], ins = w.in[0] * w.in[1] * w.in[2];
  for (long i = 0; i < ins; ++i) to[v * ins + i] = 0;
  for (long i = v * outs; i < (v + 1) * outs; ++i) {
    WINDOW(i)
    const T share = g[i] / divisor_of(&w, z, y, x);
    FOR_WINDOW(to[volume * in_size + place] += share;)
  }
}
#endif
