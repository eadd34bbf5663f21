#include "ops/conv_mma.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "launch/jit.h"
#include "launch/temporary.h"
#include "launch/texts.h"
#include "launch/view.h"
#include "ops/reduce.h"
#include "ops/settings.h"

namespace rbcuda {
namespace {

constexpr int kPhases = 16;
constexpr int64_t kMostPositions = INT32_MAX - 1024;  // the kernels count in 31 bits
constexpr int64_t kFar = int64_t{1} << 29;            // positions and moves are below it
constexpr int64_t kEnough = 128;                      // blocks that occupy a device
constexpr int64_t kMostBlocks = 65535;                // in y and z

struct Phase {  // twin of the kernels'
  Divisor size, taps;
  int32_t first, first_tap, shift, tap_count, before;
};
struct ConvCall {  // twin of the kernels'
  Phase phase[3][kPhases];
  int32_t phases[3], step[3], tap_step[3], all_taps[3];
  int32_t scale[3], move[3], limit[3];
  Divisor pitch;
  int32_t channels, columns, groups;
  int32_t at[3], to[3];
  int64_t batch, channel, to_batch, to_channel;
  int64_t w_group, w_column, w_channel, w_tap[3], row;
  int64_t bias, batches, segment, segment_step;
  int32_t last, packs;

  int64_t all_phases() const { return int64_t{phases[0]} * phases[1] * phases[2]; }
};

int64_t ceil_of(int64_t n, int64_t each) { return (n + each - 1) / each; }
Divisor divisor(int64_t n) { return divisor_of(static_cast<uint32_t>(std::max<int64_t>(1, n))); }
template <class To>
void copy(const int64_t* from, To* to) {
  for (int d = 0; d < 3; ++d) to[d] = static_cast<To>(from[d]);
}

// Outputs, or the weight's gradient: all positions and all taps of direction `d`.
void one_phase(const Conv& c, int d, ConvCall& call) {
  call.phases[d] = call.step[d] = call.tap_step[d] = 1;
  call.scale[d] = static_cast<int32_t>(c.stride[d]);
  call.move[d] = static_cast<int32_t>(c.dilation[d]);
  call.limit[d] = static_cast<int32_t>(c.in[d]);
  Phase& phase = call.phase[d][0];
  phase.size = divisor(c.out[d]);
  phase.taps = divisor(c.kernel[d]);
  phase.tap_count = call.all_taps[d] = static_cast<int32_t>(c.kernel[d]);
  phase.shift = static_cast<int32_t>(-c.padding[d]);
}

// The input's gradient. A tap reaches position p if p + padding - tap * dilation is a multiple of
// the stride: then both have one remainder by it.
void by_remainder(const Conv& c, int d, ConvCall& call) {
  const int64_t stride = c.stride[d], dilation = c.dilation[d];
  const int64_t common = std::gcd(stride, dilation), tap_step = stride / common;
  call.phases[d] = static_cast<int32_t>(std::min(stride, c.in[d]));
  call.step[d] = static_cast<int32_t>(stride);
  call.tap_step[d] = static_cast<int32_t>(tap_step);
  call.scale[d] = 1;
  call.move[d] = static_cast<int32_t>(-(dilation / common));
  call.limit[d] = static_cast<int32_t>(c.out[d]);
  for (int i = 0; i < call.phases[d]; ++i) {
    Phase& phase = call.phase[d][i];
    const int64_t from = i + c.padding[d];
    int64_t tap = 0;
    while (tap < std::min(tap_step, c.kernel[d]) && tap * dilation % stride != from % stride) ++tap;
    const int64_t taps =
        tap < tap_step && tap < c.kernel[d] ? ceil_of(c.kernel[d] - tap, tap_step) : 0;
    phase.size = divisor(ceil_of(c.in[d] - i, stride));
    phase.taps = divisor(taps);
    phase.first = i;
    phase.first_tap = static_cast<int32_t>(tap);
    phase.shift = static_cast<int32_t>(from / stride - tap * dilation / stride);
    phase.tap_count = static_cast<int32_t>(taps);
    phase.before = call.all_taps[d];
    call.all_taps[d] += phase.tap_count;
  }
}

// Whether 32 bits hold positions, taps and what is between them.
bool is_small(const Conv& c, bool gradient) {
  for (int d = 0; d < 3; ++d) {
    const int64_t reach = c.in[d] + 2 * c.padding[d];
    if (reach >= kFar || c.out[d] >= kFar || c.kernel[d] >= kFar || c.dilation[d] >= kFar ||
        c.kernel[d] * c.dilation[d] >= kFar ||
        std::max(std::abs(c.x_step[d]), std::abs(c.y_step[d])) > INT32_MAX ||
        (gradient && std::min(c.stride[d], c.in[d]) > kPhases))
      return false;
  }
  const int64_t most = std::max(c.channels, c.outputs) + 8;
  return c.inputs() < kMostPositions && c.positions() < kMostPositions && most < kFar &&
         c.window() < kMostPositions / most &&
         c.groups < kMostPositions / (c.window() * most) / most;
}

bool fits_tensor_cores(const Conv& c, bool gradient, const RbTensor& result, const RbTensor& a,
                       const RbTensor& b, int64_t results, int64_t depths) {
  constexpr int64_t kWorth = 1024, kDeep = 16;  // results and products of each that pay for TF32
  const int dtype = a.dtype_id;
  if (b.dtype_id != dtype || result.dtype_id != dtype || !a.numel || !b.numel) return false;
  if (dtype == RB_F32) {
    if (results < kWorth || depths < kDeep || !convolution_tf32()) return false;
  } else if (dtype != RB_F16 && dtype != RB_BF16) {
    return false;
  }
  return is_small(c, gradient) && std::atoi(device_of(a).architecture().c_str() + 3) >= 80;
}

// A tensor as the kernels read or write it: by batch, channel and three directions.
struct Strided {
  const void* data;
  int64_t n, batch, channel, sizes[3], steps[3];

