#include "dense.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "numbers.h"

namespace cusim {

Dense load_dense(const void* from, int type, int64_t ld, int64_t rows, int64_t columns) {
  Dense x(rows, columns);
  for (int64_t j = 0; j < columns; ++j)
    for (int64_t i = 0; i < rows; ++i)
      x(i, j) = {load(from, type, j * ld + i),
                 is_complex(type) ? load(from, type, j * ld + i, 1) : 0.0};
  return x;
}
void store_dense(void* to, int type, int64_t ld, const Dense& x) {
  for (int64_t j = 0; j < x.columns; ++j) {
    for (int64_t i = 0; i < x.rows; ++i) {
      store(to, type, j * ld + i, x(i, j).real());
      if (is_complex(type)) store(to, type, j * ld + i, x(i, j).imag(), 1);
    }
  }
}
CusimRegion region_of(const void* data, int type, int64_t ld, int64_t rows, int64_t columns,
                      bool written) {
  const auto size = static_cast<size_t>(size_of(type));
  return {data, rows * size, ld * size, static_cast<size_t>(columns), 0, 1, written, size};
}

int factor_cholesky(Dense& a, bool upper) {
  const int64_t n = a.rows;
  // The rows of the upper triangle are the conjugate columns of the lower one.
  const auto at = [&](int64_t i, int64_t j) -> Number& { return upper ? a(j, i) : a(i, j); };
  const auto value = [&](int64_t i, int64_t j) { return upper ? std::conj(at(i, j)) : at(i, j); };
  const auto set = [&](int64_t i, int64_t j, Number x) { at(i, j) = upper ? std::conj(x) : x; };
  for (int64_t j = 0; j < n; ++j) {
    double d = value(j, j).real();
    for (int64_t k = 0; k < j; ++k) d -= std::norm(value(j, k));
    if (!(d > 0)) return static_cast<int>(j + 1);
    const double root = std::sqrt(d);
    set(j, j, root);
    for (int64_t i = j + 1; i < n; ++i) {
      Number sum = value(i, j);
      for (int64_t k = 0; k < j; ++k) sum -= value(i, k) * std::conj(value(j, k));
      set(i, j, sum / root);
    }
  }
  return 0;
}

int factor_lu(Dense& a, std::vector<int64_t>* pivots) {
  int info = 0;
  const int64_t k = std::min(a.rows, a.columns);
  if (pivots) pivots->resize(k);
  for (int64_t j = 0; j < k; ++j) {
    int64_t p = j;
    const auto size = [&](int64_t i) {
      return std::fabs(a(i, j).real()) + std::fabs(a(i, j).imag());
    };
    for (int64_t i = j + 1; pivots && i < a.rows; ++i) p = size(i) > size(p) ? i : p;
    if (pivots) (*pivots)[j] = p + 1;
    if (a(p, j) == Number(0)) {
      info = info ? info : static_cast<int>(j + 1);
      continue;
    }
    for (int64_t c = 0; p != j && c < a.columns; ++c) std::swap(a(p, c), a(j, c));
    for (int64_t i = j + 1; i < a.rows; ++i) {
      a(i, j) /= a(j, j);
      for (int64_t c = j + 1; c < a.columns; ++c) a(i, c) -= a(i, j) * a(j, c);
    }
  }
  return info;
}

void solve_lu(const Dense& lu, const std::vector<int64_t>* pivots, Op op, Dense& b) {
  const auto exchange = [&](int64_t i) {
    for (int64_t c = 0; c < b.columns; ++c) std::swap(b(i, c), b((*pivots)[i] - 1, c));
  };
  const int64_t n = lu.rows;
  if (op == Op::kPlain) {
    for (int64_t i = 0; pivots && i < n; ++i) exchange(i);
    solve_triangular(true, false, op, true, 1, lu, b);
    return solve_triangular(true, true, op, false, 1, lu, b);
  }
  solve_triangular(true, true, op, false, 1, lu, b);
  solve_triangular(true, false, op, true, 1, lu, b);
  for (int64_t i = n; pivots && i-- > 0;) exchange(i);
}

void solve_triangular(bool left, bool upper, Op op, bool unit, Number alpha, const Dense& a,
                      Dense& b) {
  const int64_t n = a.rows, others = left ? b.columns : b.rows;
  // x op(a) = b is the same as op(a)^T x^T = b^T.
  const bool turned = (op != Op::kPlain) != !left;
  const auto value = [&](int64_t i, int64_t j) {
    const Number x = turned ? a(j, i) : a(i, j);
    return op == Op::kAdjoint ? std::conj(x) : x;
  };
  const bool from_above = upper == turned;  // the effective matrix is lower triangular
  for (int64_t c = 0; c < others; ++c) {
    const auto x = [&](int64_t i) -> Number& { return left ? b(i, c) : b(c, i); };
    for (int64_t i = 0; i < n; ++i) x(i) *= alpha;
    for (int64_t step = 0; step < n; ++step) {
      const int64_t i = from_above ? step : n - 1 - step;
      for (int64_t j = from_above ? 0 : i + 1; j < (from_above ? i : n); ++j)
        x(i) -= value(i, j) * x(j);
      if (!unit) x(i) /= value(i, i);
    }
  }
}

// ---- Householder reflections: I - tau v v^H, where v begins with 1 in row `k`

namespace {

void reflect(const Dense& a, int64_t k, Number tau, Dense& c, int64_t first) {
  if (tau == Number(0)) return;
  const auto v = [&](int64_t i) { return i == k ? Number(1) : a(i, k); };
  for (int64_t j = first; j < c.columns; ++j) {
    Number sum = 0;
    for (int64_t i = k; i < a.rows; ++i) sum += std::conj(v(i)) * c(i, j);
    for (int64_t i = k; i < a.rows; ++i) c(i, j) -= tau * v(i) * sum;
  }
}

Dense adjoint_of(const Dense& x) {
  Dense y(x.columns, x.rows);
  for (int64_t i = 0; i < x.rows; ++i)
    for (int64_t j = 0; j < x.columns; ++j) y(j, i) = std::conj(x(i, j));
  return y;
}

}  // namespace

void factor_qr(Dense& a, std::vector<Number>& tau) {
  tau.assign(std::min(a.rows, a.columns), 0);
  for (int64_t k = 0; k < static_cast<int64_t>(tau.size()); ++k) {
    double below = 0;
    for (int64_t i = k + 1; i < a.rows; ++i) below += std::norm(a(i, k));
    const Number alpha = a(k, k);
    if (below == 0 && alpha.imag() == 0) continue;
    const double beta = -std::copysign(std::sqrt(std::norm(alpha) + below), alpha.real());
    tau[k] = (beta - alpha) / beta;
    for (int64_t i = k + 1; i < a.rows; ++i) a(i, k) /= alpha - beta;
    a(k, k) = beta;
    reflect(a, k, std::conj(tau[k]), a, k + 1);
  }
}

void form_q(Dense& a, const std::vector<Number>& tau) {
  Dense q(a.rows, a.columns);
  for (int64_t i = 0; i < a.columns; ++i) q(i, i) = 1;
  for (auto k = static_cast<int64_t>(tau.size()); k-- > 0;) reflect(a, k, tau[k], q, 0);
  a = q;
}

void multiply_q(bool left, bool adjoint, const Dense& a, const std::vector<Number>& tau, Dense& c) {
  if (!left) {  // c Q is (Q^H c^H)^H
    Dense turned = adjoint_of(c);
    multiply_q(true, !adjoint, a, tau, turned);
    c = adjoint_of(turned);
    return;
  }
  const auto count = static_cast<int64_t>(tau.size());
  for (int64_t step = 0; step < count; ++step) {
    const int64_t k = adjoint ? step : count - 1 - step;
    reflect(a, k, adjoint ? std::conj(tau[k]) : tau[k], c, 0);
  }
}

// ---- Jacobi's rotations

namespace {

constexpr int kSweeps = 60;

// The rotation that diagonalizes the Hermitian matrix (a, z; z*, b). It replaces columns p and q by
// (c x_p - s* x_q, s x_p + c x_q).
struct Rotation {
  double c;
  Number s;
  Rotation(double a, double b, Number z) {
    const double size = std::abs(z), theta = (b - a) / (2 * size);
    const double t = std::copysign(1 / (std::fabs(theta) + std::hypot(theta, 1)), theta);
    c = 1 / std::hypot(t, 1);
    s = t * c * (z / size);
  }
  void apply(Number& x, Number& y) const {
    const Number first = c * x - std::conj(s) * y;
    y = s * x + c * y;
    x = first;
  }
};

std::vector<int64_t> sorted(const std::vector<double>& values, bool descending) {
  std::vector<int64_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t j) {
    return descending ? values[i] > values[j] : values[i] < values[j];
  });
  return order;
}

}  // namespace

