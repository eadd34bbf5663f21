// Convolutions in one to three directions as products of matrices whose operands are read where
// they lie (implicit GEMM): tiles of 64 x 64 by blocks of 256 threads, each of which sums for 4 x 4
// elements. Before it stand A and B (operands), T (computed in), O (results) and V (bias).
#define RB_CONTRACTED  // see compile.h
#define RB_TILE 64
#define RB_DEPTH 16
struct Conv {  // twin of rbcuda's; directions that are missing have size 1
  Int64 n, groups, channels, outputs;  // channels and outputs of a group
  Int64 in[3], kernel[3], out[3], stride[3], padding[3], dilation[3];
  Int64 x_batch, x_channel, x_step[3];  // strides of input, weight and output
  Int64 w_output, w_channel, w_step[3];
  Int64 y_batch, y_channel, y_step[3];
  Int64 bias_step, segment;  // segment: of the sum over positions, in a weight's gradient
};

// Position i of a volume.
struct Position {
  Int64 batch, at[3];
};
__device__ inline Position position_of(Int64 i, const Int64* size) {
  Position p;
  if (i <= 0x7fffffff) {  // 32-bit divisions
    UInt32 rest = (UInt32)i;
    for (int d = 2; d >= 0; --d) {
      const UInt32 above = rest / (UInt32)size[d];
      p.at[d] = rest - above * (UInt32)size[d];
      rest = above;
    }
    p.batch = rest;
    return p;
  }
  for (int d = 2; d >= 0; --d) {
    const Int64 above = i / size[d];
    p.at[d] = i - above * size[d];
    i = above;
  }
  p.batch = i;
  return p;
}

// Element k of the sum for a group's result: a channel and a tap, channels last.
struct Tap {
  Int64 channel, at[3], w_place;
};
template <bool GRADIENT>
__device__ inline Tap tap_of(const Conv& c, Int64 k) {
  Tap t;
  const Int64 channels = GRADIENT ? c.outputs : c.channels;
  const Position p = position_of(k / channels, c.kernel);
  t.channel = k % channels;
  t.w_place = t.channel * (GRADIENT ? c.w_output : c.w_channel);
  for (int d = 0; d < 3; ++d) {
    t.at[d] = p.at[d];
    t.w_place += p.at[d] * c.w_step[d];
  }
  return t;
}

// Where the element lies that a tap reads for a result at `p`, or -1: of the input for an output,
// or (GRADIENT) of the output's gradient for an input.
template <bool GRADIENT>
__device__ inline Int64 read_place(const Conv& c, const Position& p, const Tap& t) {
  Int64 place = GRADIENT ? p.batch * c.y_batch + t.channel * c.y_channel
                         : p.batch * c.x_batch + t.channel * c.x_channel;
  for (int d = 0; d < 3; ++d) {
    if (GRADIENT) {
      const Int64 far = p.at[d] + c.padding[d] - t.at[d] * c.dilation[d];
      if (far < 0) return -1;
      const Int64 o = c.stride[d] == 1 ? far : far / c.stride[d];
      if (o * c.stride[d] != far || o >= c.out[d]) return -1;
      place += o * c.y_step[d];
    } else {
      const Int64 i = p.at[d] * c.stride[d] - c.padding[d] + t.at[d] * c.dilation[d];
      if (i < 0 || i >= c.in[d]) return -1;
      place += i * c.x_step[d];
    }
  }
  return place;
}

template <class T>
__device__ inline void multiply_tiles(T (*left)[RB_TILE + 1], T (*right)[RB_TILE + 1],
                                      T (*sums)[4]) {
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
  for (int k = 0; k < RB_DEPTH; ++k) {
    T l[4], r[4];
    for (int i = 0; i < 4; ++i) l[i] = left[k][y + 16 * i], r[i] = right[k][x + 16 * i];
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < 4; ++j) sums[i][j] = (T)(sums[i][j] + l[i] * r[j]);
  }
}

