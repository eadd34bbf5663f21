// Random numbers: rabbet/philox.h maps counters to elements, so that a seed gives the same numbers
// at any number of threads and on any device.
#include <algorithm>
#include <cmath>
#include <limits>

#include "common/kernels.h"
#include "common/level.h"
#include "common/view.h"
#include "rabbet/philox.h"
#include "random/words.h"

namespace rbcpu {
namespace {

RbRngSlice reserve(RbGenerator* generator, const RbTensor& out, int64_t n, int bits) {
  RbRngSlice slice{};
  slice.struct_size = sizeof slice;
  rb::check(rb::host->rng_reserve(generator, out.backend, out.device.id,
                                  rb_philox_counters(static_cast<uint64_t>(n), bits), &slice));
  return slice;
}

// Row-major elements of `out`: fill(T* to, first element, how many) into dense memory, in ranges
// that begin at multiples of 4 (whole counters).
template <class T, class Fill>
void generate(RbTensor& out, const Fill& fill) {
  const bool dense = (out.flags & RB_T_CONTIGUOUS) != 0;
  rb::Scratch<T> copy(dense ? 0 : out.numel);
  T* data = dense ? static_cast<T*>(out.data) : copy.data();
  rb::parallel_for((out.numel + 3) / 4, 4096, [&](int64_t begin, int64_t end) {
    fill(data + 4 * begin, 4 * begin, std::min<int64_t>(4 * end, out.numel) - 4 * begin);
  });
  if (!dense) copy_view(view_of(out), dense_view(data, out.dtype_id, view_of(out)));
}

const WordTable& word_table() {
  static const WordTable& table = RB_PICK_LEVEL(word_table);
  return table;
}

constexpr int64_t kWordRun = 512;  // words generated at a time
// Store the words of counters [first, first + count).
void draw(const RbRngSlice& slice, int64_t first, int64_t count, uint32_t* words) {
  word_table().philox(slice.seed, slice.offset + static_cast<uint64_t>(first), count, words);
}

// value(word) per element, 32 bits each.
template <class T, class Value>
void per_word(RbTensor& out, const RbRngSlice& slice, const Value& value) {
  generate<T>(out, [&](T* to, int64_t first, int64_t n) {
    uint32_t words[kWordRun];
    for (int64_t i = 0; i < n; i += kWordRun) {
      const int64_t m = std::min(kWordRun, n - i);
      draw(slice, (first + i) / 4, (m + 3) / 4, words);
      for (int64_t k = 0; k < m; ++k) to[i + k] = value(words[k], first + i + k);
    }
  });
}
// value(low, high) per element, 64 bits each.
template <class T, class Value>
void per_two_words(RbTensor& out, const RbRngSlice& slice, const Value& value) {
  generate<T>(out, [&](T* to, int64_t first, int64_t n) {
    uint32_t words[kWordRun];
    for (int64_t i = 0; i < n; i += kWordRun / 2) {
      const int64_t m = std::min(kWordRun / 2, n - i);
      draw(slice, (first + i) / 2, (m + 1) / 2, words);
      for (int64_t k = 0; k < m; ++k)
        to[i + k] = value(words[2 * k], words[2 * k + 1], first + i + k);
    }
  });
}

// f(u, element) with u uniform on [0, 1): float out of one word, double out of two for float64
// results.
template <uint64_t Mask, class F>
void from_uniform(const rb::Args& a, int generator, const F& f) {
  RbTensor& out = a.ret();
  const bool wide = out.dtype_id == RB_F64;
  const RbRngSlice slice = reserve(a.generator(generator), out, out.numel, wide ? 64 : 32);
  dispatch_dtype<Mask>(a.op_name(), out.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_same_v<T, double>) {
      per_two_words<T>(out, slice, [&](uint32_t low, uint32_t high, int64_t i) {
        return convert<T>(f(rb_uniform_f64(low, high), i));
      });
    } else {
      per_word<T>(out, slice,
                  [&](uint32_t word, int64_t i) { return convert<T>(f(rb_uniform_f32(word), i)); });
    }
  });
}

