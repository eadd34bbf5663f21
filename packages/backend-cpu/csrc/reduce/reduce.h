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

#include "reduce/elements.h"

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

constexpr int64_t kColumns = 512;         // outputs that run side by side
constexpr int64_t kColumnRows = 128;      // rows of them at a time: they stay in the cache
constexpr int64_t kColumnChunk = 131072;  // elements per chunk of columns

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

// n elements from `offset` on, `stride` apart.
template <class Op, class In>
void fold_run(const In& in, int64_t offset, int64_t stride, int64_t n, int64_t index,
              typename Op::Acc& acc) {
  using C = typename In::C;
  if constexpr (In::kDirect) {
    if (stride == 1) return Op::block(acc, in.at(offset), n, index);
  }
  C few[kReduceBlock];
  if (n < 8) {
    in.read(offset, stride, n, few);
    for (int64_t i = 0; i < n; ++i) Op::step(acc, few[i], index + i);
    return;
  }
  const auto fold_pieces = [&](C* buffer, int64_t most) {
    for (int64_t done = 0; done < n; done += most) {
      const int64_t m = std::min(most, n - done);
      in.read(offset + done * stride, stride, m, buffer);
      Op::block(acc, buffer, m, index + done);
    }
  };
  const int64_t most = stride == 1 ? In::kPiece : kReduceBlock;
  if (n <= kReduceBlock || most == kReduceBlock) return fold_pieces(few, kReduceBlock);
  const rb::Scratch<C> buffer(std::min(n, most));
  fold_pieces(buffer.data(), most);
}

template <class Op, class In>
void reduce_row(const Reduction& r, const In& in, int64_t base, int64_t begin, int64_t end,
                typename Op::Acc& acc) {
  const int64_t stride = r.nr ? r.red_in[r.nr - 1] : 0;
  walk_reduced(r, begin, end, [&](int64_t offset, int64_t n, int64_t index) {
    fold_run<Op>(in, base + offset, stride, n, index, acc);
  });
}

template <class Op, class Acc, class C>
void step_columns(Acc* acc, const C* x, int64_t stride, int64_t rows, int64_t cols, int64_t index) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) Op::step(acc[j], x[i * stride + j], index + i);
  }
}

template <class Op, class In>
void reduce_columns(const Reduction& r, const In& in, int64_t base, int64_t cols, int64_t begin,
                    int64_t end, typename Op::Acc* acc) {
  using C = typename In::C;
  const int64_t stride = r.nr ? r.red_in[r.nr - 1] : 0;
  rb::Scratch<C> buffer(In::kDirect ? 0 : kColumnRows * cols);
  walk_reduced(r, begin, end, [&](int64_t offset, int64_t n, int64_t index) {
    for (int64_t done = 0; done < n; done += kColumnRows) {
      const int64_t rows = std::min(kColumnRows, n - done);
      const int64_t from = base + offset + done * stride;
      if constexpr (In::kDirect) {
        Op::columns(acc, in.at(from), stride, rows, cols, index + done);
      } else {
        for (int64_t i = 0; i < rows; ++i)
          in.read(from + i * stride, 1, cols, buffer.data() + i * cols);
        Op::columns(acc, buffer.data(), cols, rows, cols, index + done);
      }
    }
  });
}

/// Run the reduction over the elements `in`; write(k, acc) stores one result, k a row-major kept
/// index.
template <class Op, class In, class Write>
void reduce_elements(const Reduction& r, const In& in, const Write& write) {
  using Acc = typename Op::Acc;
  if (r.outputs == 0) return;
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
            reduce_columns<Op>(r, in, offset_at(k, r.nk, r.kept_shape, r.kept_in), cols, begin, end,
                               acc);
            for (int64_t j = 0; j < cols; ++j) write_part(k + j, part, acc[j]);
          } else {
            Acc acc = Op::identity();
            const int64_t base = offset_at(unit, r.nk, r.kept_shape, r.kept_in);
            if (plain_rows) {
              fold_run<Op>(in, base + begin, 1, end - begin, begin, acc);
            } else {
              reduce_row<Op>(r, in, base, begin, end, acc);
            }
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

/// The same of elements of type T.
template <class T, class Op, class Write>
void reduce(const Reduction& r, const Write& write) {
  reduce_elements<Op>(r, Native<T>(r.data), write);
}

/// The usual case: one result of type R per output.
template <class Op, class R, class In>
void reduce_to(const Reduction& r, const In& in, RbTensor& out) {
  R* data = static_cast<R*>(out.data);
  reduce_elements<Op>(r, in, [&](int64_t k, const typename Op::Acc& acc) {
    data[offset_at(k, r.nk, r.kept_shape, r.kept_out[0])] = R(Op::finish(acc, r.count));
  });
}

}  // namespace rbcpu