// Outputs from the input, or (GRADIENT) the input's gradient from the output's: rows of the tile
// are positions, columns channels of a group. Blocks: positions, channels, groups.
template <bool GRADIENT, class T>
__device__ inline void conv(O* to, const A* from, const B* weight, const V* bias, const Conv& c) {
  __shared__ T left[RB_DEPTH][RB_TILE + 1];
  __shared__ T right[RB_DEPTH][RB_TILE + 1];
  __shared__ Tap taps[RB_DEPTH];
  const Int64* size = GRADIENT ? c.in : c.out;
  const Int64 rows = c.n * size[0] * size[1] * size[2];
  const Int64 columns = GRADIENT ? c.channels : c.outputs;
  const Int64 depth = (GRADIENT ? c.outputs : c.channels) * c.kernel[0] * c.kernel[1] * c.kernel[2];
  const Int64 column = (Int64)blockIdx.y * RB_TILE, group = blockIdx.z;
  const A* source = from + group * (GRADIENT ? c.outputs * c.y_channel : c.channels * c.x_channel);
  const B* weights = weight + group * c.outputs * c.w_output;
  const Int64 step = GRADIENT ? c.w_channel : c.w_output;
  const int own_row = threadIdx.x % RB_TILE, own_k = threadIdx.x / RB_TILE;  // 4 of the 16 each
  for (Int64 row = (Int64)blockIdx.x * RB_TILE; row < rows; row += (Int64)gridDim.x * RB_TILE) {
    T sums[4][4];
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < 4; ++j) sums[i][j] = As<T>::of(0);
    const bool in_rows = row + own_row < rows, in_columns = column + own_row < columns;
    const Position p = position_of(in_rows ? row + own_row : 0, size);
    for (Int64 start = 0; start < depth; start += RB_DEPTH) {
      if (threadIdx.x < RB_DEPTH && start + threadIdx.x < depth)
        taps[threadIdx.x] = tap_of<GRADIENT>(c, start + threadIdx.x);
      __syncthreads();
      for (int k = own_k; k < RB_DEPTH; k += 4) {
        const bool here = start + k < depth;
        Int64 place = -1;
        if (here && in_rows) place = read_place<GRADIENT>(c, p, taps[k]);
        left[k][own_row] = place >= 0 ? As<T>::of(source[place]) : As<T>::of(0);
        right[k][own_row] = here && in_columns
                                ? As<T>::of(weights[taps[k].w_place + (column + own_row) * step])
                                : As<T>::of(0);
      }
      __syncthreads();
      multiply_tiles<T>(left, right, sums);
      __syncthreads();
    }
    const int x = threadIdx.x % 16, y = threadIdx.x / 16;
    for (int i = 0; i < 4; ++i) {
      const Int64 r = row + y + 16 * i;
      if (r >= rows) continue;
      const Position q = position_of(r, size);
      Int64 place = q.batch * (GRADIENT ? c.x_batch : c.y_batch);
      for (int d = 0; d < 3; ++d) place += q.at[d] * (GRADIENT ? c.x_step[d] : c.y_step[d]);
      for (int j = 0; j < 4; ++j) {
        const Int64 o = column + x + 16 * j;
        if (o >= columns) continue;
        const Int64 channel = group * columns + o;
        T v = sums[i][j];
        if (bias) v = (T)(v + As<T>::of(bias[channel * c.bias_step]));
        to[place + channel * (GRADIENT ? c.x_channel : c.y_channel)] = As<O>::of(v);
      }
    }
  }
}

