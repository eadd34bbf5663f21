// Pooling over windows of a given or of an adapted size. Before it stand A (what is read), T
// (computed in) and O (results). I: the integers for positions.
struct Pool {  // twin of rbcuda's; directions that are missing have size 1
  Int64 planes, in[3], out[3];
  Int64 kernel[3], stride[3], padding[3], dilation[3];
  Int64 in_step[3], out_step[3], index_step[3];  // strides in memory
  double divisor;                               // 0: the window's size
  int adapted, count_pad, planes_fast, reserved;
};
struct Spot {
  Int64 plane, at[3];
};
// Position i of planes of `size`: planes are the fastest where they lie together in memory.
template <class I>
__device__ inline Spot spot_of(const Pool& p, const Int64* size, Int64 position) {
  I i = (I)position, plane;
  const I planes = (I)p.planes;
  if (p.planes_fast) {
    plane = i % planes;
    i = i / planes;
  }
  Spot s;
  for (int d = 2; d >= 0; --d) {
    const I above = i / (I)size[d];
    s.at[d] = i - above * (I)size[d];
    i = above;
  }
  s.plane = p.planes_fast ? plane : i;
  return s;
}
// What window i of a direction sees: `count` elements from `begin`, `dilation` apart; `full` counts
// the padding as well.
struct Span {
  Int64 begin, count, step;
  double full;
};
__device__ inline Span span_of(const Pool& p, int d, Int64 i) {
  Span s;
  if (p.adapted) {
    s.begin = i * p.in[d] / p.out[d];
    s.count = ((i + 1) * p.in[d] + p.out[d] - 1) / p.out[d] - s.begin;
    s.step = 1;
    s.full = (double)s.count;
    return s;
  }
  const Int64 start = i * p.stride[d] - p.padding[d], step = p.dilation[d];
  const Int64 skip = start < 0 ? (-start + step - 1) / step : 0;
  s.begin = start + skip * step;
  const Int64 room = p.in[d] - s.begin, inside = room <= 0 ? 0 : (room + step - 1) / step;
  const Int64 left = p.kernel[d] - skip < 0 ? 0 : p.kernel[d] - skip;
  s.count = left < inside ? left : inside;
  s.step = step;
  const Int64 last = start + p.kernel[d], end = p.in[d] + p.padding[d];
  s.full = (double)((last < end ? last : end) - start);
  return s;
}
__device__ inline double divisor_of(const Pool& p, const Span* s) {
  if (p.divisor != 0) return p.divisor;
  return p.count_pad ? s[0].full * s[1].full * s[2].full
                     : (double)(s[0].count * s[1].count * s[2].count);
}

// The first of the largest; the last NaN wins. planes: strides of x, values and indices.
template <class I, class T>
__device__ inline void max_pool(O* values, Int64* indices, const A* x, const Pool& p,
                                const Layout& planes) {
  const Int64 n = p.planes * p.out[0] * p.out[1] * p.out[2];
  for (Int64 i = RB_THREAD; i < n; i += RB_THREADS) {
    const Spot o = spot_of<I>(p, p.out, i);
    const Places at = places_of(planes, o.plane);
    Span s[3];
    for (int d = 0; d < 3; ++d) s[d] = span_of(p, d, o.at[d]);
    T best = 0;
    Int64 place = -1;
    for (Int64 z = 0; z < s[0].count; ++z)
      for (Int64 r = 0; r < s[1].count; ++r)
        for (Int64 c = 0; c < s[2].count; ++c) {
          const Int64 iz = s[0].begin + z * s[0].step, ir = s[1].begin + r * s[1].step,
                      ic = s[2].begin + c * s[2].step;
          const T v = As<T>::of(
              x[at.at[0] + iz * p.in_step[0] + ir * p.in_step[1] + ic * p.in_step[2]]);
          if (place < 0 || v > best || v != v) {
            best = v;
            place = (iz * p.in[1] + ir) * p.in[2] + ic;
          }
        }
    values[at.at[1] + o.at[0] * p.out_step[0] + o.at[1] * p.out_step[1] + o.at[2] * p.out_step[2]] =
        As<O>::of(best);
    indices[at.at[2] + o.at[0] * p.index_step[0] + o.at[1] * p.index_step[1] +
            o.at[2] * p.index_step[2]] = place;
  }
}
#define RB_MAX_POOL(I)                                                                       \
  extern "C" __global__ void rb_kernel(O* values, Int64* indices, const A* x, const Pool p,  \
                                       const Layout planes) {                                \
    max_pool<I, T>(values, indices, x, p, planes);                                           \
  }

// planes: strides of x and out.
template <class I, class T>
__device__ inline void avg_pool(O* out, const A* x, const Pool& p, const Layout& planes) {
  const Int64 n = p.planes * p.out[0] * p.out[1] * p.out[2];
  for (Int64 i = RB_THREAD; i < n; i += RB_THREADS) {
    const Spot o = spot_of<I>(p, p.out, i);
    const Places at = places_of(planes, o.plane);
    Span s[3];
    for (int d = 0; d < 3; ++d) s[d] = span_of(p, d, o.at[d]);
    T sum = 0;
    for (Int64 z = 0; z < s[0].count; ++z)
      for (Int64 r = 0; r < s[1].count; ++r)
        for (Int64 c = 0; c < s[2].count; ++c)
          sum += As<T>::of(x[at.at[0] + (s[0].begin + z) * p.in_step[0] +
                             (s[1].begin + r) * p.in_step[1] + (s[2].begin + c) * p.in_step[2]]);
    out[at.at[1] + o.at[0] * p.out_step[0] + o.at[1] * p.out_step[1] + o.at[2] * p.out_step[2]] =
        As<O>::of(sum / (T)divisor_of(p, s));
  }
}
#define RB_AVG_POOL(I)                                                                           \
  extern "C" __global__ void rb_kernel(O* out, const A* x, const Pool p, const Layout planes) {  \
    avg_pool<I, T>(out, x, p, planes);                                                           \
  }

