// How a transform of one length is computed, and its tables.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

namespace rbcpu::fourier {

/// A pass of Stockham's algorithm over `radix * rest * stride` numbers: butterflies of `radix`,
/// then twiddle factors (radix - 1 complex numbers for each of `rest`; none where rest is 1).
template <class T>
struct Pass {
  int radix;
  int64_t rest, stride;
  const T* twiddles;
  const T* roots;  // the `radix` complex roots of unity, for odd radices
};

/// A transform of `n` numbers that stay in the cache: passes from one buffer to another.
template <class T>
struct Leaf {
  int64_t n = 1;
  std::vector<Pass<T>> passes;
  std::vector<T> tables;
};

enum class Method {
  kLanes,  // lines side by side in the lanes of vectors
  kLine,   // the residues of a line in the lanes: n = lanes * rows * columns
  kGrid,   // the columns, then the rows of a line of n = rows * columns numbers in the lanes
  kChirp,  // by Bluestein's convolution: n has a large prime factor
};

/// A transform of lines of `n` contiguous complex numbers.
template <class T>
struct Plan {
  int64_t n;
  Method method;
  int64_t rows = 1, columns = 1;  // a leaf each; `columns` is 1 where one leaf does
  Leaf<T> row, column;            // of lengths columns and rows
  std::vector<T>
      steps;  // exp(-2 pi i j k / (rows columns)): kLine [column][row], kGrid [row][column]
  // kLine: exp(-2 pi i lane k / n) is the product of entry k / fine of `coarse` and k % fine of
  // `fine_steps`, each the real parts of all lanes, then the imaginary ones.
  int64_t fine = 1;
  std::vector<T> fine_steps, coarse_steps;
  // kChirp: exp(-pi i k^2 / n), and the transform of its conjugate, by `convolution`.
  std::vector<T> chirp, spectrum;
  std::shared_ptr<const Plan<T>> convolution;

  size_t bytes() const;
  /// How many elements of working memory a thread needs for line().
  int64_t work(int lanes) const;
};

/// Plans come from a cache that forgets the least recently used ones.
template <class T>
std::shared_ptr<const Plan<T>> plan_of(int64_t n);
/// The passes for any length without large prime factors, for lines in lanes; null for others.
template <class T>
std::shared_ptr<const Leaf<T>> leaf_of(int64_t n);
/// exp(-2 pi i k / n) for k up to n / 4, for real transforms of even length n.
template <class T>
std::shared_ptr<const std::vector<T>> half_turn_of(int64_t n);

}  // namespace rbcpu::fourier
