// Factorisations of small matrices, one matrix per lane, once per instruction-set level.
#include "common/level.h"
#include "common/pack.h"
#include "common/vecmath.h"
#include "common/vecmath64.h"
#include "linalg/small.h"

namespace rbcpu {
namespace {

template <class T>
using V = Pack<T, 1>;
template <class T>
constexpr int kL = kLanesOf<V<T>>;
template <class T>
constexpr T kEpsilon = sizeof(T) == 4 ? T(1.1920929e-7) : T(2.220446049250313e-16);
// Squares between these bounds neither overflow nor lose digits.
template <class T>
constexpr T kSmallest = sizeof(T) == 4 ? T(1e-28) : T(1e-280);
template <class T>
constexpr T kLargest = sizeof(T) == 4 ? T(1e34) : T(1e300);

template <class T>
RB_INLINE V<T> at(const T* a, int64_t i) {
  return pack_load<V<T>>(a + i * kL<T>);
}
template <class T>
RB_INLINE void put(T* a, int64_t i, const V<T>& x) {
  pack_store(a + i * kL<T>, x);
}
/// Whether some lane of a mask is not set.
template <class M>
RB_INLINE bool not_all(const M& mask) {
  return vm_any(mask == M(0));
}

template <class T>
RB_INLINE V<T> sum_of_squares(const T* x, int begin, int end) {
  V<T> sum(T(0));
  for (int i = begin; i < end; ++i) sum = vm_fma(at(x, i), at(x, i), sum);
  return sum;
}

// ---- systems of equations

// Exchange row k with row pivots[l] (1-based) in each lane.
template <class T>
RB_INLINE void exchange(T* a, int m, int columns, int k, const int32_t* pivots) {
  for (int l = 0; l < kL<T>; ++l) {
    const int other = pivots[l] - 1;
    if (other == k) continue;
    T *x = a + k * kL<T> + l, *y = a + other * kL<T> + l;
    for (int j = 0; j < columns; ++j, x += m * kL<T>, y += m * kL<T>) {
      const T kept = *x;
      *x = *y;
      *y = kept;
    }
  }
}

template <class T>
void lu(T* a, int m, int n, int columns, int32_t* pivots, T* info, T* sign) {
  V<T> zero_at(T(0)), parity(T(1));
  const int steps = m < n ? m : n;
  for (int k = 0; k < steps; ++k) {
    T* const column = a + k * m * kL<T>;
    V<T> best = vm_abs(at(column, k)), place{T(k)};
    for (int i = k + 1; i < m; ++i) {
      const V<T> size = vm_abs(at(column, i));
      const auto larger = size > best;
      best = vm_select(larger, size, best);
      place = vm_select(larger, V<T>(T(i)), place);
    }
    parity = vm_select(place == V<T>(T(k)), parity, -parity);
    T places[kL<T>];
    int32_t* const chosen = pivots + k * kL<T>;
    pack_store(places, place);
    for (int l = 0; l < kL<T>; ++l) chosen[l] = static_cast<int32_t>(places[l]) + 1;
    exchange(a, m, columns, k, chosen);
    const V<T> pivot = at(column, k);
    const auto is_zero = pivot == V<T>(T(0));
    zero_at = vm_select((zero_at == V<T>(T(0))) & is_zero, V<T>(T(k + 1)), zero_at);
    // The reciprocal of a tiny pivot would be infinite. All numbers below a zero pivot are zero.
    constexpr T kTiny = sizeof(T) == 4 ? T(1.2e-38) : T(2.3e-308);
    const V<T> divisor = vm_select(is_zero, V<T>(T(1)), pivot);
    if (vm_any(vm_abs(divisor) < V<T>(kTiny))) {
      for (int i = k + 1; i < m; ++i) put(column, i, at(column, i) / divisor);
    } else {
      const V<T> factor = V<T>(T(1)) / divisor;
      for (int i = k + 1; i < m; ++i) put(column, i, at(column, i) * factor);
    }
    int j = k + 1;
    for (; j + 1 < columns; j += 2) {
      T *const x = a + j * m * kL<T>, *const y = x + m * kL<T>;
      const V<T> u = -at(x, k), w = -at(y, k);
      for (int i = k + 1; i < m; ++i) {
        const V<T> l = at(column, i);
        put(x, i, vm_fma(l, u, at(x, i)));
        put(y, i, vm_fma(l, w, at(y, i)));
      }
    }
    for (; j < columns; ++j) {
      T* const x = a + j * m * kL<T>;
      const V<T> u = -at(x, k);
      for (int i = k + 1; i < m; ++i) put(x, i, vm_fma(at(column, i), u, at(x, i)));
    }
  }
  pack_store(info, zero_at);
  pack_store(sign, parity);
}

template <class T>
void solve_upper(const T* u, int n, int columns, T* b) {
  for (int k = n - 1; k >= 0; --k) {
    const T* const column = u + k * n * kL<T>;
    const V<T> pivot = at(column, k);
    for (int c = 0; c < columns; ++c) {
      T* const x = b + c * n * kL<T>;
      const V<T> found = at(x, k) / pivot;
      put(x, k, found);
      for (int i = 0; i < k; ++i) put(x, i, vm_fma(at(column, i), -found, at(x, i)));
    }
  }
}

template <class T>
void determinant(const T* u, int n, const T* sign, T* product, T* log) {
  V<T> total = pack_load<V<T>>(sign), sum(T(0));
  for (int k = 0; k < n; ++k) {
    V<T> x = at(u, k * n + k);
    if (log) {
      sum = sum + vm_log(vm_abs(x));
      x = vm_select(x > V<T>(T(0)), V<T>(T(1)), vm_select(x < V<T>(T(0)), V<T>(T(-1)), x));
    }
    total = total * x;
  }
  pack_store(product, total);
  if (log) pack_store(log, sum);
}

template <class T>
void cholesky(T* a, int n, T* info) {
  V<T> failed(T(0));
  for (int k = 0; k < n; ++k) {
    T* const column = a + k * n * kL<T>;
    const V<T> d = at(column, k);
    // A NaN fails this comparison, too.
    const auto going = (failed != V<T>(T(0))) | (d > V<T>(T(0)));
    failed = vm_select(going, failed, V<T>(T(k + 1)));
    const V<T> root = vm_sqrt(d), factor = V<T>(T(1)) / root;
    put(column, k, root);
    for (int i = k + 1; i < n; ++i) put(column, i, at(column, i) * factor);
    for (int j = k + 1; j < n; ++j) {
      T* const x = a + j * n * kL<T>;
      const V<T> u = -at(column, j);
      for (int i = j; i < n; ++i) put(x, i, vm_fma(at(column, i), u, at(x, i)));
    }
    for (int i = 0; i < k; ++i) put(column, i, V<T>(T(0)));
  }
  pack_store(info, failed);
}

// ---- orthogonal factors

// Apply the reflection I - tau (1, v)(1, v)^T to rows [k, m) of columns [first, last) of x.
template <class T>
RB_INLINE void reflect(T* x, int m, int first, int last, int k, const T* v, const V<T>& tau) {
  for (int j = first; j < last; ++j) {
    T* const column = x + j * m * kL<T>;
    V<T> sum = at(column, k), other(T(0));
    int i = k + 1;
    for (; i + 1 < m; i += 2) {
      sum = vm_fma(at(v, i), at(column, i), sum);
      other = vm_fma(at(v, i + 1), at(column, i + 1), other);
    }
    if (i < m) sum = vm_fma(at(v, i), at(column, i), sum);
    const V<T> by = -(tau * (sum + other));
    put(column, k, at(column, k) + by);
    for (i = k + 1; i < m; ++i) put(column, i, vm_fma(by, at(v, i), at(column, i)));
  }
}

template <class T>
bool qr(T* a, int m, int n, T* q, int q_columns) {
  T taus[kSmall * kL<T>];
  const int steps = m < n ? m : n, reflections = m - 1 < steps ? m - 1 : steps;
  for (int k = 0; k < reflections; ++k) {
    T* const column = a + k * m * kL<T>;
    const V<T> sum = sum_of_squares(column, k + 1, m);
    const V<T> alpha = at(column, k), whole = vm_fma(alpha, alpha, sum);
    const auto fits = (sum > V<T>(kSmallest<T>)) & (whole < V<T>(kLargest<T>));
    if (not_all(fits)) return false;
    const V<T> norm = vm_sqrt(whole), beta = vm_select(alpha >= V<T>(T(0)), -norm, norm);
    const V<T> tau = (beta - alpha) / beta, factor = V<T>(T(1)) / (alpha - beta);
    for (int i = k + 1; i < m; ++i) put(column, i, at(column, i) * factor);
    put(column, k, beta);
    put(taus, k, tau);
    reflect(a, m, k + 1, n, k, column, tau);
  }
  if (!q) return true;
  for (int j = 0; j < q_columns; ++j)
    for (int i = 0; i < m; ++i) put(q, j * m + i, V<T>(T(i == j)));
  for (int k = reflections - 1; k >= 0; --k)
    reflect(q, m, k, q_columns, k, a + k * m * kL<T>, at(taus, k));
  return true;
}

// ---- eigenvalues and singular values by Jacobi rotations. For singular values a rotation makes
// two columns orthogonal (M. Hestenes, Inversion of matrices by biorthogonalization, 1958). For
// eigenvalues it acts on two rows and two columns.

constexpr int kMostSweeps = 30;

// The tangent of the rotation angle for the difference d of two diagonal elements and twice the
// off-diagonal element.
template <class T>
RB_INLINE V<T> tangent(const V<T>& d, const V<T>& twice) {
  const V<T> zeta = d / twice, size = vm_abs(zeta);
  const V<T> t = V<T>(T(1)) / (size + vm_sqrt(vm_fma(zeta, zeta, V<T>(T(1)))));
  return vm_select(zeta < V<T>(T(0)), -t, t);
}
// Rotate n elements of x, x_step apart, and n elements of y, y_step apart.
template <class T>
RB_INLINE void rotate(T* x, T* y, int n, int x_step, int y_step, const V<T>& c, const V<T>& s) {
  for (int i = 0; i < n; ++i) {
    const V<T> p = at(x, i * x_step), q = at(y, i * y_step);
    put(x, i * x_step, vm_fma(c, p, -(s * q)));
    put(y, i * y_step, vm_fma(s, p, c * q));
  }
}

template <class T>
bool eigh(T* a, int n, T* values, T* finite) {
  V<T> zero(T(0)), largest(T(0));
  for (int i = 0; i < n * n; ++i) zero = zero + at(a, i) * V<T>(T(0));
  const auto sound = zero == zero;
  pack_store(finite, vm_select(sound, V<T>(T(1)), V<T>(T(0))));
  for (int j = 0; j < n; ++j) {
    for (int i = j; i < n; ++i) {
      const V<T> x = vm_select(sound, at(a, j * n + i), V<T>(T(i == j)));
      largest = vm_max(largest, vm_abs(x));
      put(a, j * n + i, x);
    }
  }
  // Smaller off-diagonal elements change eigenvalues by less than their rounding.
  const V<T> least = largest * V<T>(kEpsilon<T> / 4);
  bool going = true;
  for (int sweep = 0; going; ++sweep) {
    if (sweep == kMostSweeps) return false;
    going = false;
    for (int p = 0; p < n - 1; ++p) {
      for (int q = p + 1; q < n; ++q) {
        T *const x = a + p * n * kL<T>, *const y = a + q * n * kL<T>;
        const V<T> beside = at(x, q);
        const auto turn = vm_abs(beside) > least;
        if (!vm_any(turn)) continue;
        going = true;
        const V<T> pp = at(x, p), qq = at(y, q);
        const V<T> t = vm_select(
            turn, tangent(qq - pp, vm_select(turn, beside + beside, V<T>(T(1)))), V<T>(T(0)));
        const V<T> c = V<T>(T(1)) / vm_sqrt(vm_fma(t, t, V<T>(T(1)))), s = t * c;
        // Within the lower triangle: rows p and q, then column p and row q, then columns p and q.
        rotate(a + p * kL<T>, a + q * kL<T>, p, n, n, c, s);
        rotate(x + (p + 1) * kL<T>, a + ((p + 1) * n + q) * kL<T>, q - p - 1, 1, n, c, s);
        rotate(x + (q + 1) * kL<T>, y + (q + 1) * kL<T>, n - q - 1, 1, 1, c, s);
        const V<T> step = t * beside;
        put(x, p, pp - step);
        put(y, q, qq + step);
        put(x, q, vm_select(turn, V<T>(T(0)), beside));
      }
    }
  }
  for (int i = 0; i < n; ++i) put(values, i, at(a, i * n + i));
  return true;
}

// The largest power of two that does not exceed x, for positive x.
template <class T>
RB_INLINE V<T> power_of_two(const V<T>& x) {
  using I = SignedOf<T>;
  constexpr I kExponent = sizeof(T) == 4 ? I(0x7f800000) : static_cast<I>(0x7ff0000000000000);
  return vm_cast<T>(vm_cast<I>(x) & with_lane<V<T>, I>(kExponent));
}

template <class T>
bool svd(T* a, int m, int n, T* values) {
  V<T> largest(T(0)), zero(T(0));
  for (int i = 0; i < m * n; ++i) {
    largest = vm_max(largest, vm_abs(at(a, i)));
    zero = zero + at(a, i) * V<T>(T(0));
  }
  const auto fits = (largest > V<T>(kSmallest<T>)) & (largest < V<T>(kLargest<T>)) & (zero == zero);
  if (not_all(fits)) return false;
  // Scaling by a power of two is exact and keeps squares far from overflow.
  const V<T> scale = power_of_two(largest), inverse = V<T>(T(1)) / scale;
  for (int i = 0; i < m * n; ++i) put(a, i, at(a, i) * inverse);
  const V<T> least{kEpsilon<T> * vm_sqrt(T(m))};
  bool going = true;
  for (int sweep = 0; going; ++sweep) {
    if (sweep == kMostSweeps) return false;
    going = false;
    for (int j = 0; j < n; ++j) {
      put(values, j, sum_of_squares(a + j * m * kL<T>, 0, m));
    }
    for (int p = 0; p < n - 1; ++p) {
      for (int q = p + 1; q < n; ++q) {
        T *const x = a + p * m * kL<T>, *const y = a + q * m * kL<T>;
        V<T> product(T(0)), other(T(0));
        int i = 0;
        for (; i + 1 < m; i += 2) {
          product = vm_fma(at(x, i), at(y, i), product);
          other = vm_fma(at(x, i + 1), at(y, i + 1), other);
        }
        if (i < m) product = vm_fma(at(x, i), at(y, i), product);
        product = product + other;
        const V<T> pp = at(values, p), qq = at(values, q);
        const auto turn = vm_abs(product) > least * vm_sqrt(vm_abs(pp * qq));
        if (!vm_any(turn)) continue;
        going = true;
        const V<T> t = vm_select(
            turn, tangent(qq - pp, vm_select(turn, product + product, V<T>(T(1)))), V<T>(T(0)));
        const V<T> c = V<T>(T(1)) / vm_sqrt(vm_fma(t, t, V<T>(T(1)))), s = t * c;
        rotate(x, y, m, 1, 1, c, s);
        put(values, p, pp - t * product);
        put(values, q, qq + t * product);
      }
    }
  }
  constexpr T kLeast = sizeof(T) == 4 ? T(1e-12) : T(1e-100);
  auto singular = V<T>(T(0)) != V<T>(T(0));
  for (int j = 0; j < n; ++j) {
    const V<T> size = vm_sqrt(sum_of_squares(a + j * m * kL<T>, 0, m));
    singular = singular | (size < V<T>(kLeast));
    put(values, j, size * scale);
  }
  return !vm_any(singular);
}

template <class T>
constexpr SmallTable<T> kTable = {kL<T>,       lu<T>, solve_upper<T>, determinant<T>,
                                  cholesky<T>, qr<T>, eigh<T>,        svd<T>};
static_assert(kL<float> <= kMaxLanes);
}  // namespace

extern const SmallTables RB_LEVEL_NAME(small_table) = {kTable<float>, kTable<double>};
}  // namespace rbcpu