// The largest T below x.
template <class T>
T below(double x) {
  const T rounded = convert<T>(x);
  if constexpr (is_half_v<T>) {
    T r = rounded;
    if (static_cast<double>(static_cast<float>(r)) < x) return r;
    const uint16_t magnitude = r.bits & 0x7fffu;
    r.bits = static_cast<uint16_t>(magnitude == 0     ? 0x8001u
                                   : r.bits & 0x8000u ? r.bits + 1
                                                      : r.bits - 1);
    return r;
  } else {
    return static_cast<double>(rounded) < x
               ? rounded
               : std::nextafter(rounded, -std::numeric_limits<T>::infinity());
  }
}

void uniform_kernel(const rb::Args& a) {
  const double from = a.has(1) ? a.real(1) : 0.0, to = a.has(2) ? a.real(2) : 1.0;
  if (!(from <= to)) rb::fail(RB_E_ARG, "uniform: `from` (%g) must not exceed `to` (%g)", from, to);
  double top = from;  // the largest value of the dtype below `to`, which rounding must not reach
  if (from < to) {
    dispatch_dtype<kMaskFloat>("uniform", a.ret().dtype_id, [&](auto tag) {
      top = static_cast<double>(
          compute_t<typename decltype(tag)::type>(below<typename decltype(tag)::type>(to)));
    });
  }
  from_uniform<kMaskFloat>(a, 3, [=](auto u, int64_t) {
    using C = decltype(u);
    return std::min(C(from) + u * C(to - from), C(top));
  });
}

void exponential_kernel(const rb::Args& a) {
  const double rate = a.has(1) ? a.real(1) : 1.0;
  if (!(rate > 0.0)) rb::fail(RB_E_ARG, "exponential: `lambd` must be positive, got %g", rate);
  from_uniform<kMaskFloat>(a, 2, [=](auto u, int64_t) {
    using C = decltype(u);
    return -std::log(C(1) - u) / C(rate);
  });
}

void bernoulli_kernel(const rb::Args& a) {
  const double p = a.has(1) ? a.real(1) : 0.5;
  if (!(p >= 0.0 && p <= 1.0)) rb::fail(RB_E_ARG, "bernoulli: `p` must lie in [0, 1], got %g", p);
  from_uniform<kMaskReal>(a, 2,
                          [=](auto u, int64_t) { return u < static_cast<decltype(u)>(p) ? 1 : 0; });
}

void bernoulli_tensor_kernel(const rb::Args& a) {
  const RbTensor& p = a.tensor(1);
  if (!(kMaskFloat >> p.dtype_id & 1)) {
    rb::fail(RB_E_TYPE, "bernoulli: expected floating probabilities, got %s",
             kDTypeNames[p.dtype_id]);
  }
  const View shape = view_of(a.ret());
  const View given = view_of(p);
  for (int d = 0; d < given.ndim; ++d) {
    const int k = d + shape.ndim - given.ndim;
    if (k < 0 || (given.shape[d] != 1 && given.shape[d] != shape.shape[k])) {
      rb::fail(RB_E_ARG, "bernoulli: `p` does not broadcast to the result");
    }
  }
  rb::Scratch<double> dense(shape.numel());
  copy_view(dense_view(dense.data(), RB_F64, shape), given);
  for (int64_t i = 0; i < shape.numel(); ++i) {
    if (!(dense[i] >= 0.0 && dense[i] <= 1.0))
      rb::fail(RB_E_ARG, "bernoulli: probabilities must lie in [0, 1], got %g", dense[i]);
  }
  from_uniform<kMaskReal>(
      a, 2, [&](auto u, int64_t i) { return u < static_cast<decltype(u)>(dense[i]) ? 1 : 0; });
}

