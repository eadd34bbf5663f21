// y and dx: both correlate planes with windows. dx of a strided convolution falls into phases, one
// for each remainder of the place modulo the stride, which see different parts of the window.
#include "conv/conv_direct.h"

#include <algorithm>
#include <vector>

#include "common/level.h"
#include "common/workspace.h"
#include "conv/conv_types.h"

namespace rbcpu {
namespace {

constexpr int64_t kTasks = 8;               // at least, where the sizes allow it
constexpr int64_t kStripElements = 262144;  // of the source
constexpr int64_t kLeastChannels = 256;     // of a task: fewer do not repay gathering the windows
constexpr int64_t kLeastPixels = 192;
constexpr double kTaskFlops = 1e6;

const ConvTable<float>& table(float) { return RB_PICK_LEVEL(conv_table).f32; }
const ConvTable<double>& table(double) { return RB_PICK_LEVEL(conv_table).f64; }

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The source plane under element kz of the window at output slice `slice`, if there is one.
template <class T>
struct Slices {
  const T* data;
  int64_t image_step, channel_step, plane, count;
  int64_t times, over, shift, step;  // z = (slice * times + shift + kz * step) / over

  const T* at(int64_t image, int64_t channel, int64_t slice, int64_t kz) const {
    const int64_t z = slice * times + shift + kz * step;
    if (z < 0 || z % over || z / over >= count) return nullptr;
    return data + image * image_step + channel * channel_step + z / over * plane;
  }
};

struct Tap {
  int64_t row, col;      // in the source, from the window's corner
  int64_t kernel_place;  // in the weight
};
// The taps that the outputs (row + stride * i, col + stride * j) see.
struct Phase {
  int64_t row, col, rows, cols;
  std::vector<Tap> taps;
  std::vector<int64_t> offset;  // of each channel and tap in a strip
  std::vector<int64_t> place;   // and in the weight of a group
  int64_t weight = 0;           // where its packed weights begin
};

template <class T>
struct Correlation {
  // Source: (n, groups * channels, slices, h, w); a virtual channel is a channel and a slice of the
  // window.
  Slices<T> source;
  int64_t n, groups, channels, kd, h, w;
  // Output (n, groups * m, slices, out_h, out_w), of which a phase is every out_stride-th element.
  int64_t m, slices, out_h, out_w, out_stride_h = 1, out_stride_w = 1;
  T* out;
  const T* bias = nullptr;
  // Corner of window (r, c): source row top + r * row_stride, column left + c * col_stride.
  int64_t top, left, row_stride, col_stride;
  std::vector<Phase> phases;
  // Element (channel, kz, tap; m) of the weight of a group.
  const T* weight;
  int64_t weight_group, weight_m, weight_channel, weight_kz;

  void run();

 private:
  struct Plan {
    int64_t rows, cols;              // of the largest phase
    int64_t reach_rows, reach_cols;  // of the window
    bool in_place, merged;
    int64_t pitch, row_step, channel_step, image_step;
    int64_t outer, inner;  // images: outer groups of `inner` evenly spaced ones
    int64_t strip_images, strip_rows, chunks;
    uint64_t used_rows, used_phases;
    int64_t weight_size;  // packed, of one group
  };
  Plan plan_;
  T* packed_;

