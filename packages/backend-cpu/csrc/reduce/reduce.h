// The reduction engine: any dimensions, any strides, one order of summation whatever the number of
// threads.
//
// An Op<T> supplies   Acc, identity(), step(acc, x, index), merge(acc, later), finish(acc, count)
// -> result, block(acc, x, n, index) for n contiguous elements, and columns(acc, x, stride, rows,
// cols, index) for outputs that lie side by side (step_columns, where nothing is better). Elements
// are visited in row-major order of the reduced dimensions, cut into chunks whose number follows
// from the shape alone; chunks are merged in order.
#pragma once
#include <algorithm>
#include <vector>

#include "common/view.h"
#include "reduce/rows.h"

namespace rbcpu {

/// The dimensions of `x` split into kept ones (with the result's strides) and reduced ones, size-1
/// and mergeable ones gone.
struct Reduction {
  const char* data;
  int nk = 0, nr = 0;
  int64_t kept_shape[kMaxDims], kept_in[kMaxDims], kept_out[2][kMaxDims];
  int64_t red_shape[kMaxDims], red_in[kMaxDims];
  int64_t outputs = 1, count = 1;

  /// reduced[d] says whether dimension d goes. `outs` have the kept dimensions, or all with size 1
  /// (keepdim).
  Reduction(const View& x, const bool* reduced, const RbTensor* const* outs, int nouts);

 private:
  void merge_kept(int nouts);
  void merge_reduced();
};

/// Marks the dimensions of a `dim` argument: None and an empty list mean all.
void mark_dims(const rb::Args& a, int arg, int ndim, bool* reduced);
/// For reductions without an identity: raise if there are results but nothing to reduce.
void check_not_empty(const char* op, const Reduction& r);

constexpr int64_t kReduceBlock = 512;     // elements gathered at a time
constexpr int64_t kRowChunk = 16384;      // reduced elements per chunk, when outputs are few
constexpr int64_t kColumns = 512;         // outputs that run side by side
constexpr int64_t kColumnRows = 128;      // rows of them at a time: they stay in the cache
constexpr int64_t kColumnChunk = 131072;  // elements per chunk of columns

// n contiguous elements in the type that computes.
template <class T>
void widen_run(const T* from, int64_t n, compute_t<T>* to) {
  if constexpr (std::is_same_v<T, BF16>) {
    row_table().widen_bf16(&from->bits, to, n);
  } else if constexpr (std::is_same_v<T, F16>) {
    row_table().widen_f16(&from->bits, to, n);
  } else {
    for (int64_t i = 0; i < n; ++i) to[i] = compute_t<T>(from[i]);
  }
}
template <class T>
void narrow_run(const compute_t<T>* from, int64_t n, T* to) {
  if constexpr (std::is_same_v<T, BF16>) {
    row_table().narrow_bf16(from, &to->bits, n);
  } else if constexpr (std::is_same_v<T, F16>) {
    row_table().narrow_f16(from, &to->bits, n);
  } else {
    for (int64_t i = 0; i < n; ++i) to[i] = T(from[i]);
  }
}

// Offset of index `i` of a row-major space.
inline int64_t offset_at(int64_t i, int n, const int64_t* shape, const int64_t* strides) {
  if (n == 0) return 0;
  int64_t offset = 0;
  for (int d = n - 1; d > 0; --d) {
    offset += i % shape[d] * strides[d];
    i /= shape[d];
  }
  return offset + i * strides[0];
}

/// Call f(offset, run length, first index) for the runs of the innermost reduced dimension in
/// [begin, end).
template <class F>
void walk_reduced(const Reduction& r, int64_t begin, int64_t end, const F& f) {
  if (begin >= end) return;
  if (r.nr == 0) return f(int64_t{0}, end - begin, begin);
  const int inner = r.nr - 1;
  int64_t index[kMaxDims], rest = begin, base = 0;
  for (int d = inner; d >= 0; --d) {
    index[d] = rest % r.red_shape[d];
    rest /= r.red_shape[d];
    if (d < inner) base += index[d] * r.red_in[d];
  }
  for (int64_t at = begin; at < end;) {
    const int64_t n = std::min(r.red_shape[inner] - index[inner], end - at);
    f(base + index[inner] * r.red_in[inner], n, at);
    at += n;
    index[inner] = 0;
    for (int d = inner - 1; d >= 0; --d) {
      base += r.red_in[d];
      if (++index[d] < r.red_shape[d]) break;
      base -= r.red_shape[d] * r.red_in[d];
      index[d] = 0;
    }
  }
}

template <class T, class Op>
void reduce_row(const Reduction& r, const T* x, int64_t begin, int64_t end, typename Op::Acc& acc) {
  using C = compute_t<T>;
  const int64_t stride = r.nr ? r.red_in[r.nr - 1] : 0;
  walk_reduced(r, begin, end, [&](int64_t offset, int64_t n, int64_t index) {
    const T* from = x + offset;
    if constexpr (std::is_same_v<T, C>) {
      if (stride == 1) return Op::block(acc, from, n, index);
    }
    if (n < 8) {
      for (int64_t i = 0; i < n; ++i) Op::step(acc, C(from[i * stride]), index + i);
      return;
    }
    C buffer[kReduceBlock];
    for (int64_t done = 0; done < n; done += kReduceBlock) {
      const int64_t m = std::min(kReduceBlock, n - done);
      const T* p = from + done * stride;
      if (stride == 1) {
        widen_run(p, m, buffer);
      } else {
        for (int64_t i = 0; i < m; ++i) buffer[i] = C(p[i * stride]);
      }
      Op::block(acc, buffer, m, index + done);
    }
  });
}

template <class Op, class Acc, class C>
void step_columns(Acc* acc, const C* x, int64_t stride, int64_t rows, int64_t cols, int64_t index) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) Op::step(acc[j], x[i * stride + j], index + i);
  }
}

