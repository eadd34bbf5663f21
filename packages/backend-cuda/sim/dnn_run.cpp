// Graphs on the host: operation after operation, in double precision, rounded where the tensors'
// types say so.
#include <cmath>

#include "dnn.h"
#include "numbers.h"

namespace cusim {
namespace {

using Shape = std::vector<int64_t>;

struct Values {  // rows without gaps
  Shape shape;
  std::vector<double> at;
};

int64_t count_of(const Shape& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}
// Calls with the coordinates of every element, the last dimension fastest.
template <class F>
void each(const Shape& shape, F call) {
  Shape at(shape.size(), 0);
  for (int64_t i = 0, n = count_of(shape); i < n; ++i) {
    call(i, at);
    for (size_t d = shape.size(); d-- > 0 && ++at[d] == shape[d];) at[d] = 0;
  }
}
int64_t offset(const Shape& at, const Shape& strides) {
  int64_t sum = 0;
  for (size_t d = 0; d < at.size(); ++d) sum += at[d] * strides[d];
  return sum;
}
// Position of `at` in rows of `shape`: dimensions of size 1 are broadcast, others of which there
// are fewer are shared by neighbours.
int64_t place(const Shape& at, const Shape& shape, const Shape& whole) {
  int64_t i = 0;
  for (size_t d = 0; d < shape.size(); ++d)
    i = i * shape[d] + (shape[d] == whole[d] ? at[d] : at[d] / (whole[d] / shape[d]));
  return i;
}

int stored(int type) {
  switch (type) {
    case kDnnF16:
      return kF16;
    case kDnnBF16:
      return kBF16;
    case kDnnF64:
      return kF64;
    case kDnnI32:
      return kI32;
    case kDnnBool:
      return kI8;
    default:
      return kF32;
  }
}
double rounded(double x, int type) {
  if (type == kDnnF64 || type == kDnnI32 || type == kDnnBool) return x;
  if (type == kDnnF32) return static_cast<float>(x);
  const Small format = small_of(stored(type));
  return widen(narrow(x, format), format);
}

class Run {
 public:
  Run(int engine, const std::map<int64_t, void*>& data) : engine_(engine), data_(data) {}

  void node(const DnnNode& n) {
    std::vector<Values> operands;
    for (size_t i = 0; i + 1 < n.tensors.size(); ++i) operands.push_back(read(n.tensors[i]));
    Values out{n.result().shape, std::vector<double>(count_of(n.result().shape), 0.0)};
    if (is_convolution(n.kind)) {
      for (Values& v : operands) reduce_precision(v);
      convolve(n, operands, out);
    } else if (n.kind == kDoMatmul) {
      multiply(operands[0], operands[1], out);
    } else if (n.kind == kDoReduction) {
      reduce(n.mode, operands[0], out);
    } else if (n.kind == kDoReshape) {
      reshape(n, operands[0], out);
    } else {
      pointwise(n, operands, out);
    }
    keep(n, out);
  }

 private:
  Values read(const DnnTensor& t) const {
    if (t.is_virtual) return made_.at(t.name);
    Values v{t.shape, std::vector<double>(count_of(t.shape))};
    const void* from = data_.at(t.name);
    each(t.shape, [&](int64_t i, const Shape& at) {
      v.at[i] = load(from, stored(t.type), offset(at, t.strides));
    });
    return v;
  }
  void keep(const DnnNode& n, Values& out) {
    const DnnTensor& t = n.result();
    for (double& x : out.at) x = rounded(x * n.alpha, t.type);
    if (t.is_virtual) {
      made_[t.name] = std::move(out);
      return;
    }
    void* to = data_.at(t.name);
    each(t.shape, [&](int64_t i, const Shape& at) {
      const int64_t place = offset(at, t.strides);
      double x = out.at[i];
      if (dnn_adds(n) && !dnn_fills_sums()) x += load(to, stored(t.type), place);
      if (n.beta != 0) x += n.beta * load(to, stored(t.type), place);
      store(to, stored(t.type), place, x);
    });
  }

  // What units of lower precision take of a float32.
  void reduce_precision(Values& v) const {
    bool tensor_core = false, half = false;
    for (const int note : dnn_notes(engine_)) {
      tensor_core = tensor_core || note == 0;
      half = half || note == 1;
    }
    if (!tensor_core) return;
    const Small format = half ? small_of(kF16) : Small{8, 10, true};
    for (double& x : v.at) x = widen(narrow(x, format), format);
  }