  void plan();
  void pack(int64_t group, const Phase& phase, int64_t piece, int64_t pieces) const;
  void strip(int64_t group, int64_t outer, int64_t image0, int64_t row0, int64_t chunk) const;
  bool stays_inside() const;
  void compute(const Phase& phase, const ConvStrip<T>& s) const;
  // First output channel of a chunk.
  int64_t chunk_begin(int64_t chunk) const {
    if (chunk == plan_.chunks) return m;
    return m * chunk / plan_.chunks / table(T()).rows * table(T()).rows;
  }
};

template <class T>
bool Correlation<T>::stays_inside() const {
  const int64_t first = source.shift,
                last = (slices - 1) * source.times + source.shift + (kd - 1) * source.step;
  return col_stride == 1 && out_stride_h == 1 && out_stride_w == 1 && source.over == 1 &&
         first >= 0 && (kd == 1 || source.step >= 0) && last < source.count && top >= 0 &&
         left >= 0 && top + (plan_.rows - 1) * row_stride + plan_.reach_rows <= h &&
         left + plan_.cols - 1 + plan_.reach_cols <= w;
}

template <class T>
void Correlation<T>::plan() {
  Plan& p = plan_;
  p.rows = p.cols = p.reach_rows = p.reach_cols = 0;
  p.used_rows = p.used_phases = 0;
  for (const Phase& phase : phases) {
    p.rows = std::max(p.rows, phase.rows);
    p.cols = std::max(p.cols, phase.cols);
    for (const Tap& tap : phase.taps) {
      p.reach_rows = std::max(p.reach_rows, tap.row + 1);
      p.reach_cols = std::max(p.reach_cols, tap.col + 1);
      p.used_rows |= row_stride > 64 ? ~uint64_t{0} : uint64_t{1} << (tap.row % row_stride);
      p.used_phases |= col_stride > 64 ? ~uint64_t{0} : uint64_t{1} << (tap.col % col_stride);
    }
  }
  const int64_t virtual_channels = channels * kd;
  p.in_place = stays_inside();
  p.merged = p.in_place && p.cols == w && row_stride == 1;
  p.outer = slices > 1 ? n : 1;
  p.inner = slices > 1 ? slices : n;
  // Strips: the sizes alone decide.
  p.pitch = ceil_div((p.cols - 1) * col_stride + p.reach_cols, col_stride);
  p.row_step = col_stride * p.pitch;
  const int64_t row_elements = virtual_channels * row_stride * p.row_step,
                image_elements = row_elements * p.rows;
  const int64_t most_chunks = std::max<int64_t>(1, m / kLeastChannels);
  p.strip_images =
      std::clamp<int64_t>(std::min(kStripElements / std::max<int64_t>(1, image_elements),
                                   p.outer * p.inner * groups * most_chunks / kTasks),
                          1, p.inner);
  if (p.in_place && slices > 1) p.strip_images = 1;
  p.strip_rows =
      std::clamp<int64_t>(kStripElements / std::max<int64_t>(1, row_elements), 1, p.rows);
  int64_t tasks = p.outer * ceil_div(p.inner, p.strip_images) * groups;
  if (p.strip_images == 1 && tasks < kTasks) {
    const int64_t pieces = ceil_div(kTasks, tasks);
    p.strip_rows =
        std::min(p.strip_rows, std::max(ceil_div(p.rows, pieces), ceil_div(kLeastPixels, p.cols)));
  }
  tasks *= ceil_div(p.rows, p.strip_rows);
  p.chunks = std::clamp<int64_t>(ceil_div(kTasks, tasks), 1, most_chunks);
  if (p.in_place) {
    p.row_step = w;
    p.channel_step = source.channel_step;
    p.image_step = source.image_step;
  } else {
    p.channel_step = ((p.strip_rows - 1) * row_stride + p.reach_rows) * p.row_step;
    p.image_step = virtual_channels * p.channel_step;
  }
  p.weight_size = 0;
  for (Phase& phase : phases) {
    phase.weight = p.weight_size;
    p.weight_size += m * virtual_channels * static_cast<int64_t>(phase.taps.size());
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t kz = 0; kz < kd; ++kz) {
        const int64_t base = p.in_place ? c * p.channel_step + kz * source.step * source.plane
                                        : (c * kd + kz) * p.channel_step;
        for (const Tap& tap : phase.taps) {
          phase.place.push_back(c * weight_channel + kz * weight_kz + tap.kernel_place);
          phase.offset.push_back(base + (p.in_place ? tap.row * w + tap.col
                                                    : tap.row * p.row_step +
                                                          tap.col % col_stride * p.pitch +
                                                          tap.col / col_stride));
        }
      }
    }
  }
}