  // Whether each 16 bytes of channels lie together and are aligned.
  bool has_packs(int64_t channels, int64_t each) const {
    bool fits = channel == 1 && channels % each == 0 &&
                reinterpret_cast<uintptr_t>(data) % 16 == 0 && (n == 1 || batch % each == 0);
    for (int d = 0; d < 3; ++d) fits = fits && steps[d] % each == 0;
    return fits;
  }
  // Whether each 16 bytes of positions do.
  bool has_volumes(int64_t each) const {
    int64_t expected = 1;
    for (int d = 2; d >= 0; --d) {
      if (sizes[d] != 1 && steps[d] != expected) return false;
      expected *= sizes[d];
    }
    return expected % each == 0 && reinterpret_cast<uintptr_t>(data) % 16 == 0 &&
           channel % each == 0 && (n == 1 || batch % each == 0);
  }
};
// A direction of size 1 has no stride, so that places outside of it are aligned, too.
Strided strided(const void* data, int64_t n, int64_t batch, int64_t channel, const int64_t* sizes,
                const int64_t* steps) {
  Strided s = {data, n, batch, channel, {}, {}};
  for (int d = 0; d < 3; ++d) {
    s.sizes[d] = sizes[d];
    s.steps[d] = sizes[d] == 1 ? 0 : steps[d];
  }
  return s;
}
Strided input_of(const Conv& c, const void* data) {
  return strided(data, c.n, c.x_batch, c.x_channel, c.in, c.x_step);
}
Strided output_of(const Conv& c, const void* data) {
  return strided(data, c.n, c.y_batch, c.y_channel, c.out, c.y_step);
}

void reads(ConvCall& call, const Strided& s) {
  call.batch = s.batch;
  call.channel = s.channel;
  copy(s.steps, call.at);
}
void meets(ConvCall& call, const Strided& s) {
  call.to_batch = s.batch;
  call.to_channel = s.channel;
  copy(s.steps, call.to);
}

// Whether a weight's taps with their channels are rows without gaps already.
bool is_in_rows(const Conv& c, const RbTensor& weight, int64_t each) {
  int64_t expected = c.channels;
  if (c.w_channel != 1 && c.channels != 1) return false;
  for (int d = 2; d >= 0; --d) {
    if (c.kernel[d] != 1 && c.w_step[d] != expected) return false;
    expected *= c.kernel[d];
  }
  return expected % each == 0 && c.w_output >= expected && c.w_output % each == 0 &&
         reinterpret_cast<uintptr_t>(weight.data) % 16 == 0;
}

// Of the smaller tile or the larger one; of operands that are gathered, or lie together.
constexpr const char* kConv[2][2] = {
    {"RB_CONV_MMA(64, false)\n", "RB_CONV_MMA(64, true)\n"},
    {"RB_CONV_MMA(128, false)\n", "RB_CONV_MMA(128, true)\n"},
};
constexpr const char* kWeights[2][2][2] = {
    {{"RB_CONV_MMA_DW(64, false, false)\n", "RB_CONV_MMA_DW(64, false, true)\n"},
     {"RB_CONV_MMA_DW(64, true, false)\n", "RB_CONV_MMA_DW(64, true, true)\n"}},
    {{"RB_CONV_MMA_DW(128, false, false)\n", "RB_CONV_MMA_DW(128, false, true)\n"},
     {"RB_CONV_MMA_DW(128, true, false)\n", "RB_CONV_MMA_DW(128, true, true)\n"}},
};

Types types_of(int operands, int results, int bias) {
  return {{"A", operands}, {"O", results}, {"V", bias}};
}

// The weight's rows of k for all phases, in memory of their own.
Temporary pack(const char* op, ConvCall& call, const RbTensor& weight, int64_t each) {
  const int64_t lines = int64_t{call.groups} * call.columns;
  const int64_t depths = int64_t{call.all_taps[0]} * call.all_taps[1] * call.all_taps[2];
  const int64_t count = lines * ceil_of(depths * call.pitch.value, each) * each;
  Temporary rows(weight, weight.dtype_id, 1, &count);
  void *to = rows.data(), *from = weight.data;
  void* arguments[] = {&to, &from, &call};
  const int64_t blocks = ceil_of(ceil_of(count, call.all_phases()), 256);
  launch(device_of(weight),
         Kernel{op, types_of(weight.dtype_id, weight.dtype_id, weight.dtype_id), kText_conv_mma,
                "RB_CONV_PACK\n"},
         Grid{static_cast<unsigned>(std::clamp<int64_t>(blocks, 1, 1 << 16)),
              static_cast<unsigned>(call.all_phases()), 1, 256},
         arguments);
  return rows;
}

// The positions of the largest phase.
int64_t positions_of(const ConvCall& call) {
  int64_t positions = call.batches;
  for (int d = 0; d < 3; ++d) positions *= call.phase[d][0].size.value;
  return positions;
}

// Results of a block: 128 x 128 where that leaves enough blocks.
int64_t tile_of(int64_t rows, int64_t columns, int64_t problems) {
  const int64_t blocks = ceil_of(rows, 128) * ceil_of(columns, 128) * problems;
  return rows > 64 && columns > 64 && blocks >= kEnough ? 128 : 64;
}

}  // namespace

bool convolve_by_mma(const char* op, const Conv& c, bool gradient, const RbTensor& to,
                     const RbTensor& from, const RbTensor& weight, const RbTensor* bias) {
  const int64_t summed = gradient ? c.outputs : c.channels;
  if (c.is_direct() ||
      !fits_tensor_cores(c, gradient, to, from, weight, to.numel, summed * c.window()))
    return false;
  const int64_t each = 16 / stored_size(from.dtype_id);
  ConvCall call = {};
  for (int d = 0; d < 3; ++d) gradient ? by_remainder(c, d, call) : one_phase(c, d, call);
  const int64_t phases = call.all_phases();
  if (c.groups * phases > kMostBlocks) return false;
  const Strided input = input_of(c, gradient ? to.data : from.data);
  const Strided output = output_of(c, gradient ? from.data : to.data);
  const Strided &read = gradient ? output : input, &written = gradient ? input : output;
  reads(call, read);
  meets(call, written);
  call.batches = c.n;
  call.channels = static_cast<int32_t>(summed);
  call.columns = static_cast<int32_t>(gradient ? c.channels : c.outputs);
  call.groups = static_cast<int32_t>(c.groups);
  call.pitch = divisor(phases > 1 ? ceil_of(summed, each) * each : summed);
  call.w_group = c.outputs * c.w_output;
  call.w_column = gradient ? c.w_channel : c.w_output;
  call.w_channel = gradient ? c.w_output : c.w_channel;
  copy(c.w_step, call.w_tap);
  call.bias = bias ? bias->strides[0] : 0;
  const bool ahead = read.has_packs(summed, each);
  call.last = written.channel == 1 && c.groups * call.columns > 1;
  call.packs =
      call.last ? written.has_packs(call.columns, each) : phases == 1 && written.has_volumes(each);

  Temporary rows;
  void *result = to.data, *source = from.data, *weights = weight.data,
       *biases = bias ? bias->data : nullptr;
  if (!gradient && is_in_rows(c, weight, each)) {
    call.row = c.w_output;
  } else {
    rows = pack(op, call, weight, each);
    weights = rows.data();
  }
  const int64_t lines = positions_of(call), tile = tile_of(lines, call.columns, c.groups * phases);
  void* arguments[] = {&result, &source, &weights, &biases, &call};
  const Types types = types_of(from.dtype_id, to.dtype_id, bias ? bias->dtype_id : to.dtype_id);
  launch(device_of(to), Kernel{op, types, kText_conv_mma, kConv[tile == 128][ahead]},
         Grid{static_cast<unsigned>(ceil_of(lines, tile) * ceil_of(call.columns, tile)), 1,
              static_cast<unsigned>(c.groups * phases), static_cast<unsigned>(2 * tile)},
         arguments);
  return true;
}

bool weights_by_mma(const char* op, const Conv& c, const RbTensor& dw, const RbTensor& x,
                    const RbTensor& g) {
  if (c.is_direct() || !fits_tensor_cores(c, false, dw, x, g, dw.numel, c.positions()))
    return false;
  const int64_t each = 16 / stored_size(x.dtype_id);
  const int64_t columns = c.channels * c.window(), weights = c.groups * c.outputs * columns;
  ConvCall call = {};
  for (int d = 0; d < 3; ++d) one_phase(c, d, call);
  const Strided input = input_of(c, x.data), output = output_of(c, g.data);
  reads(call, input);
  meets(call, output);
  call.batches = c.n;
  call.channels = static_cast<int32_t>(c.channels);
  call.columns = static_cast<int32_t>(c.outputs);
  call.groups = static_cast<int32_t>(c.groups);
  call.pitch = divisor(c.channels);
  const int64_t tile = c.outputs > 64 && columns > 64 ? 128 : 64;
  const int64_t blocks = ceil_of(columns, tile) * ceil_of(c.outputs, tile) * c.groups;
  const int64_t wanted = segments_of(c, blocks);
  call.segment = ceil_of(ceil_of(c.positions(), wanted), 32) * 32;
  const int64_t segments = ceil_of(c.positions(), call.segment);
  Temporary parts;
  void *to = dw.data, *inputs = x.data, *gradient = g.data;
  if (segments == 1) {
    call.w_column = c.w_output;
    call.w_channel = c.w_channel;
    copy(c.w_step, call.w_tap);
  } else {  // each with rows of k
    const int64_t shape[] = {segments, weights};
    parts = Temporary(dw, RB_F32, 2, shape);
    to = parts.data();
    call.w_column = columns;
    call.w_channel = 1;
    call.segment_step = weights;
    int64_t step = c.channels;
    for (int d = 2; d >= 0; --d) {
      call.w_tap[d] = step;
      step *= c.kernel[d];
    }
  }
  call.w_group = c.outputs * call.w_column;
  const bool ahead = input.has_packs(c.channels, each), ahead_g = output.has_packs(c.outputs, each);
  void* arguments[] = {&to, &inputs, &gradient, &call};
  const int results = segments == 1 ? dw.dtype_id : +RB_F32;
  launch(device_of(dw),
         Kernel{op, types_of(x.dtype_id, results, results), kText_conv_mma,
                kWeights[tile == 128][ahead][ahead_g]},
         Grid{static_cast<unsigned>(blocks), 1, static_cast<unsigned>(segments),
              static_cast<unsigned>(2 * tile)},
         arguments);
  if (segments == 1) return true;
  View part = scalar_view(parts.tensor());
  part.add(segments, weights);
  part.add(dw.shape[0], columns);
  part.add(dw.shape[1], 1);
  for (int d = 2; d < dw.ndim; ++d) part.add(dw.shape[d], call.w_tap[3 - dw.ndim + d]);
  const bool reduced[RB_MAX_DIMS] = {true};
  reduce(op, sum_fold(RB_F32), &dw, nullptr, part.tensor(), reduced);
  return true;
}

}  // namespace rbcuda