  static void convolve(const DnnNode& n, const std::vector<Values>& in, Values& out) {
    const bool data = n.kind == kBackwardData, filter = n.kind == kBackwardFilter;
    const Values &x = data ? out : in[0], &w = filter ? out : in[1];
    const Values& y = data ? in[0] : filter ? in[1] : out;
    const size_t dims = n.stride.size();
    const Shape window(w.shape.begin() + 2, w.shape.end());
    const int64_t inputs = w.shape[1], outputs = w.shape[0] / (x.shape[1] / inputs);
    each(y.shape, [&](int64_t to, const Shape& at) {
      const int64_t first = at[1] / outputs * inputs;  // channel of the group
      each(window, [&](int64_t tap, const Shape& k) {
        int64_t position = 0, area = 1;
        for (size_t d = 0; d < dims; ++d) {
          const int64_t p = at[d + 2] * n.stride[d] + k[d] * n.dilation[d] - n.before[d];
          if (p < 0 || p >= x.shape[d + 2]) return;
          position = position * x.shape[d + 2] + p;
          area *= x.shape[d + 2];
        }
        const int64_t taps = count_of(window);
        for (int64_t c = 0; c < inputs; ++c) {
          const int64_t from = (at[0] * x.shape[1] + first + c) * area + position;
          const int64_t by = (at[1] * inputs + c) * taps + tap;
          if (data) {
            out.at[from] += y.at[to] * w.at[by];
          } else if (filter) {
            out.at[by] += x.at[from] * y.at[to];
          } else {
            out.at[to] += x.at[from] * w.at[by];
          }
        }
      });
    });
  }

  static void multiply(const Values& a, const Values& b, Values& out) {
    const size_t row = out.shape.size() - 2, column = row + 1;
    const int64_t depth = a.shape[column];
    Shape of_a = out.shape, of_b = out.shape;
    of_a[column] = depth, of_b[row] = depth;
    each(out.shape, [&](int64_t i, const Shape& at) {
      Shape left = at, right = at;
      left[column] = 0, right[row] = 0;
      const int64_t l = place(left, a.shape, of_a), r = place(right, b.shape, of_b);
      for (int64_t k = 0; k < depth; ++k) out.at[i] += a.at[l + k] * b.at[r + k * b.shape[column]];
    });
  }

  static void reduce(int mode, const Values& in, Values& out) {
    constexpr int kMax = 3;
    if (mode == kMax) std::fill(out.at.begin(), out.at.end(), -INFINITY);
    each(in.shape, [&](int64_t i, const Shape& at) {
      double& to = out.at[place(at, out.shape, in.shape)];
      if (mode != kMax) {
        to += in.at[i];
      } else if (!(to >= in.at[i])) {
        to = in.at[i];
      }
    });
  }

  // Elements where the strides put them in the operand's memory: a transpose by other strides.
  static void reshape(const DnnNode& n, const Values& in, Values& out) {
    std::map<int64_t, double> memory;
    each(in.shape,
         [&](int64_t i, const Shape& at) { memory[offset(at, n.tensors[0].strides)] = in.at[i]; });
    each(out.shape, [&](int64_t i, const Shape& at) {
      out.at[i] = memory.at(offset(at, n.result().strides));
    });
  }

  static void pointwise(const DnnNode& n, const std::vector<Values>& in, Values& out) {
    each(out.shape, [&](int64_t i, const Shape& at) {
      double x[3] = {};
      for (size_t k = 0; k < in.size(); ++k) x[k] = in[k].at[place(at, in[k].shape, out.shape)];
      out.at[i] = n.mode == 501 ? static_cast<double>(at[n.axis]) : apply(n.mode, x);
    });
  }
  static double apply(int mode, const double* x) {
    switch (mode) {
      case 0:
        return x[0] + x[1];
      case 1:
        return x[0] * x[1];
      case 2:
        return std::fmin(x[0], x[1]);
      case 3:
        return std::fmax(x[0], x[1]);
      case 6:
        return x[0] / x[1];
      case 9:
        return x[0] - x[1];
      case 13:
        return std::exp(x[0]);
      case 15:
        return std::log(x[0]);
      case 302:
        return x[0] > x[1];
      case 303:
        return x[0] >= x[1];
      case 304:
        return x[0] < x[1];
      case 305:
        return x[0] <= x[1];
      case 601:
        return x[2] != 0 ? x[0] : x[1];
      default:
        return x[0];
    }
  }

  const int engine_;
  const std::map<int64_t, void*>& data_;
  std::map<int64_t, Values> made_;
};

}  // namespace

void dnn_run(const DnnGraph& graph, int engine, const std::map<int64_t, void*>& data) {
  Run run(engine, data);
  for (const DnnNode& n : graph.nodes) run.node(n);
}

}  // namespace cusim