// The windows of a direction that see position i: from `first` to `last`.
__device__ inline void windows_of(const Pool& p, int d, Int64 i, Int64* first, Int64* last) {
  if (p.adapted) {
    *first = i * p.out[d] / p.in[d];
    *last = ((i + 1) * p.out[d] - 1) / p.in[d];
    return;
  }
  const Int64 end = i + p.padding[d], begin = end - p.kernel[d] + 1;
  *first = begin <= 0 ? 0 : (begin + p.stride[d] - 1) / p.stride[d];
  *last = end / p.stride[d] < p.out[d] - 1 ? end / p.stride[d] : p.out[d] - 1;
}
// Each position gathers from the windows that see it. planes: strides of dx and g.
template <class I, class T>
__device__ inline void avg_pool_dx(O* dx, const A* g, const Pool& p, const Layout& planes) {
  const Int64 n = p.planes * p.in[0] * p.in[1] * p.in[2];
  for (Int64 i = RB_THREAD; i < n; i += RB_THREADS) {
    const Spot x = spot_of<I>(p, p.in, i);
    const Places at = places_of(planes, x.plane);
    Int64 first[3], last[3];
    for (int d = 0; d < 3; ++d) windows_of(p, d, x.at[d], &first[d], &last[d]);
    T sum = 0;
    Span s[3];
    for (Int64 z = first[0]; z <= last[0]; ++z) {
      s[0] = span_of(p, 0, z);
      for (Int64 r = first[1]; r <= last[1]; ++r) {
        s[1] = span_of(p, 1, r);
        for (Int64 c = first[2]; c <= last[2]; ++c) {
          s[2] = span_of(p, 2, c);
          sum += As<T>::of(g[at.at[1] + z * p.out_step[0] + r * p.out_step[1] +
                             c * p.out_step[2]]) /
                 (T)divisor_of(p, s);
        }
      }
    }
    dx[at.at[0] + x.at[0] * p.in_step[0] + x.at[1] * p.in_step[1] + x.at[2] * p.in_step[2]] =
        As<O>::of(sum);
  }
}
#define RB_AVG_POOL_DX(I)                                                                       \
  extern "C" __global__ void rb_kernel(O* dx, const A* g, const Pool p, const Layout planes) {  \
    avg_pool_dx<I, T>(dx, g, p, planes);                                                        \
  }

// A warp adds the gradients of one plane in their order: lanes that mean the same place take
// turns. planes: strides of dx (of T, zeros before), g and indices.
template <class T>
__device__ inline void max_pool_dx(T* dx, const A* g, const Int64* indices, const Pool& p,
                                   const Layout& planes) {
  const Int64 n = p.out[0] * p.out[1] * p.out[2], plane_size = p.in[0] * p.in[1] * p.in[2];
  const Int64 warps = RB_THREADS / 32;
  for (Int64 plane = RB_THREAD / 32; plane < p.planes; plane += warps) {
    const Places at = places_of(planes, plane);
    for (Int64 start = 0; start < n; start += 32) {
      const Int64 i = start + RB_LANE;
      Int64 place = -1;
      T v = 0;
      if (i < n) {
        const Int64 above = i / p.out[2], z = above / p.out[1], r = above - z * p.out[1],
                    c = i - above * p.out[2];
        place = indices[at.at[2] + z * p.index_step[0] + r * p.index_step[1] + c * p.index_step[2]];
        v = As<T>::of(
            g[at.at[1] + z * p.out_step[0] + r * p.out_step[1] + c * p.out_step[2]]);
        if (place < 0 || place >= plane_size) place = -1;  // nothing is written out of bounds
      }
      int turn = 0, most = 0;
      for (int lane = 0; lane < 32; ++lane) {
        const Int64 other = shuffle_from(place, lane);
        if (other == place && lane < (int)RB_LANE && place >= 0) ++turn;
      }
      most = warp_reduce(turn, JoinLargest());
      for (int k = 0; k <= most; ++k) {
        if (k == turn && place >= 0) {
          const Int64 row = place / p.in[2], z = row / p.in[1];
          dx[at.at[0] + z * p.in_step[0] + (row - z * p.in[1]) * p.in_step[1] +
             (place - row * p.in[2]) * p.in_step[2]] += v;
        }
        __syncwarp();
      }
    }
  }
}
#define RB_MAX_POOL_DX                                                                           \
  extern "C" __global__ void rb_kernel(T* dx, const A* g, const Int64* indices, const Pool p,    \
                                       const Layout planes) {                                    \
    max_pool_dx<T>(dx, g, indices, p, planes);                                                   \
  }
