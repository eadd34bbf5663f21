// Plans: factors of lengths, tables, and the cache that keeps them.
#include "fourier/plan.h"

#include <algorithm>
#include <list>
#include <map>
#include <mutex>
#include <utility>

#include "fourier/lines.h"
#include "fourier/roots.h"

namespace rbcpu::fourier {
namespace {

constexpr int64_t kLargestPrime = 31;  // of a butterfly; larger factors go through a convolution
constexpr int64_t kLeaf =
    1024;  // numbers of a leaf, each of all lanes, so that its buffers stay in the cache
constexpr int64_t kSideBySide =
    1 << 14;  // beyond it lines are transformed one by one, whatever lies between their numbers
constexpr size_t kCacheBytes = size_t{64} << 20;

/// The radices of a length, larger ones first; empty where a prime factor is too large.
std::vector<int> radices_of(int64_t n) {
  std::vector<int> found;
  int twos = 0;
  for (; n % 2 == 0; n /= 2) ++twos;
  for (int p = 3; p <= kLargestPrime && n > 1; p += 2) {
    for (; n % p == 0; n /= p) found.push_back(p);
  }
  if (n > 1) return {};
  if (twos % 3 == 1 && twos > 1) {
    found.insert(found.end(), {4, 4});
    twos -= 4;
  }
  if (twos % 3 == 2) found.push_back(4);
  if (twos % 3 == 1) found.push_back(2);
  found.insert(found.end(), twos / 3, 8);
  std::sort(found.rbegin(), found.rend());
  return found;
}
bool is_smooth(int64_t n) { return n == 1 || !radices_of(n).empty(); }

template <class T>
void put(std::vector<T>& to, const std::complex<long double>& x) {
  to.push_back(static_cast<T>(x.real()));
  to.push_back(static_cast<T>(x.imag()));
}

template <class T>
Leaf<T> make_leaf(int64_t n) {
  Leaf<T> leaf;
  leaf.n = n;
  const Roots roots(n);
  struct Place {
    size_t twiddles, roots;
  };
  std::vector<Place> places;
  int64_t rest = n, stride = 1;
  for (const int radix : radices_of(n)) {
    rest /= radix;
    places.push_back({leaf.tables.size(), 0});
    for (int64_t p = 0; p < rest; ++p)
      for (int k = 1; k < radix; ++k) put(leaf.tables, roots(p * k % (rest * radix) * stride));
    places.back().roots = leaf.tables.size();
    if (radix % 2) {
      for (int k = 0; k < radix; ++k) put(leaf.tables, root(k, radix));
    }
    leaf.passes.push_back({radix, rest, stride, nullptr, nullptr});
    stride *= radix;
  }
  for (size_t i = 0; i < places.size(); ++i) {
    leaf.passes[i].twiddles = leaf.tables.data() + places[i].twiddles;
    leaf.passes[i].roots = leaf.tables.data() + places[i].roots;
  }
  return leaf;
}

/// The divisor of a smooth n that is closest to `wanted`, in ratio.
int64_t divisor_near(int64_t n, int64_t wanted) {
  int64_t best = 1;
  const auto distance = [&](int64_t d) {
    return d > wanted ? double(d) / wanted : double(wanted) / d;
  };
  for (int64_t d = 1; d * d <= n; ++d) {
    if (n % d) continue;
    for (const int64_t each : {d, n / d})
      if (distance(each) < distance(best)) best = each;
  }
  return best;
}

template <class T>
void plan_line(Plan<T>& plan, int lanes) {
  plan.method = Method::kLine;
  const int64_t n = plan.n, m = n / lanes;
  plan.columns = m > kLeaf ? divisor_near(m, 1 << (63 - __builtin_clzll(m)) / 2) : 1;
  plan.rows = m / plan.columns;
  plan.column = make_leaf<T>(plan.rows);
  plan.row = make_leaf<T>(plan.columns);
  if (plan.columns > 1) {
    const Roots roots(m);
    for (int64_t j = 0; j < plan.columns; ++j)
      for (int64_t k = 0; k < plan.rows; ++k) put(plan.steps, roots(j * k));
  }
  const Roots roots(n);
  plan.fine = std::min<int64_t>(m, 256);
  const auto steps = [&](int64_t count, int64_t apart) {
    std::vector<T> found(2 * lanes * count);
    for (int64_t k = 0; k < count; ++k) {
      for (int l = 0; l < lanes; ++l) {
        const auto w = roots(l * k * apart);
        found[2 * lanes * k + l] = static_cast<T>(w.real());
        found[2 * lanes * k + lanes + l] = static_cast<T>(w.imag());
      }
    }
    return found;
  };
  plan.fine_steps = steps(plan.fine, 1);
  plan.coarse_steps = steps((m + plan.fine - 1) / plan.fine, plan.fine);
}

template <class T>
void plan_grid(Plan<T>& plan, int64_t columns) {
  plan.method = Method::kGrid;
  plan.columns = columns;
  plan.rows = plan.n / columns;
  plan.column = make_leaf<T>(plan.rows);
  plan.row = make_leaf<T>(plan.columns);
  const Roots roots(plan.n);
  for (int64_t k = 0; k < plan.rows; ++k)
    for (int64_t j = 0; j < plan.columns; ++j) put(plan.steps, roots(j * k));
}

template <class T>
void plan_chirp(Plan<T>& plan, int lanes) {
  plan.method = Method::kChirp;
  const int64_t n = plan.n;
  int64_t m = 0;  // the shortest of a few smooth lengths
  for (const int odd : {1, 3, 5, 9, 15}) {
    int64_t each = int64_t{4} * lanes * odd;
    while (each < 2 * n - 1) each *= 2;
    if (!m || each < m) m = each;
  }
  plan.convolution = plan_of<T>(m);
  const Roots roots(2 * n);
  std::vector<T> inverse(2 * m);
  for (int64_t k = 0; k < n; ++k) {
    const int64_t square = static_cast<int64_t>(static_cast<unsigned __int128>(k) * k % (2 * n));
    const auto w = roots(square);
    put(plan.chirp, w);
    for (const int64_t at : {k, (m - k) % m}) {
      inverse[2 * at] = static_cast<T>(w.real() / m);
      inverse[2 * at + 1] = static_cast<T>(-w.imag() / m);
    }
  }
  plan.spectrum.resize(2 * m);
  std::vector<T> work(plan.convolution->work(lanes) + 16);
  lines<T>().line(*plan.convolution, inverse.data(), plan.spectrum.data(), work.data(), false,
                  T(1));
}

template <class T>
Plan<T> make_plan(int64_t n) {
  const int lanes = lines<T>().lanes;
  Plan<T> plan;
  plan.n = n;
  plan.method = Method::kLanes;
  if (!is_smooth(n)) {
    plan_chirp(plan, lanes);
  } else if (n % lanes == 0 && n >= 4 * lanes) {
    plan_line(plan, lanes);
  } else {
    const int64_t columns =
        n > 16 * lanes ? divisor_near(n, static_cast<int64_t>(std::sqrt(double(n)))) : 1;
    if (std::min(columns, n / columns) >= 4) {
      plan_grid(plan, columns);
    } else {
      plan.rows = n;
      plan.column = make_leaf<T>(n);
    }
  }
  return plan;
}

// ---- the cache

template <class T>
size_t table_bytes(const std::vector<T>& table) {
  return table.capacity() * sizeof(T);
}
template <class T>
size_t bytes_of(const Leaf<T>& leaf) {
  return sizeof(leaf) + table_bytes(leaf.tables);
}
template <class T>
size_t bytes_of(const Plan<T>& plan) {
  return plan.bytes();
}
template <class T>
size_t bytes_of(const std::vector<T>& table) {
  return table_bytes(table);
}

/// What `make` returns for a length, kept while it is used and fits.
template <class Value>
class Cache {
 public:
  template <class Make>
  std::shared_ptr<const Value> get(int64_t n, Make&& make) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (const auto at = places_.find(n); at != places_.end()) {
        kept_.splice(kept_.begin(), kept_, at->second);
        return at->second->second;
      }
    }
    auto made = std::make_shared<const Value>(make(n));  // without the lock: a plan may need others
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const auto at = places_.find(n); at != places_.end()) return at->second->second;
    kept_.emplace_front(n, made);
    places_[n] = kept_.begin();
    bytes_ += bytes_of(*made);
    while (bytes_ > kCacheBytes && kept_.size() > 1) {
      bytes_ -= bytes_of(*kept_.back().second);
      places_.erase(kept_.back().first);
      kept_.pop_back();
    }
    return made;
  }

 private:
  using Entry = std::pair<int64_t, std::shared_ptr<const Value>>;
  std::mutex mutex_;
  std::list<Entry> kept_;
  std::map<int64_t, typename std::list<Entry>::iterator> places_;
  size_t bytes_ = 0;
};