// Packs the panels of one piece of each chunk of a phase.
template <class T>
void Correlation<T>::pack(int64_t group, const Phase& phase, int64_t piece, int64_t pieces) const {
  const int64_t depth = static_cast<int64_t>(phase.place.size()), unit = table(T()).rows;
  for (int64_t chunk = 0; chunk < plan_.chunks; ++chunk) {
    const int64_t m0 = chunk_begin(chunk), count = chunk_begin(chunk + 1) - m0,
                  panels = ceil_div(count, unit);
    table(T()).pack_weight({weight + group * weight_group + m0 * weight_m, count, depth, weight_m,
                            phase.place.data(),
                            packed_ + group * plan_.weight_size + phase.weight + m0 * depth,
                            panels * piece / pieces, panels * (piece + 1) / pieces});
  }
}

template <class T>
void Correlation<T>::compute(const Phase& phase, const ConvStrip<T>& s) const {
  if (phase.taps.empty()) {
    for (int64_t c = 0; c < s.m; ++c) {
      for (int64_t i = 0; i < s.images; ++i)
        std::fill_n(s.out + c * s.out_channel + i * s.out_image, s.rows * s.cols, T(0));
    }
    return;
  }
  table(T()).strip(s);
}

template <class T>
void Correlation<T>::strip(int64_t group, int64_t outer, int64_t image0, int64_t row0,
                           int64_t chunk) const {
  const Plan& p = plan_;
  const int64_t images = std::min(p.strip_images, p.inner - image0),
                rows = std::min(p.strip_rows, p.rows - row0), channels_all = channels * kd;
  const int64_t staged = images > 1 ? images * p.rows * p.cols : 0;
  const Workspace<T> copy(p.in_place ? 0 : images * p.image_step + 64);
  const auto slice_of = [&](int64_t i) { return slices > 1 ? image0 + i : 0; };
  const auto image_of = [&](int64_t i) { return slices > 1 ? outer : image0 + i; };
  ConvStrip<T> s;
  s.images = images;
  s.image_step = p.image_step;
  s.slack = !p.in_place;
  s.row_step = p.in_place ? row_stride * w : row_stride * p.row_step;
  if (p.in_place) {
    s.source = source.at(image_of(0), group * channels, slice_of(0), 0) +
               (top + row0 * row_stride) * w + left;
  } else {
    s.source = copy.data();
    for (int64_t i = 0; i < images; ++i) {
      for (int64_t c = 0; c < channels_all; ++c) {
        table(T()).copy_plane(
            {source.at(image_of(i), group * channels + c / kd, slice_of(i), c % kd), h, w,
             top + row0 * row_stride, left, (rows - 1) * row_stride + p.reach_rows, p.pitch,
             col_stride, p.used_rows, static_cast<uint64_t>(std::min<int64_t>(row_stride, 64)),
             p.used_phases, copy.data() + i * p.image_step + c * p.channel_step});
      }
    }
  }
  const int64_t m0 = chunk_begin(chunk), plane = out_h * out_w,
                out_image = slices > 1 ? plane : groups * m * plane;
  s.m = chunk_begin(chunk + 1) - m0;
  s.bias = bias ? bias + group * m + m0 : nullptr;
  const Workspace<T> panel(table(T()).panel), stage(staged * s.m);
  s.panel = panel.data();
  s.stage = stage.data();
  T* target = out + (image_of(0) * groups + group) * m * slices * plane + m0 * slices * plane +
              slice_of(0) * plane;
  const auto fill_in = [&](const Phase& phase) {
    s.depth = static_cast<int64_t>(phase.offset.size());
    s.offset = phase.offset.data();
    s.weight = packed_ + group * p.weight_size + phase.weight + m0 * s.depth;
    s.rows = std::min(rows, phase.rows - row0);
    s.cols = phase.cols;
  };
  if (out_stride_h == 1 && out_stride_w == 1) {
    const Phase& phase = phases[0];
    fill_in(phase);
    if (p.merged) {
      s.cols *= s.rows;
      s.rows = 1;
    }
    s.out = target + row0 * out_w;
    s.out_channel = slices * plane;
    s.out_image = out_image;
    return compute(phase, s);
  }
  // The phases of one row, then their elements in turn.
  const int64_t size = images * rows * p.cols;
  const Workspace<T> parts(size * s.m * out_stride_w);
  for (int64_t a = 0; a < out_stride_h; ++a) {
    for (int64_t b = 0; b < out_stride_w; ++b) {
      const Phase& phase = phases[a * out_stride_w + b];
      fill_in(phase);
      if (s.rows <= 0 || s.cols <= 0) continue;
      s.out = parts.data() + b * size * s.m;
      s.out_channel = size;
      s.out_image = s.rows * s.cols;
      compute(phase, s);
    }
    const int64_t lines = std::min(rows, phases[a * out_stride_w].rows - row0);
    for (int64_t c = 0; c < s.m; ++c) {
      for (int64_t line = 0; line < images * lines; ++line) {
        const int64_t i = line / lines, r = line % lines;
        T* to =
            target + c * slices * plane + i * out_image + ((row0 + r) * out_stride_h + a) * out_w;
        const auto part = [&](int64_t b) {
          return parts.data() + (b * s.m + c) * size + line * phases[a * out_stride_w + b].cols;
        };
        int64_t b = 0;
        if (out_stride_w == 2) {
          const int64_t pairs = out_w / 2;
          table(T()).interleave(part(0), part(1), pairs, to);
          if (out_w % 2) to[out_w - 1] = part(0)[pairs];
          b = 2;
        }
        for (; b < out_stride_w; ++b) {
          const int64_t cols = phases[a * out_stride_w + b].cols;
          const T* from = part(b);
          for (int64_t k = 0; k < cols; ++k) to[b + k * out_stride_w] = from[k];
        }
      }
    }
  }
}