void normal_kernel(const rb::Args& a) {
  RbTensor& out = a.ret();
  const double mean = a.has(1) ? a.real(1) : 0.0, std = a.has(2) ? a.real(2) : 1.0;
  if (!(std >= 0.0)) rb::fail(RB_E_ARG, "normal: `std` must not be negative, got %g", std);
  const bool wide = out.dtype_id == RB_F64;
  const RbRngSlice slice = reserve(a.generator(3), out, out.numel, wide ? 64 : 32);
  dispatch_dtype<kMaskFloat>("normal", out.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_same_v<T, double>) {
      generate<T>(out, [&](T* to, int64_t first, int64_t n) {
        for (int64_t i = 0; i < n; i += 2) {
          double pair[2];
          rb_normal_f64(rb_philox(slice.seed, slice.offset + static_cast<uint64_t>(first + i) / 2),
                        pair, pair + 1);
          for (int64_t k = 0; k < 2 && i + k < n; ++k) to[i + k] = mean + std * pair[k];
        }
      });
    } else {
      const float m = static_cast<float>(mean), s = static_cast<float>(std);
      generate<T>(out, [&](T* to, int64_t first, int64_t n) {
        uint32_t words[kWordRun];
        float values[kWordRun];
        for (int64_t i = 0; i < n; i += kWordRun) {
          const int64_t run = std::min(kWordRun, n - i);
          draw(slice, (first + i) / 4, (run + 3) / 4, words);
          word_table().normal(words, (run + 1) / 2, values);
          for (int64_t k = 0; k < run; ++k) to[i + k] = T(m + s * values[k]);
        }
      });
    }
  });
}

void random_kernel(const rb::Args& a) {
  RbTensor& out = a.ret();
  const int64_t from = a.integer(1), to = a.integer(2);
  if (from >= to) {
    rb::fail(RB_E_ARG, "random: `from` (%lld) must be below `to` (%lld)",
             static_cast<long long>(from), static_cast<long long>(to));
  }
  const uint64_t range = static_cast<uint64_t>(to) - static_cast<uint64_t>(from);
  const bool wide = range > (uint64_t{1} << 32);
  const RbRngSlice slice = reserve(a.generator(3), out, out.numel, wide ? 64 : 32);
  dispatch_dtype<kMaskReal>("random", out.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    auto shifted = [&](uint64_t x) {
      return convert<T>(static_cast<int64_t>(static_cast<uint64_t>(from) + x));
    };
    if (wide) {
      per_two_words<T>(out, slice, [&](uint32_t low, uint32_t high, int64_t) {
        return shifted(rb_below_64(low, high, range));
      });
    } else {
      per_word<T>(out, slice,
                  [&](uint32_t word, int64_t) { return shifted(rb_below_32(word, range)); });
    }
  });
}

// Fisher-Yates from the end; step k (0, 1, ...) draws for place n - 1 - k with the k-th element's
// 64 bits.
void randperm_kernel(const rb::Args& a) {
  RbTensor& out = a.ret();
  const int64_t n = out.numel;
  const RbRngSlice slice = reserve(a.generator(3), out, n, 64);
  rb::Scratch<int64_t> order(n);
  for (int64_t i = 0; i < n; ++i) order[i] = i;
  uint32_t words[kWordRun];
  for (int64_t k = 0; k + 1 < n; ++k) {
    const int64_t w = 2 * k % kWordRun;
    if (w == 0) draw(slice, k / 2, std::min(kWordRun / 4, (n - k + 1) / 2), words);
    const int64_t place = n - 1 - k;
    std::swap(order[place],
              order[rb_below_64(words[w], words[w + 1], static_cast<uint64_t>(place) + 1)]);
  }
  copy_view(view_of(out), dense_view(order.data(), RB_I64, view_of(out)));
}

const rb::KernelSpec kKernels[] = {
    {"uniform", rb::wrap<uniform_kernel>, 0, kMaskFloat},
    {"normal", rb::wrap<normal_kernel>, 0, kMaskFloat},
    {"bernoulli", rb::wrap<bernoulli_kernel>, 0, kMaskReal},
    {"bernoulli.tensor", rb::wrap<bernoulli_tensor_kernel>, 0, kMaskReal},
    {"random", rb::wrap<random_kernel>, 0, kMaskReal},
    {"exponential", rb::wrap<exponential_kernel>, 0, kMaskFloat},
    {"randperm", rb::wrap<randperm_kernel>},
};

}  // namespace

int32_t add_random(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcpu
