// A backend whose kernels are right but for the one fault that the environment variable PLANTED
// names.
#include <cmath>
#include <type_traits>

#include "small_backend.h"

namespace {

bool planted(const char* name) {
  static const char* const chosen = std::getenv("PLANTED");
  return chosen && !std::strcmp(chosen, name);
}

int32_t copy(void*, const RbTensor* src, const RbTensor* dst, void*, uint32_t) {
  return small::copy_bytes(src, dst, src->numel);
}
const RbDevices kDevices = {
    RB_SIZE(RbDevices, fork_child), 0, nullptr, small::count, small::sync, copy, nullptr};
const RbBackend kBackend = {
    RB_SIZE(RbBackend, allocator), 0, "planted", 12, 0, &kDevices, &small::kAllocator};

template <class F>
void of_dtype(int dtype, const F& f) {
  switch (dtype) {
    case RB_F32:
      return f(float{});
    case RB_F64:
      return f(double{});
    case RB_I64:
      return f(int64_t{});
    default:
      return f(bool{});
  }
}

// ---- elementwise

// The element of an operand, where the tensor broadcasts and strides are as the faults leave them.
template <class T>
T read(const RbValue& v, const RbTensor& out, int64_t n) {
  if (v.tag != RB_TENSOR) return small::operand<T>(v, out, n);
  RbTensor t = *v.v.t;
  int64_t strides[8];
  for (int d = 0; d < t.ndim; ++d) strides[d] = t.strides[d];
  if (planted("columns") && t.ndim > 1 && t.shape[t.ndim - 1] == 1)
    strides[t.ndim - 2] = 0;  // a column is read as its first element
  if (planted("4-d strides") && t.ndim == 4) std::swap(strides[1], strides[2]);
  t.strides = strides;
  if (planted("stride 0") && t.ndim == out.ndim && t.ndim > 1 && t.strides[0] == 0 &&
      n >= out.numel / out.shape[0])
    return T(0);  // rows behind the first are not there
  return *small::at<T>(t, out, n);
}

template <class T, class F>
void each(const rb::Args& a, const F& f) {
  const RbTensor& out = a.ret();
  const int64_t most = planted("first 4096") ? 4096 : planted("first 65536") ? 65536 : out.numel;
  const int64_t count = out.numel > most ? most : out.numel;
  for (int64_t n = 0; n < count; ++n) *small::at<T>(out, out, n) = f(n);
}

void add(const rb::Args& a) {
  of_dtype(a.ret().dtype_id, [&](auto tag) {
    using T = decltype(tag);
    const T alpha = planted("alpha") ? T(1) : small::operand<T>(a.args[2], a.ret(), 0);
    each<T>(a, [&](int64_t n) {
      const T x = read<T>(a.args[0], a.ret(), n), y = read<T>(a.args[1], a.ret(), n);
      if (planted("add by double")) return T(double(x) + double(alpha) * double(y));
      return T(x + alpha * y);
    });
  });
}

void neg(const rb::Args& a) {
  of_dtype(a.ret().dtype_id, [&](auto tag) {
    using T = decltype(tag);
    each<T>(a, [&](int64_t n) {
      const T x = read<T>(a.args[0], a.ret(), n);
      return planted("sign of zero") ? T(T(0) - x) : T(-x);
    });
    const RbTensor& x = a.tensor(0);
    if (planted("overwrites") && x.numel > 1) static_cast<T*>(x.data)[0] = T(0);
  });
}

void relu(const rb::Args& a) {
  of_dtype(a.ret().dtype_id, [&](auto tag) {
    using T = decltype(tag);
    each<T>(a, [&](int64_t n) {
      const T x = read<T>(a.args[0], a.ret(), n);
      return planted("relu of nan") ? (x > T(0) ? x : T(0)) : (x < T(0) ? T(0) : x);
    });
  });
}

void cast(const rb::Args& a) {
  of_dtype(a.ret().dtype_id, [&](auto to) {
    using T = decltype(to);
    of_dtype(a.tensor(0).dtype_id, [&](auto from) {
      using F = decltype(from);
      each<T>(a, [&](int64_t n) {
        const F x = read<F>(a.args[0], a.ret(), n);
        if (planted("cast rounds") && std::is_same_v<T, int64_t>)
          return T(std::nearbyint(double(x)));
        if constexpr (std::is_same_v<T, float> && std::is_same_v<F, double>) {
          const float near = static_cast<float>(x);
          if (planted("toward zero") && std::abs(double(near)) > std::abs(x))
            return std::nextafter(near, 0.0f);
        }
        if (planted("cast to bool") && std::is_same_v<T, bool>) return T(int64_t(x) & 1);
        return static_cast<T>(x);
      });
    });
  });
}

// Takes row-major tensors only.
void sign(const rb::Args& a) {
  const RbTensor& out = a.ret();
  of_dtype(out.dtype_id, [&](auto tag) {
    using T = decltype(tag);
    const T* x = static_cast<const T*>(a.tensor(0).data);
    for (int64_t n = 0; n < out.numel; ++n)
      static_cast<T*>(out.data)[n] = T(T(x[n] > T(0)) - T(x[n] < T(0)));
  });
}

// ---- reductions

template <class T, class Acc, class F>
void reduce(const rb::Args& a, Acc first, const F& f) {
  const RbTensor &x = a.tensor(0), &out = a.ret();
  const bool all = a.args[1].tag != RB_INTS;
  bool gone[8];
  for (int d = 0; d < x.ndim; ++d) gone[d] = all;
  for (uint32_t i = 0; !all && i < a.args[1].len; ++i) gone[a.args[1].v.is[i]] = true;
  const bool keeps = a.args[2].v.i != 0;
  for (int64_t k = 0; k < out.numel; ++k) {
    Acc acc = first;
    bool begun = false;
    for (int64_t n = 0; n < x.numel; ++n) {
      int64_t rest = n, place = 0, rest_out = k;
      bool here = true;
      for (int d = x.ndim - 1, e = out.ndim - 1; d >= 0; --d) {
        const int64_t i = rest % x.shape[d];
        rest /= x.shape[d];
        place += i * x.strides[d];
        if (gone[d] && !keeps) continue;
        if (!gone[d] && i != rest_out % out.shape[e]) here = false;
        rest_out /= out.shape[e--];
      }
      if (!here) continue;
      f(acc, static_cast<const T*>(x.data)[place], begun);
      begun = true;
    }
    *small::at<T>(out, out, k) = static_cast<T>(acc);
  }
}

void sum(const rb::Args& a) {
  of_dtype(a.ret().dtype_id, [&](auto tag) {
    using T = decltype(tag);
    if (planted("sum by float"))
      return reduce<T>(a, 0.0f, [](float& s, T x, bool) { s += float(x); });
    if (std::is_same_v<T, float>) return reduce<T>(a, 0.0, [](double& s, T x, bool) { s += x; });
    reduce<T>(a, T(0), [](T& s, T x, bool) { s = T(s + x); });
  });
}

void amax(const rb::Args& a) {
  of_dtype(a.ret().dtype_id, [&](auto tag) {
    using T = decltype(tag);
    reduce<T>(a, T(0), [](T& most, T x, bool begun) {
      const bool nan = x != x && !planted("amax of nan");
      if (!begun || x > most || nan) most = x;
      if (begun && most != most && planted("amax of nan")) most = x;
    });
  });
}

// ---- products and sums by index, of matrices

void mm(const rb::Args& a) {
  const RbTensor &x = a.tensor(0), &y = a.tensor(1), &out = a.ret();
  const int64_t m = x.shape[0], k = x.shape[1], n = y.shape[1];
  const bool swapped = planted("square") && m == k && k == n;  // y is read transposed
  of_dtype(out.dtype_id, [&](auto tag) {
    using T = decltype(tag);
    const auto at = [](const RbTensor& t, int64_t i, int64_t j) {
      return static_cast<T*>(t.data) + i * t.strides[0] + j * t.strides[1];
    };
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        std::conditional_t<std::is_same_v<T, float>, double, T> sum{};
        for (int64_t p = 0; p < k; ++p)
          sum += *at(x, i, p) * *(swapped ? at(y, j, p) : at(y, p, j));
        *at(out, i, j) = static_cast<T>(sum);
      }
    }
  });
}

