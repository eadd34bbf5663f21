// Convolution by matrices of windows and matrix products, for any dtype that gemm_run takes: what
// has no kernels of its own (conv_direct.h), and an independent check of those that have.
#pragma once
#include <algorithm>

#include "common/workspace.h"
#include "conv/conv_geometry.h"
#include "matmul/gemm.h"

namespace rbcpu {

/// One slice of one image and group: the windows of x as a matrix (depth x plane).
template <class T>
class Columns {
 public:
  explicit Columns(const ConvGeometry& g) : g_(g), data_(g.depth() * g.out_plane()) {}
  T* data() const { return data_.data(); }

  /// x: the channels of one group of one image.
  void gather(const T* x, int64_t slice) const {
    each(slice, [&](int64_t at, T* col) { *col = at < 0 ? T(0) : x[at]; });
  }
  /// The transpose: add every element to the place it came from.
  void scatter(T* x, int64_t slice) const {
    each(slice, [&](int64_t at, T* col) {
      if (at >= 0) x[at] = T(x[at] + *col);
    });
  }

 private:
  const ConvGeometry& g_;
  Workspace<T> data_;

  // f(place in x or -1, element of the matrix)
  template <class F>
  void each(int64_t slice, const F& f) const {
    const ConvGeometry& g = g_;
    T* col = data_.data();
    for (int64_t row = 0; row < g.depth(); ++row) {
      const int64_t j = row % g.kernel[2], i = row / g.kernel[2] % g.kernel[1],
                    kz = row / (g.kernel[2] * g.kernel[1]) % g.kernel[0], c = row / g.window();
      const int64_t z = slice * g.stride[0] - g.padding[0] + kz * g.dilation[0];
      for (int64_t r = 0; r < g.out[1]; ++r) {
        const int64_t y = r * g.stride[1] - g.padding[1] + i * g.dilation[1];
        const bool in = z >= 0 && z < g.in[0] && y >= 0 && y < g.in[1];
        for (int64_t k = 0; k < g.out[2]; ++k) {
          const int64_t x = k * g.stride[2] - g.padding[2] + j * g.dilation[2];
          f(in && x >= 0 && x < g.in[2] ? ((c * g.in[0] + z) * g.in[1] + y) * g.in[2] + x : -1,
            col++);
        }
      }
    }
  }
};

// f(image, group) on the pool.
template <class F>
void for_conv_groups(const ConvGeometry& g, const F& f) {
  rb::parallel_for(g.n * g.groups, 1, [&](int64_t begin, int64_t end) {
    for (int64_t job = begin; job < end; ++job) f(job / g.groups, job % g.groups);
  });
}

template <class T>
void im2col_forward(const ConvGeometry& g, const T* x, const T* w, const T* bias, T* y) {
  for_conv_groups(g, [&](int64_t image, int64_t group) {
    const Columns<T> col(g);
    T* to = y + (image * g.o + group * g.og()) * g.out_volume();
    for (int64_t slice = 0; slice < g.out[0]; ++slice) {
      col.gather(x + (image * g.c + group * g.cg()) * g.in_volume(), slice);
      for (int64_t o = 0; bias && o < g.og(); ++o)
        std::fill_n(to + o * g.out_volume() + slice * g.out_plane(), g.out_plane(),
                    bias[group * g.og() + o]);
      gemm_run(Gemm<T>{g.og(), g.out_plane(), g.depth(), w + group * g.og() * g.depth(), g.depth(),
                       1, col.data(), g.out_plane(), 1, to + slice * g.out_plane(), g.out_volume(),
                       bias ? kGemmAccumulate : kGemmStore, nullptr});
    }
  });
}

template <class T>
void im2col_input_gradient(const ConvGeometry& g, const T* dy, const T* w, T* dx) {
  for_conv_groups(g, [&](int64_t image, int64_t group) {
    const Columns<T> col(g);
    T* to = dx + (image * g.c + group * g.cg()) * g.in_volume();
    std::fill_n(to, g.cg() * g.in_volume(), T(0));
    for (int64_t slice = 0; slice < g.out[0]; ++slice) {
      const T* from = dy + (image * g.o + group * g.og()) * g.out_volume() + slice * g.out_plane();
      gemm_run(Gemm<T>{g.depth(), g.out_plane(), g.og(), w + group * g.og() * g.depth(), 1,
                       g.depth(), from, g.out_volume(), 1, col.data(), g.out_plane(), kGemmStore,
                       nullptr});
      col.scatter(to, slice);
    }
  });
}

template <class T>
void im2col_weight_gradient(const ConvGeometry& g, const T* x, const T* dy, T* dw) {
  rb::parallel_for(g.groups, 1, [&](int64_t begin, int64_t end) {
    const Columns<T> col(g);
    for (int64_t group = begin; group < end; ++group) {
      T* sum = dw + group * g.og() * g.depth();
      std::fill_n(sum, g.og() * g.depth(), T(0));
      for (int64_t image = 0; image < g.n; ++image) {
        for (int64_t slice = 0; slice < g.out[0]; ++slice) {
          col.gather(x + (image * g.c + group * g.cg()) * g.in_volume(), slice);
          const T* from =
              dy + (image * g.o + group * g.og()) * g.out_volume() + slice * g.out_plane();
          gemm_run(Gemm<T>{g.og(), g.depth(), g.out_plane(), from, g.out_volume(), 1, col.data(), 1,
                           g.out_plane(), sum, g.depth(), kGemmAccumulate, nullptr});
        }
      }
    }
  });
}

}  // namespace rbcpu
