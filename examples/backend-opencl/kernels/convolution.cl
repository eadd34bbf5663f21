// Convolution as a product: the windows of the input become columns. Up to three directions;
// missing ones have size 1.
typedef struct {         // twin of rbcl::Geometry
  long items, channels;  // of the input that the columns come from
  long in[3], out[3], kernel_size[3], stride[3], padding[3], dilation[3];
} Geometry;

// columns[(channel, kernel place), (item, out place)] = x[item, channel, in place], 0 in the
// padding. x is row-major.
__kernel void to_columns(__global T* columns, __global const T* x, const Geometry g, long n) {
  const long i = get_global_id(0);
  if (i >= n) return;
  const long outs = g.out[0] * g.out[1] * g.out[2],
             taps = g.kernel_size[0] * g.kernel_size[1] * g.kernel_size[2];
  const long wide = g.items * outs, row = i / wide, column = i - row * wide;
  const long item = column / outs, channel = row / taps;
  long out = column - item * outs, tap = row - channel * taps, place = 0, scale = 1;
  bool inside = true;
  for (int d = 2; d >= 0; --d) {
    const long o = out % g.out[d], t = tap % g.kernel_size[d];
    out /= g.out[d];
    tap /= g.kernel_size[d];
    const long at = o * g.stride[d] - g.padding[d] + t * g.dilation[d];
    inside = inside && at >= 0 && at < g.in[d];
    place += at * scale;
    scale *= g.in[d];
  }
  columns[i] = inside ? x[(item * g.channels + channel) * scale + place] : (T)0;
}

// The transpose, gathered by each input element: x[item, channel, in place] = sum of its columns.
__kernel void from_columns(__global T* x, __global const T* columns, const Geometry g, long n) {
  const long i = get_global_id(0);
  if (i >= n) return;
  const long outs = g.out[0] * g.out[1] * g.out[2],
             taps = g.kernel_size[0] * g.kernel_size[1] * g.kernel_size[2];
  const long ins = g.in[0] * g.in[1] * g.in[2], wide = g.items * outs;
  const long plane = i / ins, item = plane / g.channels, channel = plane - item * g.channels;
  long rest = i - plane * ins, at[3];
  for (int d = 2; d >= 0; --d) {
    at[d] = rest % g.in[d] + g.padding[d];
    rest /= g.in[d];
  }
  T sum = 0;
  for (long tap = 0; tap < taps; ++tap) {
    long left = tap, place = 0, scale = 1;
    bool hit = true;
    for (int d = 2; d >= 0; --d) {
      const long shifted = at[d] - left % g.kernel_size[d] * g.dilation[d];
      left /= g.kernel_size[d];
      const long o = shifted / g.stride[d];
      hit = hit && shifted >= 0 && o * g.stride[d] == shifted && o < g.out[d];
      place += o * scale;
      scale *= g.out[d];
    }
    if (hit) sum += columns[(channel * taps + tap) * wide + item * outs + place];
  }
  x[i] = sum;
}