std::vector<double> find_eigen(Dense& a, bool upper) {
  const int64_t n = a.rows;
  Dense m = a, v(n, n);
  for (int64_t j = 0; j < n; ++j) {
    v(j, j) = 1;
    m(j, j) = m(j, j).real();
    for (int64_t i = 0; i < j; ++i)
      (upper ? m(j, i) : m(i, j)) = std::conj(upper ? m(i, j) : m(j, i));
  }
  double whole = 0;
  for (const Number& x : m.at) whole += std::norm(x);
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    double off = 0;
    for (int64_t q = 1; q < n; ++q)
      for (int64_t p = 0; p < q; ++p) off += std::norm(m(p, q));
    if (!(off > 1e-34 * whole)) break;
    for (int64_t q = 1; q < n; ++q) {
      for (int64_t p = 0; p < q; ++p) {
        if (std::abs(m(p, q)) == 0) continue;
        const Rotation r(m(p, p).real(), m(q, q).real(), m(p, q));
        for (int64_t i = 0; i < n; ++i) r.apply(m(i, p), m(i, q)), r.apply(v(i, p), v(i, q));
        for (int64_t i = 0; i < n; ++i) {
          Number x = std::conj(m(p, i)), y = std::conj(m(q, i));
          r.apply(x, y);
          m(p, i) = std::conj(x), m(q, i) = std::conj(y);
        }
      }
    }
  }
  std::vector<double> values(n), found(n);
  for (int64_t i = 0; i < n; ++i) values[i] = m(i, i).real();
  const std::vector<int64_t> order = sorted(values, false);
  for (int64_t j = 0; j < n; ++j) {
    found[j] = values[order[j]];
    for (int64_t i = 0; i < n; ++i) a(i, j) = v(i, order[j]);
  }
  return found;
}

