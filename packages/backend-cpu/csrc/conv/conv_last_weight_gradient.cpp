// dw of channels-last tensors: for each tap of the window the products of the channels of x and of
// dy, summed over the places that see x under the tap.
#include <algorithm>
#include <vector>

#include "common/level.h"
#include "common/workspace.h"
#include "conv/conv_last.h"
#include "conv/conv_last_types.h"

namespace rbcpu {
namespace {

constexpr int64_t kTasks = 8;          // at least, where the sizes allow it
constexpr int64_t kPlaces = 192;       // whose panel of dy stays in the first-level cache
constexpr int64_t kPartials = 262144;  // elements of sums that wait to be added
constexpr double kTaskFlops = 1e6;

const ConvLastTable<float>& table(float) { return RB_PICK_LEVEL(conv_last_table).f32; }
const ConvLastTable<double>& table(double) { return RB_PICK_LEVEL(conv_last_table).f64; }

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

template <class T>
class WeightGradient {
 public:
  WeightGradient(const ConvGeometry& g, const T* x, const T* dy, T* dw)
      : g_(g), x_(x), dy_(dy), dw_(dw), panels_(ceil_div(g.o, table(T()).panel)) {
    // Columns [begin, end) of the places lie inside x under each tap of a row.
    for (int64_t j = 0; j < g.kernel[2]; ++j) {
      const int64_t shift = j * g.dilation[2] - g.padding[2];
      const int64_t begin = shift < 0 ? ceil_div(-shift, g.stride[2]) : 0;
      const int64_t end = g.in[2] > shift ? ceil_div(g.in[2] - shift, g.stride[2]) : 0;
      begin_.push_back(std::min(begin, g.out[2]));
      end_.push_back(std::clamp(end, begin_.back(), g.out[2]));
    }
    lines_ = g.n * g.out[0] * g.out[1];
    chunks_ = std::clamp<int64_t>(kPartials / (g.window() * g.c * panels_ * table(T()).panel), 1,
                                  std::min(kTasks, lines_));
  }
  void run();

 private:
  const ConvGeometry& g_;
  const T *x_, *dy_;
  T* dw_;
  const int64_t panels_;
  int64_t lines_, chunks_;  // a line: a row of places
  std::vector<int64_t> begin_, end_;

  void sum(int64_t chunk, int64_t tap, int64_t panel, T* sums) const;
  void write(int64_t tap, int64_t panel, const T* partial, int64_t chunk_step) const;
};

// The sums of one tap and panel over the lines of a chunk: (channels of x) x panel.
template <class T>
void WeightGradient<T>::sum(int64_t chunk, int64_t tap, int64_t panel, T* sums) const {
  const ConvGeometry& g = g_;
  const int64_t lanes = table(T()).panel, j = tap % g.kernel[2],
                i = tap / g.kernel[2] % g.kernel[1], kz = tap / g.kernel[2] / g.kernel[1];
  std::fill_n(sums, g.c * lanes, T(0));
  const int64_t first = lines_ * chunk / chunks_, last = lines_ * (chunk + 1) / chunks_;
  const int64_t begin = begin_[j], length = end_[j] - begin;
  if (length == 0) return;
  const int64_t most = std::max<int64_t>(1, kPlaces / length);
  const Workspace<const T*> x(most), dy(most);
  const Workspace<int64_t> lengths(most);
  std::fill_n(lengths.data(), most, length);
  ConvProducts<T> s{x.data(),
                    dy.data(),
                    lengths.data(),
                    0,
                    g.stride[2] * g.c,
                    g.o,
                    g.c,
                    std::min(lanes, g.o - panel * lanes),
                    sums};
  for (int64_t line = first; line < last; ++line) {
    const int64_t row = line % g.out[1] * g.stride[1] - g.padding[1] + i * g.dilation[1],
                  slice =
                      line / g.out[1] % g.out[0] * g.stride[0] - g.padding[0] + kz * g.dilation[0],
                  image = line / g.out[1] / g.out[0];
    if (row >= 0 && row < g.in[1] && slice >= 0 && slice < g.in[0]) {
      const int64_t column = begin * g.stride[2] - g.padding[2] + j * g.dilation[2];
      x[s.runs] = x_ + (((image * g.in[0] + slice) * g.in[1] + row) * g.in[2] + column) * g.c;
      dy[s.runs] = dy_ + (line * g.out[2] + begin) * g.o + panel * lanes;
      ++s.runs;
    }
    if (s.runs == most || (line + 1 == last && s.runs)) {
      table(T()).products(s);
      s.runs = 0;
    }
  }
}

// The chunks' sums of one tap and panel, added in their order, to their places in dw.
template <class T>
void WeightGradient<T>::write(int64_t tap, int64_t panel, const T* partial,
                              int64_t chunk_step) const {
  const int64_t lanes = table(T()).panel, used = std::min(lanes, g_.o - panel * lanes),
                window = g_.window();
  T* to = dw_ + panel * lanes * g_.c * window + tap;
  for (int64_t c = 0; c < g_.c; ++c) {
    for (int64_t lane = 0; lane < used; ++lane) {
      T total = partial[c * lanes + lane];
      for (int64_t chunk = 1; chunk < chunks_; ++chunk)
        total += partial[chunk * chunk_step + c * lanes + lane];
      to[(lane * g_.c + c) * window] = total;
    }
  }
}

template <class T>
void WeightGradient<T>::run() {
  const int64_t size = g_.c * table(T()).panel, pieces = g_.window() * panels_,
                tasks = chunks_ * pieces;
  const Workspace<T> partial(tasks * size);
  const double flops = 2.0 * static_cast<double>(g_.n * g_.out_volume()) *
                       static_cast<double>(g_.window() * panels_ * size);
  const int64_t grain = std::max<int64_t>(
      1, static_cast<int64_t>(kTaskFlops / (flops / static_cast<double>(tasks) + 1)));
  rb::parallel_for(tasks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task)
      sum(task / pieces, task % pieces / panels_, task % panels_, partial.data() + task * size);
  });
  rb::parallel_for(
      pieces, std::max<int64_t>(1, 65536 / (chunks_ * size)), [&](int64_t begin, int64_t end) {
        for (int64_t piece = begin; piece < end; ++piece)
          write(piece / panels_, piece % panels_, partial.data() + piece * size, pieces * size);
      });
}

}  // namespace

template <class T>
void conv_last_weight_gradient(const ConvGeometry& g, const T* x, const T* dy, T* dw) {
  WeightGradient<T>(g, x, dy, dw).run();
}
template void conv_last_weight_gradient(const ConvGeometry&, const float*, const float*, float*);
template void conv_last_weight_gradient(const ConvGeometry&, const double*, const double*, double*);

}  // namespace rbcpu