// Weights' gradients: rows of the tile are outputs, columns channels with taps, the sum is over
// positions in segments. Blocks: columns, outputs of groups, segments. O is T where there are
// several; then results lie in rows without gaps, one set for each segment.
template <class T>
__device__ inline void conv_dw(O* dw, const A* x, const B* g, const Conv& c, Int64 segments) {
  __shared__ T left[RB_DEPTH][RB_TILE + 1];
  __shared__ T right[RB_DEPTH][RB_TILE + 1];
  __shared__ Position positions[RB_DEPTH];
  const Int64 all = c.n * c.out[0] * c.out[1] * c.out[2];
  const Int64 window = c.kernel[0] * c.kernel[1] * c.kernel[2], columns = c.channels * window;
  const Int64 tiles = (c.outputs + RB_TILE - 1) / RB_TILE;
  const Int64 group = blockIdx.y / tiles, row = blockIdx.y % tiles * RB_TILE;
  const Int64 column = (Int64)blockIdx.x * RB_TILE, segment = blockIdx.z;
  const Int64 begin = segment * c.segment;
  const Int64 end = begin + c.segment < all ? begin + c.segment : all;
  const int own = threadIdx.x % RB_TILE, own_k = threadIdx.x / RB_TILE;
  const bool in_rows = row + own < c.outputs, in_columns = column + own < columns;
  const B* gradient = g + (group * c.outputs + (in_rows ? row + own : 0)) * c.y_channel;
  const Tap tap = tap_of<false>(c, in_columns ? column + own : 0);
  const A* source = x + group * c.channels * c.x_channel;
  T sums[4][4];
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) sums[i][j] = As<T>::of(0);
  for (Int64 start = begin; start < end; start += RB_DEPTH) {
    if (threadIdx.x < RB_DEPTH && start + threadIdx.x < end)
      positions[threadIdx.x] = position_of(start + threadIdx.x, c.out);
    __syncthreads();
    for (int k = own_k; k < RB_DEPTH; k += 4) {
      const bool here = start + k < end;
      T l = As<T>::of(0), r = As<T>::of(0);
      if (here && in_rows) {
        const Position& p = positions[k];
        l = As<T>::of(gradient[p.batch * c.y_batch + p.at[0] * c.y_step[0] +
                               p.at[1] * c.y_step[1] + p.at[2] * c.y_step[2]]);
      }
      if (here && in_columns) {
        const Int64 place = read_place<false>(c, positions[k], tap);
        if (place >= 0) r = As<T>::of(source[place]);
      }
      left[k][own] = l;
      right[k][own] = r;
    }
    __syncthreads();
    multiply_tiles<T>(left, right, sums);
    __syncthreads();
  }
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  for (int j = 0; j < 4; ++j) {
    const Int64 k = column + tx + 16 * j;
    if (k >= columns) continue;
    const Tap t = tap_of<false>(c, k);
    for (int i = 0; i < 4; ++i) {
      const Int64 o = row + ty + 16 * i;
      if (o >= c.outputs) continue;
      const Int64 output = group * c.outputs + o;
      if (segments > 1) {
        const Int64 place = ((output * c.channels + t.channel) * c.kernel[0] + t.at[0]);
        dw[segment * c.groups * c.outputs * columns +
           (place * c.kernel[1] + t.at[1]) * c.kernel[2] + t.at[2]] = As<O>::of(sums[i][j]);
      } else {
        dw[output * c.w_output + t.w_place] = As<O>::of(sums[i][j]);
      }
    }
  }
}