void scatter_add(const rb::Args& a) {
  const RbTensor &x = a.tensor(0), &index = a.tensor(2), &from = a.tensor(3), &out = a.ret();
  const int64_t dim = a.args[1].v.i;
  of_dtype(out.dtype_id, [&](auto tag) {
    using T = decltype(tag);
    const auto at = [](const RbTensor& t, int64_t i, int64_t j) {
      return static_cast<T*>(t.data) + i * t.strides[0] + j * t.strides[1];
    };
    for (int64_t i = 0; i < out.shape[0]; ++i)
      for (int64_t j = 0; j < out.shape[1]; ++j) *at(out, i, j) = *at(x, i, j);
    for (int64_t i = 0; i < index.shape[0]; ++i) {
      for (int64_t j = 0; j < index.shape[1]; ++j) {
        const int64_t place =
            static_cast<int64_t*>(index.data)[i * index.strides[0] + j * index.strides[1]];
        const int64_t row = dim == 0 ? place : i, column = dim == 0 ? j : place;
        const T before = planted("duplicates") ? *at(x, row, column) : *at(out, row, column);
        *at(out, row, column) = T(before + *at(from, i, j));
      }
    }
  });
}

int32_t init(const RbHost* host, RbTxn* txn) {
  rb::host = host;
  int32_t id = -1;
  if (int32_t code = host->add_backend(txn, &kBackend, &id)) return code;
  const uint64_t real = 1ull << RB_F32 | 1ull << RB_F64 | 1ull << RB_I64;
  const rb::KernelSpec kernels[] = {{"add", rb::wrap<add>, 0, real},
                                    {"neg", rb::wrap<neg>, 0, real},
                                    {"relu", rb::wrap<relu>, 0, real},
                                    {"sign", rb::wrap<sign>, RB_K_CONTIGUOUS, real},
                                    {"cast", rb::wrap<cast>, 0, real | 1ull << RB_BOOL8},
                                    {"sum", rb::wrap<sum>, 0, real},
                                    {"amax", rb::wrap<amax>, 0, real},
                                    {"mm", rb::wrap<mm>, 0, real},
                                    {"scatter_add", rb::wrap<scatter_add>, 0, real}};
  return rb::add_kernels(host, txn, "planted", kernels);
}
const RbPlugin kPlugin = small::plugin("planted-plugin", init);

}  // namespace

extern "C" RB_EXPORT const RbPlugin* rabbet_plugin_v0() { return &kPlugin; }
