// dw: for each tap of the window the products of x, shifted by the tap, and dy, summed over pixels.
// dy is turned to pixel-major panels of output channels, x is read in place or from a padded copy.
#include <algorithm>
#include <vector>

#include "common/level.h"
#include "common/workspace.h"
#include "conv/conv_direct.h"
#include "conv/conv_types.h"

namespace rbcpu {
namespace {

constexpr int64_t kTasks = 8;          // at least, where the sizes allow it
constexpr int64_t kStripPixels = 256;  // a panel of dy stays in the first-level cache
constexpr int64_t kStripElements = 262144;
constexpr int64_t kPartials = 262144;  // elements of sums that wait to be added
constexpr int64_t kLeastRows = 64;     // taps of a task
constexpr double kTaskFlops = 1e6;

const ConvTable<float>& table(float) { return RB_PICK_LEVEL(conv_table).f32; }
const ConvTable<double>& table(double) { return RB_PICK_LEVEL(conv_table).f64; }
const ConvTapsTable<float>& taps_table(float) { return RB_PICK_LEVEL(conv_taps_table).f32; }
const ConvTapsTable<double>& taps_table(double) { return RB_PICK_LEVEL(conv_taps_table).f64; }

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// One term per strip of pixels: `images` neighbouring images (or one slice), rows from row0 on.
struct Strips {
  int64_t images, rows;  // of a full strip
  int64_t runs, downs, outer, inner;
  int64_t count() const { return outer * runs * downs; }
};

template <class T>
class WeightGradient {
 public:
  WeightGradient(const ConvGeometry& g, const T* x, const T* dy, T* dw)
      : g_(g), x_(x), dy_(dy), dw_(dw) {
    lanes_ = g.og() <= taps_table(T()).few ? taps_table(T()).few : taps_table(T()).lanes;
    plan();
  }
  void run();

 private:
  const ConvGeometry& g_;
  const T *x_, *dy_;
  T* dw_;
  int64_t lanes_, width_, reach_rows_;
  int64_t pitch_, row_step_;  // of the copy of x (ConvPlane)
  bool in_place_;
  Strips strips_;
  int64_t chunks_, o_parts_, c_parts_;  // strips, output channels and input channels of a task

