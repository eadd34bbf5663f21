// Cells of recurrent networks: LSTM (Hochreiter and Schmidhuber 1997), GRU (Cho et al. 2014, reset
// after the product), tanh and relu.
#include "common/level.h"
#include "common/scalar.h"
#include "recurrent/recurrent_rows.h"

namespace {

using rbcpu::CellBackward;
using rbcpu::CellForward;

template <class T>
RB_INLINE void sigmoid_of_sum(const T* a, const T* b, T* to, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) to[i] = T(1) / (T(1) + s_exp(-(a[i] + b[i])));
}
template <class T>
RB_INLINE void tanh_of_sum(const T* a, const T* b, T* to, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) to[i] = s_tanh(a[i] + b[i]);
}

// Gates: input, forget, cell, output.
template <class T>
void lstm(const CellForward<T>& s, int64_t n) {
  sigmoid_of_sum(s.product, s.x, s.saved, 2 * n);
  tanh_of_sum(s.product + 2 * n, s.x + 2 * n, s.saved + 2 * n, n);
  sigmoid_of_sum(s.product + 3 * n, s.x + 3 * n, s.saved + 3 * n, n);
  const T *in = s.saved, *forget = in + n, *cell = in + 2 * n, *out = in + 3 * n;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const T c = forget[i] * s.c[i] + in[i] * cell[i];
    s.c[i] = c;
    s.h[i] = out[i] * s_tanh(c);
  }
}

template <class T, bool Extra>
RB_INLINE void lstm_back(const CellBackward<T>& s, int64_t n) {
  const T *in = s.saved, *forget = in + n, *cell = in + 2 * n, *out = in + 3 * n;
  const T* extra = s.grad_saved;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const T t = s_tanh(s.c[i]), dh = s.dh[i];
    const T dc = s.dc[i] + dh * out[i] * (T(1) - t * t);
    T d_in = dc * cell[i], d_forget = dc * s.c_before[i], d_cell = dc * in[i], d_out = dh * t;
    if constexpr (Extra) {
      d_in += extra[i];
      d_forget += extra[n + i];
      d_cell += extra[2 * n + i];
      d_out += extra[3 * n + i];
    }
    s.dx[i] = d_in * in[i] * (T(1) - in[i]);
    s.dx[n + i] = d_forget * forget[i] * (T(1) - forget[i]);
    s.dx[2 * n + i] = d_cell * (T(1) - cell[i] * cell[i]);
    s.dx[3 * n + i] = d_out * out[i] * (T(1) - out[i]);
    s.dc[i] = dc * forget[i];
    s.dh[i] = T(0);
  }
}
template <class T>
void lstm_backward(const CellBackward<T>& s, int64_t n) {
  s.grad_saved ? lstm_back<T, true>(s, n) : lstm_back<T, false>(s, n);
}

// Gates: reset, update, new; saved besides: the product's part of `new`.
template <class T>
void gru(const CellForward<T>& s, int64_t n) {
  sigmoid_of_sum(s.product, s.x, s.saved, 2 * n);
  const T *reset = s.saved, *update = reset + n, *product = s.product + 2 * n, *x = s.x + 2 * n;
  T *fresh = s.saved + 2 * n, *kept = s.saved + 3 * n;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const T f = s_tanh(x[i] + reset[i] * product[i]);
    kept[i] = product[i];
    fresh[i] = f;
    s.h[i] = f + update[i] * (s.h[i] - f);
  }
}

template <class T, bool Extra>
RB_INLINE void gru_back(const CellBackward<T>& s, int64_t n) {
  const T *reset = s.saved, *update = reset + n, *fresh = reset + 2 * n, *kept = reset + 3 * n;
  const T* extra = s.grad_saved;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const T dh = s.dh[i], r = reset[i], z = update[i], f = fresh[i];
    T d_update = dh * (s.h_before[i] - f), d_fresh = dh * (T(1) - z);
    if constexpr (Extra) {
      d_update += extra[n + i];
      d_fresh += extra[2 * n + i];
    }
    const T inner = d_fresh * (T(1) - f * f);
    T d_reset = inner * kept[i], d_kept = inner * r;
    if constexpr (Extra) {
      d_reset += extra[i];
      d_kept += extra[3 * n + i];
    }
    s.dx[i] = s.dproduct[i] = d_reset * r * (T(1) - r);
    s.dx[n + i] = s.dproduct[n + i] = d_update * z * (T(1) - z);
    s.dx[2 * n + i] = inner;
    s.dproduct[2 * n + i] = d_kept;
    s.dh[i] = dh * z;
  }
}
template <class T>
void gru_backward(const CellBackward<T>& s, int64_t n) {
  s.grad_saved ? gru_back<T, true>(s, n) : gru_back<T, false>(s, n);
}

template <class T>
void tanh_cell(const CellForward<T>& s, int64_t n) {
  tanh_of_sum(s.product, s.x, s.h, n);
}
template <class T>
void tanh_backward(const CellBackward<T>& s, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    s.dx[i] = s.dh[i] * (T(1) - s.h[i] * s.h[i]);
    s.dh[i] = T(0);
  }
}
template <class T>
void relu_cell(const CellForward<T>& s, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const T y = s.product[i] + s.x[i];
    s.h[i] = y <= T(0) ? T(0) : y;  // NaN passes
  }
}
template <class T>
void relu_backward(const CellBackward<T>& s, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    s.dx[i] = s.h[i] <= T(0) ? T(0) : s.dh[i];
    s.dh[i] = T(0);
  }
}

template <class T>
constexpr rbcpu::Cells<T> kCells = {{lstm<T>, lstm_backward<T>},
                                    {gru<T>, gru_backward<T>},
                                    {tanh_cell<T>, tanh_backward<T>},
                                    {relu_cell<T>, relu_backward<T>}};

}  // namespace

namespace rbcpu {
extern const RecurrentTable RB_LEVEL_NAME(recurrent_table) = {kCells<float>, kCells<double>};
}