template <class T>
void Correlation<T>::run() {
  plan();
  const Plan& p = plan_;
  const Workspace<T> packed(groups * p.weight_size);
  packed_ = packed.data();
  const int64_t pieces = groups < kTasks ? kTasks : 1,
                jobs = groups * static_cast<int64_t>(phases.size()) * pieces;
  rb::parallel_for(jobs, std::max<int64_t>(1, 65536 * pieces / std::max<int64_t>(1, p.weight_size)),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t job = begin; job < end; ++job) {
                       const int64_t rest = job / pieces;
                       const Phase& phase = phases[rest / groups];
                       if (!phase.taps.empty()) pack(rest % groups, phase, job % pieces, pieces);
                     }
                   });
  const int64_t downs = ceil_div(p.rows, p.strip_rows), runs = ceil_div(p.inner, p.strip_images);
  const int64_t tasks = p.outer * runs * groups * downs * p.chunks;
  double flops = 0;
  for (const Phase& phase : phases) {
    flops += 2.0 * static_cast<double>(n * slices * phase.rows * phase.cols) *
             static_cast<double>(groups * m) * static_cast<double>(phase.offset.size());
  }
  const int64_t grain = std::max<int64_t>(
      1, static_cast<int64_t>(kTaskFlops / (flops / static_cast<double>(tasks) + 1)));
  rb::parallel_for(tasks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      int64_t rest = task;
      const int64_t chunk = rest % p.chunks;
      rest /= p.chunks;
      const int64_t down = rest % downs;
      rest /= downs;
      const int64_t group = rest % groups;
      rest /= groups;
      strip(group, rest / runs, rest % runs * p.strip_images, down * p.strip_rows, chunk);
    }
  });
}

}  // namespace

template <class T>
void conv_forward(const ConvGeometry& g, const T* x, const T* w, const T* bias, T* y) {
  if (g.depth() == 0) {
    for (int64_t i = 0; i < g.n * g.o; ++i)
      std::fill_n(y + i * g.out_volume(), g.out_volume(), bias ? bias[i % g.o] : T(0));
    return;
  }
  if (depthwise(g)) return depthwise_forward(g, x, w, bias, y);
  Correlation<T> job;
  job.source = {x, g.c * g.in_volume(), g.in_volume(), g.in_plane(), g.in[0], g.stride[0],
                1, -g.padding[0],       g.dilation[0]};
  job.n = g.n;
  job.groups = g.groups;
  job.channels = g.cg();
  job.kd = g.kernel[0];
  job.h = g.in[1];
  job.w = g.in[2];
  job.m = g.og();
  job.slices = g.out[0];
  job.out_h = g.out[1];
  job.out_w = g.out[2];
  job.out = y;
  job.bias = bias;
  job.top = -g.padding[1];
  job.left = -g.padding[2];
  job.row_stride = g.stride[1];
  job.col_stride = g.stride[2];
  Phase all{0, 0, g.out[1], g.out[2], {}, {}, {}};
  for (int64_t i = 0; i < g.kernel[1]; ++i) {
    for (int64_t j = 0; j < g.kernel[2]; ++j)
      all.taps.push_back({i * g.dilation[1], j * g.dilation[2], i * g.kernel[2] + j});
  }
  job.phases.push_back(std::move(all));
  job.weight = w;
  job.weight_group = g.og() * g.depth();
  job.weight_m = g.depth();
  job.weight_channel = g.window();
  job.weight_kz = g.kernel[1] * g.kernel[2];
  job.run();
}