  void plan();
  int64_t part(int64_t total, int64_t parts, int64_t i, int64_t unit) const {
    return i == parts ? total : total * i / parts / unit * unit;
  }
  void add_strip(int64_t strip, int64_t group, int64_t o0, int64_t o1, int64_t c0, int64_t c1,
                 T* sums) const;
  void task(int64_t chunk, int64_t group, int64_t o_part, int64_t c_part, T* out) const;
};

template <class T>
void WeightGradient<T>::plan() {
  const ConvGeometry& g = g_;
  // Neighbouring taps are read from one place, as many as the kernel takes and divide the window.
  width_ = 1;
  for (int64_t k = 2; k <= taps_table(T()).width && g.dilation[2] == 1; ++k) {
    if (g.kernel[2] % k == 0) width_ = k;
  }
  in_place_ = g.padding[0] == 0 && g.padding[1] == 0 && g.padding[2] == 0;
  reach_rows_ = (g.kernel[1] - 1) * g.dilation[1] + 1;
  pitch_ = (g.out[2] - 1) * g.stride[2] + (g.kernel[2] - 1) * g.dilation[2] + 1;
  row_step_ = in_place_ ? g.in[2] : pitch_;
  Strips& s = strips_;
  s.outer = g.out[0] > 1 ? g.n : 1;
  s.inner = g.out[0] > 1 ? g.out[0] : g.n;
  const int64_t image = g.cg() * g.kernel[0] * g.stride[1] * g.out[1] * row_step_;
  s.images = std::clamp<int64_t>(
      std::min(kStripPixels / g.out_plane(), kStripElements / std::max<int64_t>(1, image)), 1,
      s.inner);
  if (g.out[0] > 1) s.images = 1;
  s.rows = std::clamp<int64_t>(kStripPixels / g.out[2], 1, g.out[1]);
  s.runs = ceil_div(s.inner, s.images);
  s.downs = ceil_div(g.out[1], s.rows);
  // Many small sums: tasks take strips. Few large ones: tasks take channels.
  const int64_t size = g.o * g.depth();
  chunks_ =
      std::clamp<int64_t>(kPartials / std::max<int64_t>(1, size), 1, std::min(kTasks, s.count()));
  if (g.groups >= kTasks) chunks_ = 1;
  o_parts_ = std::clamp<int64_t>(ceil_div(kTasks, chunks_ * g.groups), 1,
                                 std::max<int64_t>(1, g.og() / (2 * lanes_)));
  c_parts_ = std::clamp<int64_t>(ceil_div(kTasks, chunks_ * g.groups * o_parts_), 1,
                                 std::clamp<int64_t>(g.depth() / kLeastRows, 1, g.cg()));
}

template <class T>
void WeightGradient<T>::add_strip(int64_t strip, int64_t group, int64_t o0, int64_t o1, int64_t c0,
                                  int64_t c1, T* sums) const {
  const ConvGeometry& g = g_;
  const Strips& s = strips_;
  const int64_t row0 = strip % s.downs * s.rows, run = strip / s.downs % s.runs,
                outer = strip / s.downs / s.runs, image0 = run * s.images;
  const int64_t images = std::min(s.images, s.inner - image0),
                rows = std::min(s.rows, g.out[1] - row0);
  const bool sliced = g.out[0] > 1;
  const int64_t n0 = sliced ? outer : image0, slice = sliced ? image0 : 0;
  const int64_t kd = g.kernel[0], virtual_channels = (c1 - c0) * kd;
  const int64_t rows_in = (rows - 1) * g.stride[1] + reach_rows_,
                copy_channel = rows_in * row_step_, copy_image = virtual_channels * copy_channel;
  const auto plane = [&](int64_t image, int64_t c, int64_t kz) -> const T* {
    const int64_t z = slice * g.stride[0] - g.padding[0] + kz * g.dilation[0];
    if (z < 0 || z >= g.in[0]) return nullptr;
    return x_ + ((n0 + image) * g.c + group * g.cg() + c) * g.in_volume() + z * g.in_plane();
  };
  const Workspace<T> copy(in_place_ ? 0 : images * copy_image + 64);
  if (!in_place_) {
    for (int64_t i = 0; i < images; ++i) {
      for (int64_t v = 0; v < virtual_channels; ++v) {
        table(T()).copy_plane({plane(i, c0 + v / kd, v % kd), g.in[1], g.in[2],
                               row0 * g.stride[1] - g.padding[1], -g.padding[2], rows_in, pitch_, 1,
                               1, 1, ~uint64_t{0},
                               copy.data() + i * copy_image + v * copy_channel});
      }
    }
  }
  const auto corner = [&](int64_t v) -> const T* {
    return in_place_ ? plane(0, c0 + v / kd, v % kd) + row0 * g.stride[1] * g.in[2]
                     : copy.data() + v * copy_channel;
  };
  const T* dy = dy_ + (n0 * g.o + group * g.og() + o0) * g.out_volume() + slice * g.out_plane() +
                row0 * g.out[2];
  const int64_t pixels = rows * g.out[2], panels = ceil_div(o1 - o0, lanes_),
                panel = images * pixels * lanes_;
  const Workspace<T> turned(panels * panel);
  for (int64_t i = 0; i < images; ++i) {
    taps_table(T()).pack_gradient({dy + i * g.o * g.out_volume(), o1 - o0, g.out_volume(), pixels,
                                   lanes_, turned.data() + i * pixels * lanes_, panel});
  }
  const int64_t places = virtual_channels * g.kernel[1] * g.kernel[2] / width_;
  Workspace<const T*> row(places);
  int64_t at = 0;
  for (int64_t v = 0; v < virtual_channels; ++v) {
    const T* from = corner(v);
    for (int64_t i = 0; i < g.kernel[1]; ++i) {
      for (int64_t j = 0; j < g.kernel[2]; j += width_)
        row[at++] = from + i * g.dilation[1] * row_step_ + j * g.dilation[2];
    }
  }
  for (int64_t q = 0; q < panels; ++q) {
    taps_table(T()).taps({row.data(), places, width_, images, rows, g.out[2],
                          in_place_ ? g.c * g.in_volume() : copy_image, g.stride[1] * row_step_,
                          g.stride[2], turned.data() + q * panel, lanes_,
                          sums + q * places * width_ * lanes_});
  }
}

// Sums of the strips of one chunk for some channels, written to `out` in the shape of dw.
template <class T>
void WeightGradient<T>::task(int64_t chunk, int64_t group, int64_t o_part, int64_t c_part,
                             T* out) const {
  const ConvGeometry& g = g_;
  const int64_t o0 = part(g.og(), o_parts_, o_part, lanes_),
                o1 = part(g.og(), o_parts_, o_part + 1, lanes_);
  const int64_t c0 = part(g.cg(), c_parts_, c_part, 1), c1 = part(g.cg(), c_parts_, c_part + 1, 1);
  const int64_t first = strips_.count() * chunk / chunks_,
                last = strips_.count() * (chunk + 1) / chunks_;
  const int64_t depth = (c1 - c0) * g.window();
  T* to = out + (group * g.og() + o0) * g.depth() + c0 * g.window();
  const int64_t panels = ceil_div(o1 - o0, lanes_);
  const Workspace<T> sums(panels * depth * lanes_);
  std::fill_n(sums.data(), panels * depth * lanes_, T(0));
  for (int64_t strip = first; strip < last; ++strip)
    add_strip(strip, group, o0, o1, c0, c1, sums.data());
  // Turned block by block: either side alone would stride through memory.
  constexpr int64_t kBlock = 16;
  for (int64_t q = 0; q < panels; ++q) {
    const T* from = sums.data() + q * depth * lanes_;
    const int64_t first_o = q * lanes_, last_o = std::min(first_o + lanes_, o1 - o0);
    for (int64_t k0 = 0; k0 < depth; k0 += kBlock) {
      const int64_t end = std::min(k0 + kBlock, depth);
      for (int64_t o = first_o; o < last_o; ++o) {
        for (int64_t k = k0; k < end; ++k) to[o * g.depth() + k] = from[k * lanes_ + o - first_o];
      }
    }
  }
}

template <class T>
void WeightGradient<T>::run() {
  const ConvGeometry& g = g_;
  const int64_t size = g.o * g.depth();
  const Workspace<T> partial(size * (chunks_ - 1));
  const int64_t tasks = chunks_ * g.groups * o_parts_ * c_parts_;
  const double flops = 2.0 * static_cast<double>(g.n * g.out_volume()) * static_cast<double>(size);
  const int64_t grain = std::max<int64_t>(
      1, static_cast<int64_t>(kTaskFlops / (flops / static_cast<double>(tasks) + 1)));
  rb::parallel_for(tasks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t rest = i;
      const int64_t c_part = rest % c_parts_;
      rest /= c_parts_;
      const int64_t o_part = rest % o_parts_;
      rest /= o_parts_;
      const int64_t group = rest % g.groups, chunk = rest / g.groups;
      task(chunk, group, o_part, c_part, chunk ? partial.data() + size * (chunk - 1) : dw_);
    }
  });
  rb::parallel_for(chunks_ > 1 ? size : 0, 65536, [&](int64_t begin, int64_t end) {
    for (int64_t chunk = 0; chunk < chunks_ - 1; ++chunk) {
      const T* add = partial.data() + size * chunk;
      for (int64_t i = begin; i < end; ++i) dw_[i] += add[i];
    }
  });
}

}  // namespace

template <class T>
void conv_weight_gradient(const ConvGeometry& g, const T* x, const T* dy, T* dw) {
  if (g.n * g.out_volume() == 0) {
    std::fill_n(dw, g.o * g.depth(), T(0));
    return;
  }
  if (depthwise(g)) return depthwise_weight_gradient(g, x, dy, dw);
  WeightGradient<T>(g, x, dy, dw).run();
}
template void conv_weight_gradient(const ConvGeometry&, const float*, const float*, float*);
template void conv_weight_gradient(const ConvGeometry&, const double*, const double*, double*);

}  // namespace rbcpu
