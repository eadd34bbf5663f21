#include "product.h"

#include <algorithm>

namespace cusim {
namespace {

constexpr int kRelu = 2, kBias = 4, kGelu = 32, kTf32 = 77, kFast16F = 74, kFastBF16 = 75;

const void* moved(const void* p, const Matrix& x, int batch) {
  return static_cast<const char*>(p) + batch * x.stride * size_of(x.type);
}
int64_t place(const Matrix& x, int64_t row, int64_t col) {
  return x.order ? row * x.ld + col : col * x.ld + row;
}

// What units of lower precision take of a float32.
double reduced(double x, int compute) {
  if (compute == kFast16F) return widen(narrow(x, small_of(kF16)), small_of(kF16));
  if (compute == kFastBF16) return widen(narrow(x, small_of(kBF16)), small_of(kBF16));
  if (compute != kTf32) return x;
  const Small tf32{8, 10, true};
  return widen(narrow(x, tf32), tf32);
}

template <class T>
T element(const void* p, int type, int64_t i) {
  if constexpr (std::is_same_v<T, double>) {
    return load(p, type, i);
  } else {
    return {load(p, type, i), is_complex(type) ? load(p, type, i, 1) : 0};
  }
}
template <class T>
void keep(void* p, int type, int64_t i, T x) {
  if constexpr (std::is_same_v<T, double>) {
    store(p, type, i, x);
  } else {
    store(p, type, i, x.real());
    store(p, type, i, x.imag(), 1);
  }
}
double conjugate(double x) { return x; }
std::complex<double> conjugate(std::complex<double> x) { return std::conj(x); }
template <class T>
T as(std::complex<double> x) {
  if constexpr (std::is_same_v<T, double>) {
    return x.real();
  } else {
    return x;
  }
}

// op(X), row after row.
template <class T>
std::vector<T> rows_of(const void* p, const Matrix& x, int operation, int compute) {
  const int64_t rows = operation ? x.cols : x.rows, cols = operation ? x.rows : x.cols;
  std::vector<T> all(static_cast<size_t>(rows * cols));
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) {
      T v = element<T>(p, x.type, operation ? place(x, j, i) : place(x, i, j));
      if constexpr (std::is_same_v<T, double>) v = reduced(v, compute);
      all[static_cast<size_t>(i * cols + j)] = operation == 2 ? conjugate(v) : v;
    }
  }
  return all;
}

double activated(double x, int epilogue) {
  if (epilogue & kRelu) return x < 0 ? 0 : x;
  if (epilogue & kGelu)  // by tanh, as the library does
    return 0.5 * x * (1 + std::tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
  return x;
}
std::complex<double> activated(std::complex<double> x, int) { return x; }

float scale_at(const void* p) { return p ? *static_cast<const float*>(p) : 1; }

template <class T>
void multiply(const Product& p, int batch) {
  const Operation& o = p.operation;
  const Matrix &a = p.layouts[0], &b = p.layouts[1], &c = p.layouts[2], &d = p.layouts[3];
  const int64_t m = d.rows, n = d.cols, k = o.transpose_a ? a.rows : a.cols;
  const auto left = rows_of<T>(moved(p.a, a, batch), a, o.transpose_a, o.compute);
  const auto right = rows_of<T>(moved(p.b, b, batch), b, o.transpose_b, o.compute);
  const T alpha = as<T>(p.alpha) * T(scale_at(o.scales[0]) * scale_at(o.scales[1]));
  const T beta = as<T>(p.beta) * T(scale_at(o.scales[2]));
  const bool biased = o.epilogue != 1 && (o.epilogue & kBias);
  const void* added = moved(p.c, c, batch);
  void* to = const_cast<void*>(moved(p.d, d, batch));
  std::vector<T> sums(static_cast<size_t>(n));
  for (int64_t i = 0; i < m; ++i) {
    std::fill(sums.begin(), sums.end(), T(0));
    for (int64_t l = 0; l < k; ++l) {
      const T v = left[static_cast<size_t>(i * k + l)];
      const T* row = &right[static_cast<size_t>(l * n)];
      for (int64_t j = 0; j < n; ++j) sums[static_cast<size_t>(j)] += v * row[j];
    }
    for (int64_t j = 0; j < n; ++j) {
      T x = alpha * sums[static_cast<size_t>(j)];
      if (p.adds()) x += beta * element<T>(added, c.type, place(c, i, j));
      if (biased) x += element<T>(o.bias, p.bias_type(), batch * o.bias_stride + i);
      x = activated(x, o.epilogue == 1 ? 0 : o.epilogue) * T(scale_at(o.scales[3]));
      keep<T>(to, d.type, place(d, i, j), x);
    }
  }
}

std::complex<double> factor(const void* p, int type) {
  return element<std::complex<double>>(p, type, 0);
}

}  // namespace

int Product::bias_type() const {
  if (operation.bias_type >= 0) return operation.bias_type;
  const int type = layouts[3].type;
  return size_of(type) == 1 || size_of(layouts[0].type) == 1 ? +kBF16 : type;
}

void Product::set_factors(const void* alpha_value, const void* beta_value) {
  alpha = factor(alpha_value, operation.scale);
  beta = factor(beta_value, operation.scale);
}

void Product::run() {
  if (alpha_at) set_factors(alpha_at, beta_at);
  if (workspace) std::memset(workspace, 0xee, workspace_size);  // it is the product's alone
  for (int batch = 0; batch < layouts[3].batches; ++batch) {
    if (is_complex(layouts[3].type)) {
      multiply<std::complex<double>>(*this, batch);
    } else {
      multiply<double>(*this, batch);
    }
  }
}

}  // namespace cusim
