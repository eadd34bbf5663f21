// Roots of unity, rounded once.
#pragma once
#include <cmath>
#include <complex>
#include <cstdint>
#include <vector>

namespace rbcpu::fourier {

/// exp(-2 pi i k / n). The angle is reduced to an eighth of the circle in integers, so that it is
/// exact up to the rounding of its last step.
inline std::complex<long double> root(int64_t k, int64_t n) {
  constexpr long double kTwoPi = 6.283185307179586476925286766559005768L;
  const auto turn = [&](int64_t numerator) {  // of at most n / 8, in units of 1 / (8 n)
    const long double angle =
        kTwoPi * static_cast<long double>(numerator) / (8.0L * static_cast<long double>(n));
    return std::complex<long double>(cosl(angle), sinl(angle));
  };
  int64_t eighths =
      8 * (k % n);  // the angle in units of 1 / (8 n) of the circle; lengths stay below 2^59
  if (eighths < 0) eighths += 8 * n;
  const int octant = static_cast<int>(eighths / n);
  const int64_t inside = eighths % n;
  const std::complex<long double> t = octant & 1 ? turn(n - inside) : turn(inside);
  long double c = t.real(), s = t.imag();
  if (((octant + 1) >> 1) & 1) std::swap(c, s);
  if (octant >= 2 && octant < 6) c = -c;
  if (octant >= 4) s = -s;
  return {c, -s};
}

/// exp(-2 pi i k / n) for any k by one product of two entries: for tables of many roots.
class Roots {
 public:
  explicit Roots(int64_t n) : n_(n) {
    while (low_ * low_ < n) low_ *= 2;
    for (int64_t i = 0; i < low_ && i < n; ++i) fine_.push_back(root(i, n));
    for (int64_t i = 0; i * low_ < n; ++i) coarse_.push_back(root(i * low_, n));
  }
  std::complex<long double> operator()(int64_t k) const {
    k %= n_;
    const auto a = coarse_[k / low_], b = fine_[k % low_];
    return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
  }

 private:
  int64_t n_, low_ = 1;
  std::vector<std::complex<long double>> fine_, coarse_;
};

}  // namespace rbcpu::fourier