template <class T>
void conv_input_gradient(const ConvGeometry& g, const T* dy, const T* w, T* dx) {
  if (g.o * g.out_volume() == 0) {
    std::fill_n(dx, g.n * g.c * g.in_volume(), T(0));
    return;
  }
  if (depthwise(g) && g.og() == 1 && g.stride[0] == 1)
    return depthwise_input_gradient(g, dy, w, dx);
  Correlation<T> job;
  job.source = {dy, g.o * g.out_volume(), g.out_volume(), g.out_plane(), g.out[0],
                1,  g.stride[0],          g.padding[0],   -g.dilation[0]};
  job.n = g.n;
  job.groups = g.groups;
  job.channels = g.og();
  job.kd = g.kernel[0];
  job.h = g.out[1];
  job.w = g.out[2];
  job.m = g.cg();
  job.slices = g.in[0];
  job.out_h = g.in[1];
  job.out_w = g.in[2];
  job.out_stride_h = g.stride[1];
  job.out_stride_w = g.stride[2];
  job.out = dx;
  job.row_stride = job.col_stride = 1;
  // Row place + padding - i * dilation of dx lies stride times as far as the row of dy; those that
  // do not divide see nothing.
  const auto seen = [&](int d, int64_t place, int64_t tap, int64_t& at) {
    const int64_t far = place + g.padding[d] - tap * g.dilation[d];
    at = far >= 0 ? far / g.stride[d] : -(-far / g.stride[d]);
    return far % g.stride[d] == 0;
  };
  job.top = job.left = INT64_MAX;
  for (int64_t a = 0; a < g.stride[1]; ++a) {
    for (int64_t b = 0; b < g.stride[2]; ++b) {
      Phase phase{a,
                  b,
                  std::max<int64_t>(0, ceil_div(g.in[1] - a, g.stride[1])),
                  std::max<int64_t>(0, ceil_div(g.in[2] - b, g.stride[2])),
                  {},
                  {},
                  {}};
      int64_t row, col;
      for (int64_t i = 0; i < g.kernel[1]; ++i) {
        if (!seen(1, a, i, row)) continue;
        for (int64_t j = 0; j < g.kernel[2]; ++j) {
          if (!seen(2, b, j, col)) continue;
          phase.taps.push_back({row, col, i * g.kernel[2] + j});
          job.top = std::min(job.top, row);
          job.left = std::min(job.left, col);
        }
      }
      job.phases.push_back(std::move(phase));
    }
  }
  for (Phase& phase : job.phases) {
    for (Tap& tap : phase.taps) {
      tap.row -= job.top;
      tap.col -= job.left;
    }
  }
  job.weight = w;
  job.weight_group = g.og() * g.depth();
  job.weight_m = g.window();
  job.weight_channel = g.depth();
  job.weight_kz = g.kernel[1] * g.kernel[2];
  job.run();
}

template void conv_forward(const ConvGeometry&, const float*, const float*, const float*, float*);
template void conv_forward(const ConvGeometry&, const double*, const double*, const double*,
                           double*);
template void conv_input_gradient(const ConvGeometry&, const float*, const float*, float*);
template void conv_input_gradient(const ConvGeometry&, const double*, const double*, double*);

}  // namespace rbcpu