std::vector<double> find_singular(const Dense& a, Dense& u, Dense& vh) {
  const int64_t m = a.rows, n = a.columns;
  Dense w = a, v(n, n);
  for (int64_t j = 0; j < n; ++j) v(j, j) = 1;
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    bool turned = false;
    for (int64_t q = 1; q < n; ++q) {
      for (int64_t p = 0; p < q; ++p) {
        double x = 0, y = 0;
        Number z = 0;
        for (int64_t i = 0; i < m; ++i) {
          x += std::norm(w(i, p)), y += std::norm(w(i, q));
          z += std::conj(w(i, p)) * w(i, q);
        }
        if (!(std::abs(z) > 1e-17 * std::sqrt(x * y)) || std::abs(z) == 0) continue;
        turned = true;
        const Rotation r(x, y, z);
        for (int64_t i = 0; i < m; ++i) r.apply(w(i, p), w(i, q));
        for (int64_t i = 0; i < n; ++i) r.apply(v(i, p), v(i, q));
      }
    }
    if (!turned) break;
  }
  std::vector<double> values(n), found(n);
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < m; ++i) values[j] += std::norm(w(i, j));
    values[j] = std::sqrt(values[j]);
  }
  const std::vector<int64_t> order = sorted(values, true);
  u = Dense(m, m);
  vh = Dense(n, n);
  for (int64_t j = 0; j < n; ++j) {
    found[j] = values[order[j]];
    for (int64_t i = 0; i < n; ++i) vh(j, i) = std::conj(v(i, order[j]));
  }
  // Columns of U. Those of singular values of zero, and those after n, are unit vectors made
  // orthogonal to the others.
  const double least = n ? found[0] * 1e-14 : 0;
  for (int64_t j = 0; j < m; ++j) {
    const bool has = j < n && found[j] > least;
    for (int64_t unit = has ? -1 : 0; unit < m; ++unit) {
      for (int64_t i = 0; i < m; ++i)
        u(i, j) = has ? w(i, order[j]) / found[j] : Number(i == unit ? 1 : 0);
      for (int pass = 0; pass < 2; ++pass) {
        for (int64_t k = 0; k < j; ++k) {
          Number sum = 0;
          for (int64_t i = 0; i < m; ++i) sum += std::conj(u(i, k)) * u(i, j);
          for (int64_t i = 0; i < m; ++i) u(i, j) -= sum * u(i, k);
        }
      }
      double size = 0;
      for (int64_t i = 0; i < m; ++i) size += std::norm(u(i, j));
      size = std::sqrt(size);
      for (int64_t i = 0; i < m; ++i) u(i, j) /= size;
      if (has || size > 0.5 / std::sqrt(static_cast<double>(m))) break;
    }
  }
  return found;
}

}  // namespace cusim