// Groups of few channels: a thread for each result. Depthwise convolutions are these.
template <bool GRADIENT, class T>
__device__ inline void conv_direct(O* to, const A* from, const B* weight, const V* bias,
                                   const Conv& c, int last) {
  const Int64* size = GRADIENT ? c.in : c.out;
  const Int64 columns = GRADIENT ? c.channels : c.outputs;
  const Int64 summed = GRADIENT ? c.outputs : c.channels;
  const Int64 places = size[0] * size[1] * size[2], all = columns * c.groups;
  const Int64 n = c.n * all * places;
  for (Int64 i = RB_THREAD; i < n; i += RB_THREADS) {
    // Neighbouring threads write neighbours: of a channel, or (last) of a place.
    const Int64 channel = last ? i % all : i / places % all;
    const Int64 rest = last ? i / all : i / places / all * places + i % places;
    const Position p = position_of(rest, size);
    const Int64 group = channel / columns, o = channel - group * columns;
    const A* source =
        from + group * (GRADIENT ? c.outputs * c.y_channel : c.channels * c.x_channel);
    const B* weights =
        weight + group * c.outputs * c.w_output + o * (GRADIENT ? c.w_channel : c.w_output);
    T sum = As<T>::of(0);
    Tap t;
    for (t.channel = 0; t.channel < summed; ++t.channel)
      for (t.at[0] = 0; t.at[0] < c.kernel[0]; ++t.at[0])
        for (t.at[1] = 0; t.at[1] < c.kernel[1]; ++t.at[1])
          for (t.at[2] = 0; t.at[2] < c.kernel[2]; ++t.at[2]) {
            const Int64 place = read_place<GRADIENT>(c, p, t);
            if (place < 0) continue;
            const Int64 w = t.channel * (GRADIENT ? c.w_output : c.w_channel) +
                            t.at[0] * c.w_step[0] + t.at[1] * c.w_step[1] + t.at[2] * c.w_step[2];
            sum = (T)(sum + As<T>::of(source[place]) * As<T>::of(weights[w]));
          }
    if (bias) sum = (T)(sum + As<T>::of(bias[channel * c.bias_step]));
    Int64 place = p.batch * (GRADIENT ? c.x_batch : c.y_batch) +
                  channel * (GRADIENT ? c.x_channel : c.y_channel);
    for (int d = 0; d < 3; ++d) place += p.at[d] * (GRADIENT ? c.x_step[d] : c.y_step[d]);
    to[place] = As<O>::of(sum);
  }
}
// A block for each element of the weight's gradient.
template <class T>
__device__ inline void conv_direct_dw(O* dw, const A* x, const B* g, const Conv& c) {
  const Int64 columns = c.channels * c.kernel[0] * c.kernel[1] * c.kernel[2];
  const Int64 n = c.groups * c.outputs * columns, all = c.n * c.out[0] * c.out[1] * c.out[2];
  for (Int64 e = blockIdx.x; e < n; e += gridDim.x) {
    const Int64 output = e / columns, group = output / c.outputs;
    const Tap t = tap_of<false>(c, e - output * columns);
    T sum = As<T>::of(0);
    for (Int64 i = threadIdx.x; i < all; i += blockDim.x) {
      const Position p = position_of(i, c.out);
      const Int64 place = read_place<false>(c, p, t);
      if (place < 0) continue;
      Int64 at = p.batch * c.y_batch + output * c.y_channel;
      for (int d = 0; d < 3; ++d) at += p.at[d] * c.y_step[d];
      sum = (T)(sum + As<T>::of(x[group * c.channels * c.x_channel + place]) * As<T>::of(g[at]));
    }
    sum = block_reduce(sum, JoinSum());
    if (threadIdx.x == 0) dw[output * c.w_output + t.w_place] = As<O>::of(sum);
  }
}

#define RB_CONV(GRADIENT)                                                                        \
  extern "C" __global__ void rb_kernel(O* to, const A* from, const B* weight, const V* bias,     \
                                       const Conv c) {                                           \
    conv<GRADIENT, T>(to, from, weight, bias, c);                                                \
  }
#define RB_CONV_DW                                                                              \
  extern "C" __global__ void rb_kernel(O* dw, const A* x, const B* g, const Conv c,             \
                                       Int64 segments) {                                        \
    conv_dw<T>(dw, x, g, c, segments);                                                          \
  }
#define RB_CONV_DIRECT(GRADIENT)                                                                 \
  extern "C" __global__ void rb_kernel(O* to, const A* from, const B* weight, const V* bias,     \
                                       const Conv c, int last) {                                 \
    conv_direct<GRADIENT, T>(to, from, weight, bias, c, last);                                   \
  }
#define RB_CONV_DIRECT_DW                                                                       \
  extern "C" __global__ void rb_kernel(O* dw, const A* x, const B* g, const Conv c) {           \
    conv_direct_dw<T>(dw, x, g, c);                                                             \
  }
