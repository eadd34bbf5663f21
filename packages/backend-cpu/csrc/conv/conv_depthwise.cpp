// Depthwise convolution: each plane of the output sees one plane of the input.
#include <algorithm>

#include "common/level.h"
#include "common/workspace.h"
#include "conv/conv_direct.h"
#include "conv/conv_types.h"

namespace rbcpu {
namespace {

constexpr int64_t kTasks = 8;             // at least, where the sizes allow it
constexpr int64_t kBandElements = 8192;   // of a source: they stay in the first-level cache
constexpr int64_t kTaskElements = 16384;  // repay a thread

const ConvDepthwiseTable<float>& table(float) { return RB_PICK_LEVEL(conv_depthwise_table).f32; }
const ConvDepthwiseTable<double>& table(double) { return RB_PICK_LEVEL(conv_depthwise_table).f64; }

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

ConvWindows windows_of(const ConvGeometry& g) {
  ConvWindows at;
  for (int d = 0; d < 2; ++d) {
    at.source[d] = g.in[d + 1];
    at.windows[d] = g.out[d + 1];
    at.kernel[d] = g.kernel[d + 1];
    at.stride[d] = g.stride[d + 1];
    at.corner[d] = -g.padding[d + 1];
    at.dilation[d] = g.dilation[d + 1];
  }
  return at;
}

// Rows of a plane in bands that share the work of few planes and stay in the cache.
int64_t band_rows(int64_t planes, int64_t rows, int64_t row_elements) {
  const int64_t most = std::max<int64_t>(1, kBandElements / std::max<int64_t>(1, row_elements));
  return std::min({rows, most, ceil_div(rows, ceil_div(kTasks, std::max<int64_t>(1, planes)))});
}

// f(plane, first row, last row), in parallel.
template <class F>
void each_band(int64_t planes, int64_t rows, int64_t row_elements, const F& f) {
  const int64_t band = band_rows(planes, rows, row_elements), bands = ceil_div(rows, band);
  const int64_t grain =
      std::max<int64_t>(1, kTaskElements / std::max<int64_t>(1, band * row_elements));
  rb::parallel_for(planes * bands, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % bands * band;
      f(i / bands, first, std::min(first + band, rows));
    }
  });
}

}  // namespace

bool depthwise(const ConvGeometry& g) {
  return g.cg() == 1 && g.og() <= 2 && g.kernel[0] == 1 && g.padding[0] == 0 &&
         g.kernel[2] <= kDepthwiseWidth;
}

template <class T>
void depthwise_forward(const ConvGeometry& g, const T* x, const T* w, const T* bias, T* y) {
  const ConvWindows at = windows_of(g);
  each_band(g.n * g.o * g.out[0], at.windows[0], at.stride[0] * at.source[1],
            [&](int64_t plane, int64_t first, int64_t last) {
              const int64_t slice = plane % g.out[0], image = plane / g.out[0] / g.o,
                            o = plane / g.out[0] % g.o;
              const T* from = x + (image * g.c + o / g.og()) * g.in_volume() +
                              slice * g.stride[0] * g.in_plane();
              table(T()).gather({at, from, w + o * g.window(), y + plane * g.out_plane(),
                                 bias ? bias[o] : T(0), first, last});
            });
}

template <class T>
void depthwise_input_gradient(const ConvGeometry& g, const T* dy, const T* w, T* dx) {
  ConvWindows at = windows_of(g);
  const int64_t planes = g.n * g.c * g.in[0], taps = g.window();
  const auto each = [&](const auto& kernel, const T* weight) {
    each_band(planes, g.in[1], g.in[2], [&](int64_t plane, int64_t first, int64_t last) {
      kernel({at, dy + plane * g.out_plane(), weight + plane / g.in[0] % g.c * taps,
              dx + plane * g.in_plane(), T(0), first, last});
    });
  };
  if (at.stride[0] != 1 || at.stride[1] != 1) return each(table(T()).spread, w);
  // A convolution of dy with the window turned by 180 degrees.
  const Workspace<T> turned(g.o * taps);
  for (int64_t o = 0; o < g.o; ++o)
    std::reverse_copy(w + o * taps, w + (o + 1) * taps, turned.data() + o * taps);
  for (int d = 0; d < 2; ++d) {
    std::swap(at.source[d], at.windows[d]);
    at.corner[d] = -at.corner[d] - (at.kernel[d] - 1) * at.dilation[d];
  }
  each(table(T()).gather, turned.data());
}

template <class T>
void depthwise_weight_gradient(const ConvGeometry& g, const T* x, const T* dy, T* dw) {
  const ConvWindows at = windows_of(g);
  const int64_t slices = g.out[0], taps = g.window(), size = g.o * taps;
  // Strips: some images, or a band of a slice of one.
  const int64_t row_elements = std::max<int64_t>(1, at.stride[0] * at.source[1]),
                band = std::clamp<int64_t>(kBandElements / row_elements, 1, at.windows[0]),
                bands = ceil_div(at.windows[0], band),
                images = bands * slices > 1
                             ? 1
                             : std::clamp<int64_t>(kBandElements / (band * row_elements), 1, g.n),
                strips = ceil_div(g.n, images) * slices * bands;
  const int64_t parts = std::clamp<int64_t>(ceil_div(kTasks, g.o), 1, strips);
  const Workspace<T> partial(size * (parts - 1));
  const auto add_strip = [&](int64_t o, int64_t strip, T* sum) {
    const int64_t first = strip % bands * band, slice = strip / bands % slices,
                  image = strip / bands / slices * images;
    table(T()).taps(
        {at, x + (image * g.c + o / g.og()) * g.in_volume() + slice * g.stride[0] * g.in_plane(),
         dy + (image * g.o + o) * g.out_volume() + slice * g.out_plane(),
         std::min(images, g.n - image), g.c * g.in_volume(), g.o * g.out_volume(), first,
         std::min(first + band, at.windows[0]), sum});
  };
  const int64_t grain = std::max<int64_t>(
      1, kTaskElements * parts / std::max<int64_t>(1, g.n * slices * at.windows[0] * row_elements));
  rb::parallel_for(g.o * parts, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t o = i % g.o, part = i / g.o;
      T* sum = (part ? partial.data() + size * (part - 1) : dw) + o * taps;
      std::fill_n(sum, taps, T(0));
      for (int64_t s = strips * part / parts; s < strips * (part + 1) / parts; ++s)
        add_strip(o, s, sum);
    }
  });
  for (int64_t part = 1; part < parts; ++part) {
    for (int64_t i = 0; i < size; ++i) dw[i] += partial[size * (part - 1) + i];
  }
}

#define RB_DEPTHWISE(T)                                                                   \
  template void depthwise_forward(const ConvGeometry&, const T*, const T*, const T*, T*); \
  template void depthwise_input_gradient(const ConvGeometry&, const T*, const T*, T*);    \
  template void depthwise_weight_gradient(const ConvGeometry&, const T*, const T*, T*)
RB_DEPTHWISE(float);
RB_DEPTHWISE(double);
#undef RB_DEPTHWISE

}  // namespace rbcpu