template <class Value>
Cache<Value>& cache() {
  static Cache<Value>& found = *new Cache<Value>;  // for kernels that run while the process ends
  return found;
}

}  // namespace

template <class T>
size_t Plan<T>::bytes() const {
  return sizeof(*this) + bytes_of(row) + bytes_of(column) + table_bytes(steps) +
         table_bytes(fine_steps) + table_bytes(coarse_steps) + table_bytes(chirp) +
         table_bytes(spectrum);
}

template <class T>
int64_t Plan<T>::work(int lanes) const {
  const int64_t buffers = 4 * lanes * std::max(rows, columns);
  switch (method) {
    case Method::kLanes:
      return buffers;
    case Method::kLine:
      return columns == 1 ? buffers : 2 * n + buffers + 2 * lanes * (lanes + 1) * columns;
    case Method::kGrid:
      return 2 * n + buffers;
    case Method::kChirp:
      return 2 * convolution->n + convolution->work(lanes);
  }
  return 0;
}

template <class T>
std::shared_ptr<const Plan<T>> plan_of(int64_t n) {
  return cache<Plan<T>>().get(n, make_plan<T>);
}

template <class T>
std::shared_ptr<const Leaf<T>> leaf_of(int64_t n) {
  if (n > kSideBySide || !is_smooth(n)) return nullptr;
  return cache<Leaf<T>>().get(n, make_leaf<T>);
}

template <class T>
std::shared_ptr<const std::vector<T>> half_turn_of(int64_t n) {
  return cache<std::vector<T>>().get(n, [](int64_t length) {
    std::vector<T> found;
    const Roots roots(length);
    for (int64_t k = 0; k <= length / 4; ++k) put(found, roots(k));
    return found;
  });
}

template struct Plan<float>;
template struct Plan<double>;
template std::shared_ptr<const Plan<float>> plan_of(int64_t);
template std::shared_ptr<const Plan<double>> plan_of(int64_t);
template std::shared_ptr<const Leaf<float>> leaf_of(int64_t);
template std::shared_ptr<const Leaf<double>> leaf_of(int64_t);
template std::shared_ptr<const std::vector<float>> half_turn_of(int64_t);
template std::shared_ptr<const std::vector<double>> half_turn_of(int64_t);

}  // namespace rbcpu::fourier