template <class T, class Op>
void reduce_columns(const Reduction& r, const T* x, int64_t cols, int64_t begin, int64_t end,
                    typename Op::Acc* acc) {
  using C = compute_t<T>;
  const int64_t stride = r.nr ? r.red_in[r.nr - 1] : 0;
  rb::Scratch<C> buffer(is_half_v<T> ? kColumnRows * cols : 0);
  walk_reduced(r, begin, end, [&](int64_t offset, int64_t n, int64_t index) {
    for (int64_t done = 0; done < n; done += kColumnRows) {
      const int64_t rows = std::min(kColumnRows, n - done);
      const T* from = x + offset + done * stride;
      if constexpr (is_half_v<T>) {
        for (int64_t i = 0; i < rows; ++i)
          widen_run(from + i * stride, cols, buffer.data() + i * cols);
        Op::columns(acc, buffer.data(), cols, rows, cols, index + done);
      } else {
        Op::columns(acc, from, stride, rows, cols, index + done);
      }
    }
  });
}

/// Run the reduction; write(output offsets' index, acc) stores one result: write(k, acc), k a
/// row-major kept index.
template <class T, class Op, class Write>
void reduce(const Reduction& r, const Write& write) {
  using Acc = typename Op::Acc;
  if (r.outputs == 0) return;
  const T* data = reinterpret_cast<const T*>(r.data);
  const bool inner_run = r.nr > 0 && r.red_in[r.nr - 1] == 1;
  const bool by_column = r.nk > 0 && r.kept_in[r.nk - 1] == 1 && !inner_run &&
                         r.kept_shape[r.nk - 1] >= 4 && r.count > 1;
  const int64_t width = by_column ? r.kept_shape[r.nk - 1] : 1;
  const int64_t strips = by_column ? (width + kColumns - 1) / kColumns : 1;
  const int64_t units = r.outputs / width * strips;
  const int64_t chunk =
      by_column ? std::max(kColumnRows, kColumnChunk / std::min(width, kColumns)) : kRowChunk;
  const int64_t chunks = units >= 64 ? 1 : std::max<int64_t>(1, (r.count + chunk - 1) / chunk);
  std::vector<Acc> partial;
  if (chunks > 1) partial.assign(r.outputs * chunks, Op::identity());
  const int64_t job_size =
      std::max<int64_t>(1, r.count / chunks * (by_column ? std::min(width, kColumns) : 1));
  const bool plain_rows = r.nr == 1 && r.red_in[0] == 1;
  auto write_part = [&](int64_t output, int64_t part, const Acc& acc) {
    if (chunks > 1) {
      partial[output * chunks + part] = acc;
    } else {
      write(output, acc);
    }
  };
  rb::parallel_for(
      units * chunks, std::max<int64_t>(1, kGrain / job_size), [&](int64_t first, int64_t last) {
        for (int64_t job = first; job < last; ++job) {
          const int64_t unit = job / chunks, part = job % chunks;
          const int64_t begin = r.count * part / chunks, end = r.count * (part + 1) / chunks;
          if (by_column) {
            const int64_t j0 = unit % strips * kColumns, cols = std::min(kColumns, width - j0);
            const int64_t k = unit / strips * width + j0;
            Acc acc[kColumns];
            for (int64_t j = 0; j < cols; ++j) acc[j] = Op::identity();
            reduce_columns<T, Op>(r, data + offset_at(k, r.nk, r.kept_shape, r.kept_in), cols,
                                  begin, end, acc);
            for (int64_t j = 0; j < cols; ++j) write_part(k + j, part, acc[j]);
          } else {
            Acc acc = Op::identity();
            if constexpr (std::is_same_v<T, compute_t<T>>) {
              if (plain_rows) {
                Op::block(acc, data + offset_at(unit, r.nk, r.kept_shape, r.kept_in) + begin,
                          end - begin, begin);
                write_part(unit, part, acc);
                continue;
              }
            }
            reduce_row<T, Op>(r, data + offset_at(unit, r.nk, r.kept_shape, r.kept_in), begin, end,
                              acc);
            write_part(unit, part, acc);
          }
        }
      });
  if (chunks == 1) return;
  for (int64_t k = 0; k < r.outputs; ++k) {
    Acc* parts = &partial[k * chunks];
    for (int64_t step = 1; step < chunks; step *= 2) {  // pairwise, neighbours first
      for (int64_t i = 0; i + step < chunks; i += 2 * step) Op::merge(parts[i], parts[i + step]);
    }
    write(k, parts[0]);
  }
}

/// The usual case: one result of type R per output.
template <class T, class Op, class R>
void reduce_to(const Reduction& r, RbTensor& out) {
  R* data = static_cast<R*>(out.data);
  reduce<T, Op>(r, [&](int64_t k, const typename Op::Acc& acc) {
    data[offset_at(k, r.nk, r.kept_shape, r.kept_out[0])] = R(Op::finish(acc, r.count));
  });
}

}  // namespace rbcpu
