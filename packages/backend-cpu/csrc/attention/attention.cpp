// Scaled-dot-product attention, tiled so that the scores are never stored (Dao et al. 2022): a tile
// of keys is packed once for a chunk of queries; softmax is taken online.
#include <limits>
#include <memory>

#include "attention/dropout.h"
#include "attention/matrices.h"
#include "common/kernels.h"
#include "matmul/gemm.h"
#include "matmul/tiles.h"

namespace rbcpu {

const TileTable& tile_table() { return RB_PICK_LEVEL(tile_table); }

namespace {

constexpr int64_t kChunk = 256;       // queries that share packed keys
constexpr int64_t kQueries = 32;      // of a tile, forward
constexpr int64_t kQueriesBack = 64;  // of a tile, backward
constexpr int64_t kKeys = 256;        // of a tile
constexpr double kTask = 1.5e6;       // flops that are worth a task

// The arguments and sizes of one call.
struct Problem {
  View q, k, v, mask, seed;
  bool masked, causal;
  Dropout dropout;
  int64_t length, keys, size, value_size;  // L, S, E, Ev
  double scale;

  Problem(const rb::Args& args, int first, int causal_at)
      : q(view_of(args.tensor(first))),
        k(view_of(args.tensor(first + 1))),
        v(view_of(args.tensor(first + 2))),
        masked(args.has(first + 3)),
        causal(args.boolean(causal_at)),
        dropout(dropout_by(args.real(causal_at + 3))),
        length(q.shape[q.ndim - 2]),
        keys(k.shape[k.ndim - 2]),
        size(q.shape[q.ndim - 1]),
        value_size(v.shape[v.ndim - 1]),
        scale(args.has(causal_at + 1) ? args.real(causal_at + 1)
                                      : 1.0 / std::sqrt(static_cast<double>(size))) {
    if (dropout.any()) seed = view_of(args.tensor(causal_at + 4));
    if (!masked) return;
    mask = view_of(args.tensor(first + 3));
    // Broadcast over queries and keys as over the batch.
    for (int back = 1; back <= 2; ++back) {
      if (mask.ndim < back) {
        for (int d = mask.ndim; d > 0; --d) {
          mask.shape[d] = mask.shape[d - 1];
          mask.strides[d] = mask.strides[d - 1];
        }
        ++mask.ndim;
        mask.shape[0] = 1;
      }
      const int d = mask.ndim - back;
      if (mask.shape[d] == 1) mask.strides[d] = 0;
    }
  }
  Dropout dropout_of(const View& batch, int batch_ndim, int64_t head) const {
    Dropout d = dropout_of_head(dropout, seed, batch, batch_ndim, head);
    d.columns = keys;
    return d;
  }
  /// Keys in [begin, begin + count) that query `i` may see.
  int64_t visible(int64_t i, int64_t begin, int64_t count) const {
    return causal ? std::clamp<int64_t>(i + 1 - begin, 0, count) : count;
  }
};

// A tile of the mask as numbers to add.
template <class T>
struct MaskTile {
  const T* data = nullptr;
  int64_t row = 0;

  MaskTile(const Problem& p, const View& batch, int batch_ndim, int64_t head, int64_t query,
           int64_t queries, int64_t key, int64_t keys, T* space) {
    if (!p.masked) return;
    const Matrix m(p.mask, head_offset(p.mask, 2, batch, batch_ndim, head));
    if (m.dtype == dtype_of<T> && m.column == 1) {
      data = reinterpret_cast<const T*>(m.data) + query * m.row + key;
      row = m.row;
      return;
    }
    const int64_t rows = m.row == 0 ? 1 : queries;  // one row that all queries share
    data = space;
    row = m.row == 0 ? 0 : keys;
    if (m.dtype == RB_BOOL8) {
      for (int64_t i = 0; i < rows; ++i) {
        const bool* from =
            reinterpret_cast<const bool*>(m.data) + (query + i) * m.row + key * m.column;
        for (int64_t j = 0; j < keys; ++j)
          space[i * keys + j] = from[j * m.column] ? T(0) : -std::numeric_limits<T>::infinity();
      }
      return;
    }
    View from = m.view(query, rows, keys);
    from.data += key * m.column * kItemSize[m.dtype];
    copy_view(plain_view(space, dtype_of<T>, rows, keys, keys), from);
  }
  const T* at(int64_t i) const { return data ? data + i * row : nullptr; }
};

int64_t grain_of(double flops) {
  return std::max<int64_t>(1, static_cast<int64_t>(kTask / (flops + 1)));
}

// ---- forward

template <class T>
struct ForwardSpace {
  int64_t score_row, out_row;
  rb::Scratch<T> keys, values, scores, out, top, total, mask, loaded_q, loaded_kv;
  rb::Scratch<uint8_t> kept;

  explicit ForwardSpace(const Problem& p, int64_t chunk, int64_t tile)
      : score_row(tile_padded(tile)),
        out_row(tile_padded(p.value_size)),
        keys(p.size * score_row),
        values(tile * out_row),
        scores(kQueries * score_row),
        out(chunk * out_row),
        top(chunk),
        total(chunk),
        mask(p.masked ? kQueries * tile : 0),
        loaded_q(p.q.dtype == dtype_of<T> ? 0 : kQueries * p.size),
        loaded_kv(p.k.dtype == dtype_of<T> ? 0 : tile * std::max(p.size, p.value_size)),
        kept(KeptTile::size(p.dropout.any(), kQueries, tile)) {}
};

// Queries [begin, begin + count) of one head.
template <class T>
void forward_chunk(const Problem& p, const View& out, const View& lse, int64_t head, int64_t begin,
                   int64_t count, int64_t tile, const ForwardSpace<T>& s) {
  const AttentionRows<T>& rows = rows_of<T>();
  const int batch = out.ndim - 2;
  const Matrix q(p.q, head_offset(p.q, 2, out, batch, head)),
      k(p.k, head_offset(p.k, 2, out, batch, head)), v(p.v, head_offset(p.v, 2, out, batch, head));
  for (int64_t i = 0; i < count; ++i) {
    s.top[i] = -std::numeric_limits<T>::infinity();
    s.total[i] = T(0);
  }
  for (int64_t i = 0; i < count * s.out_row; ++i) s.out[i] = T(0);
  const int64_t end = p.causal ? std::min(p.keys, begin + count) : p.keys;
  const Dropout dropout = p.dropout_of(out, batch, head);
  for (int64_t key = 0; key < end; key += tile) {
    const int64_t here = std::min(tile, end - key);
    {
      const Rows<T> from(k, key, here, p.size, s.loaded_kv.data());
      tile_pack(from.data, from.column, from.row, p.size, here, s.keys.data());
    }
    {
      const Rows<T> from(v, key, here, p.value_size, s.loaded_kv.data());
      tile_pack(from.data, from.row, from.column, here, p.value_size, s.values.data());
    }
    for (int64_t i0 = 0; i0 < count; i0 += kQueries) {
      const int64_t queries = std::min(kQueries, count - i0);
      const int64_t seen = p.visible(begin + i0 + queries - 1, key, here);
      if (seen == 0) continue;
      const Rows<T> from(q, begin + i0, queries, p.size, s.loaded_q.data());
      tile_multiply(TileProduct<T>{queries, seen, p.size, from.data, from.row, from.column,
                                   s.keys.data(), p.size, here, s.scores.data(), s.score_row,
                                   false});
      const MaskTile<T> mask(p, out, batch, head, begin + i0, queries, key, seen, s.mask.data());
      const KeptTile kept(dropout, begin + i0, queries, key, seen, s.kept.data());
      for (int64_t i = 0; i < queries; ++i) {
        T* scores = s.scores.data() + i * s.score_row;
        const T factor =
            rows.softmax(scores, mask.at(i), p.visible(begin + i0 + i, key, here), seen,
                         static_cast<T>(p.scale), &s.top[i0 + i], &s.total[i0 + i]);
        kept.drop(scores, i, seen, dropout.factor);
        T* gathered = s.out.data() + (i0 + i) * s.out_row;
        if (factor != T(1)) rows.scaled(gathered, gathered, s.out_row, factor);
      }
      tile_multiply(TileProduct<T>{queries, p.value_size, seen, s.scores.data(), s.score_row, 1,
                                   s.values.data(), here, p.value_size,
                                   s.out.data() + i0 * s.out_row, s.out_row, true});
    }
  }
  T* sums = reinterpret_cast<T*>(lse.data) + head_offset(lse, 1, out, batch, head);
  for (int64_t i = 0; i < count; ++i) {
    T* gathered = s.out.data() + i * s.out_row;
    const T total = s.total[i];
    rows.scaled(gathered, gathered, p.value_size, total == T(0) ? T(0) : T(1) / total);
    sums[(begin + i) * lse.strides[batch]] =
        total == T(0) ? -std::numeric_limits<T>::infinity() : s.top[i] + std::log(total);
  }
  const Matrix target(out, head_offset(out, 2, out, batch, head));
  copy_view(target.view(begin, count, p.value_size),
            plain_view(s.out.data(), dtype_of<T>, count, p.value_size, s.out_row));
}

template <class T>
void forward(const Problem& p, const View& out, const View& lse) {
  const int64_t heads = count_heads(out, 2);
  if (heads == 0 || p.length == 0) return;
  const int64_t chunk = std::min(kChunk, p.length), chunks = (p.length + chunk - 1) / chunk;
  const int64_t tile = std::min(kKeys, std::max<int64_t>(p.keys, 1));
  const double flops = 2.0 * static_cast<double>(chunk) * static_cast<double>(p.keys) *
                       static_cast<double>(p.size + p.value_size);
  rb::parallel_for(heads * chunks, grain_of(flops), [&](int64_t first, int64_t last) {
    const ForwardSpace<T> space(p, chunk, tile);
    for (int64_t job = first; job < last; ++job) {
      const int64_t begin = job % chunks * chunk;
      forward_chunk<T>(p, out, lse, job / chunks, begin, std::min(chunk, p.length - begin), tile,
                       space);
    }
  });
}

void attention_kernel(const rb::Args& args) {
  const Problem p(args, 0, 4);
  const View out = view_of(args.ret(0)), lse = view_of(args.ret(1));
  if (lse.dtype == RB_F64) {
    forward<double>(p, out, lse);
  } else {
    forward<float>(p, out, lse);
  }
}

// ---- backward

// Views of all operands; `batch` has the leading dimensions of `out`.
struct Gradients {
  Problem p;
  std::unique_ptr<rb::Scratch<char>> lse_copy, grad_lse_copy;
  View grad, out, lse, grad_lse, dq, dk, dv;
  bool has_grad_lse;
  int batch;      // number of leading dimensions
  int64_t group;  // heads of the query that share one of the key

  explicit Gradients(const rb::Args& args)
      : p(args, 2, 8),
        grad(view_of(args.tensor(0))),
        out(view_of(args.tensor(6))),
        lse(of_sums(args.tensor(7), out.dtype, lse_copy)),
        dq(view_of(args.ret(0))),
        dk(view_of(args.ret(1))),
        dv(view_of(args.ret(2))),
        has_grad_lse(args.has(1)),
        batch(out.ndim - 2),
        group(args.boolean(10) ? out.shape[batch - 1] / p.k.shape[p.k.ndim - 3] : 1) {
    if (has_grad_lse) grad_lse = of_sums(args.tensor(1), out.dtype, grad_lse_copy);
  }
  // `t` in the type of the sums: float64 of float64, else float32.
  static View of_sums(const RbTensor& t, int dtype, std::unique_ptr<rb::Scratch<char>>& copy) {
    const View v = view_of(t);
    const int sums = dtype == RB_F64 ? static_cast<int>(RB_F64) : static_cast<int>(RB_F32);
    if (v.dtype == sums) return v;
    copy = std::make_unique<rb::Scratch<char>>(v.numel() * kItemSize[sums]);
    const View made = dense_view(copy->data(), sums, v);
    copy_view(made, v);
    return made;
  }
  Matrix of(const View& v, int64_t head) const {
    return Matrix(v, head_offset(v, 2, out, batch, head));
  }
};

struct Range {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};

template <class T>
struct BackwardSpace {
  int64_t score_row, size_row, value_row;
  rb::Scratch<T> keys, keys_turned, values_turned, queries, grads, weights, score_grads, dq, dk, dv,
      delta, lse, mask, loaded_q, loaded_grad, loaded_kv;
  rb::Scratch<uint8_t> kept;

  BackwardSpace(const Gradients& g, int64_t tile, int64_t rows)
      : score_row(tile_padded(tile)),
        size_row(tile_padded(g.p.size)),
        value_row(tile_padded(g.p.value_size)),
        keys(tile * size_row),
        keys_turned(g.p.size * score_row),
        values_turned(g.p.value_size * score_row),
        queries(kQueriesBack * size_row),
        grads(kQueriesBack * value_row),
        weights(kQueriesBack * score_row),
        score_grads(kQueriesBack * score_row),
        dq(g.group * rows * size_row),
        dk(tile * size_row),
        dv(tile * value_row),
        delta(g.group * rows),
        lse(g.group * rows),
        mask(g.p.masked ? kQueriesBack * tile : 0),
        loaded_q(kQueriesBack * g.p.size),
        loaded_grad(kQueriesBack * g.p.value_size),
        loaded_kv(
            std::max(tile * std::max(g.p.size, g.p.value_size), kQueriesBack * g.p.value_size)),
        kept(KeptTile::size(g.p.dropout.any(), kQueriesBack, tile)) {}
};

// sum(grad * out) - grad_logsumexp and logsumexp for the queries in `range` of one head.
template <class T>
void row_sums(const Gradients& g, int64_t head, Range range, T* delta, T* lse,
              const BackwardSpace<T>& s) {
  const Matrix grad = g.of(g.grad, head), out = g.of(g.out, head);
  for (int64_t i0 = range.begin; i0 < range.end; i0 += kQueriesBack) {
    const int64_t n = std::min(kQueriesBack, range.end - i0);
    const Rows<T> x(grad, i0, n, g.p.value_size, s.loaded_grad.data(), true),
        y(out, i0, n, g.p.value_size, s.loaded_kv.data(), true);
    for (int64_t i = 0; i < n; ++i)
      delta[i0 - range.begin + i] =
          rows_of<T>().dot(x.data + i * x.row, y.data + i * y.row, g.p.value_size);
  }
  auto row = [&](const View& v) {
    return reinterpret_cast<const T*>(v.data) + head_offset(v, 1, g.out, g.batch, head) +
           range.begin * v.strides[g.batch];
  };
  const T* sums = row(g.lse);
  for (int64_t i = 0; i < range.size(); ++i) lse[i] = sums[i * g.lse.strides[g.batch]];
  if (!g.has_grad_lse) return;
  const T* more = row(g.grad_lse);
  for (int64_t i = 0; i < range.size(); ++i) delta[i] -= more[i * g.grad_lse.strides[g.batch]];
}

// What queries [i0, i0 + n) of one head give to the packed tile of `here` keys from `key` on, and
// it to them. `dq` is that of query i0; null if it is not wanted, and then dk and dv are.
template <class T>
void backward_tile(const Gradients& g, int64_t head, int64_t i0, int64_t n, int64_t key,
                   int64_t here, const T* delta, const T* lse, T* dq, bool want_keys,
                   const BackwardSpace<T>& s) {
  const Problem& p = g.p;
  const AttentionRows<T>& rows = rows_of<T>();
  const int64_t seen = p.visible(i0 + n - 1, key, here);
  if (seen == 0) return;
  const Rows<T> q(g.of(p.q, head), i0, n, p.size, s.loaded_q.data()),
      grad(g.of(g.grad, head), i0, n, p.value_size, s.loaded_grad.data());
  const T scale = static_cast<T>(p.scale);
  tile_multiply(TileProduct<T>{n, seen, p.size, q.data, q.row, q.column, s.keys_turned.data(),
                               p.size, here, s.weights.data(), s.score_row, false});
  const MaskTile<T> mask(p, g.out, g.batch, head, i0, n, key, seen, s.mask.data());
  for (int64_t i = 0; i < n; ++i)
    rows.weights(s.weights.data() + i * s.score_row, mask.at(i), p.visible(i0 + i, key, here), seen,
                 scale, lse[i]);
  tile_multiply(TileProduct<T>{n, seen, p.value_size, grad.data, grad.row, grad.column,
                               s.values_turned.data(), p.value_size, here, s.score_grads.data(),
                               s.score_row, false});
  const KeptTile kept(p.dropout_of(g.out, g.batch, head), i0, n, key, seen, s.kept.data());
  for (int64_t i = 0; i < n; ++i) {
    T *weights = s.weights.data() + i * s.score_row,
      *grads = s.score_grads.data() + i * s.score_row;
    kept.drop(grads, i, seen, p.dropout.factor);
    rows.score_grads(weights, grads, seen, delta[i], scale);
    kept.drop(weights, i, seen, p.dropout.factor);
  }
  if (dq) {
    tile_multiply(TileProduct<T>{n, p.size, seen, s.score_grads.data(), s.score_row, 1,
                                 s.keys.data(), here, p.size, dq, s.size_row, true});
  }
  if (!want_keys) return;
  tile_pack(grad.data, grad.row, grad.column, n, p.value_size, s.grads.data());
  tile_multiply(TileProduct<T>{seen, p.value_size, n, s.weights.data(), 1, s.score_row,
                               s.grads.data(), n, p.value_size, s.dv.data(), s.value_row, true});
  tile_pack(q.data, q.row, q.column, n, p.size, s.queries.data());
  tile_multiply(TileProduct<T>{seen, p.size, n, s.score_grads.data(), 1, s.score_row,
                               s.queries.data(), n, p.size, s.dk.data(), s.size_row, true});
}

// The heads that share head `shared` of the key: all pairs of the given queries and keys.
template <class T>
void backward_block(const Gradients& g, int64_t shared, Range queries, Range keys, int64_t tile,
                    bool want_queries, bool want_keys, const BackwardSpace<T>& s) {
  const Problem& p = g.p;
  const int64_t first = shared * g.group, rows = queries.size();
  for (int64_t h = 0; h < g.group; ++h)
    row_sums<T>(g, first + h, queries, s.delta.data() + h * rows, s.lse.data() + h * rows, s);
  if (want_queries) std::fill_n(s.dq.data(), g.group * rows * s.size_row, T(0));
  const Matrix k = g.of(p.k, first), v = g.of(p.v, first);
  for (int64_t key = keys.begin; key < keys.end; key += tile) {
    const int64_t here = std::min(tile, keys.end - key);
    {
      const Rows<T> from(k, key, here, p.size, s.loaded_kv.data());
      tile_pack(from.data, from.column, from.row, p.size, here, s.keys_turned.data());
      tile_pack(from.data, from.row, from.column, here, p.size, s.keys.data());
    }
    {
      const Rows<T> from(v, key, here, p.value_size, s.loaded_kv.data());
      tile_pack(from.data, from.column, from.row, p.value_size, here, s.values_turned.data());
    }
    std::fill_n(s.dk.data(), here * s.size_row, T(0));
    std::fill_n(s.dv.data(), here * s.value_row, T(0));
    for (int64_t h = 0; h < g.group; ++h) {
      for (int64_t i = 0; i < rows; i += kQueriesBack) {
        T* dq = s.dq.data() + (h * rows + i) * s.size_row;
        backward_tile<T>(g, first + h, queries.begin + i, std::min(kQueriesBack, rows - i), key,
                         here, s.delta.data() + h * rows + i, s.lse.data() + h * rows + i,
                         want_queries ? dq : nullptr, want_keys, s);
      }
    }
    if (!want_keys) continue;
    copy_view(g.of(g.dk, first).view(key, here, p.size),
              plain_view(s.dk.data(), dtype_of<T>, here, p.size, s.size_row));
    copy_view(g.of(g.dv, first).view(key, here, p.value_size),
              plain_view(s.dv.data(), dtype_of<T>, here, p.value_size, s.value_row));
  }
  for (int64_t h = 0; want_queries && h < g.group; ++h)
    copy_view(
        g.of(g.dq, first + h).view(queries.begin, rows, p.size),
        plain_view(s.dq.data() + h * rows * s.size_row, dtype_of<T>, rows, p.size, s.size_row));
}

template <class T>
void backward(const Gradients& g) {
  const Problem& p = g.p;
  const int64_t tasks = count_heads(g.out, 2) / g.group;
  if (tasks == 0) return;
  const int64_t tile = std::min(kKeys, std::max<int64_t>(p.keys, 1));
  const double flops = 2.0 * static_cast<double>(p.length) * static_cast<double>(p.keys) *
                       static_cast<double>(3 * p.size + 2 * p.value_size) *
                       static_cast<double>(g.group);
  const Range all_queries{0, p.length}, all_keys{0, p.keys};
  if (tasks >= 8 || p.length <= kChunk) {
    rb::parallel_for(tasks, grain_of(flops), [&](int64_t first, int64_t last) {
      const BackwardSpace<T> space(g, tile, p.length);
      for (int64_t i = first; i < last; ++i)
        backward_block<T>(g, i, all_queries, all_keys, tile, true, true, space);
    });
    return;
  }
  // Few heads: keys and queries in turn, so that there is something to share out.
  const int64_t tiles = (p.keys + tile - 1) / tile, chunks = (p.length + kChunk - 1) / kChunk;
  rb::parallel_for(tasks * tiles, 1, [&](int64_t first, int64_t last) {
    const BackwardSpace<T> space(g, tile, p.length);
    for (int64_t i = first; i < last; ++i) {
      const int64_t key = i % tiles * tile;
      backward_block<T>(g, i / tiles, all_queries, {key, std::min(p.keys, key + tile)}, tile, false,
                        true, space);
    }
  });
  rb::parallel_for(tasks * chunks, 1, [&](int64_t first, int64_t last) {
    const BackwardSpace<T> space(g, tile, kChunk);
    for (int64_t i = first; i < last; ++i) {
      const int64_t query = i % chunks * kChunk;
      backward_block<T>(g, i / chunks, {query, std::min(p.length, query + kChunk)}, all_keys, tile,
                        true, false, space);
    }
  });
}

void attention_backward_kernel(const rb::Args& args) {
  const Gradients g(args);
  if (g.lse.dtype == RB_F64) {
    backward<double>(g);
  } else {
    backward<float>(g);
  }
}

const rb::KernelSpec kKernels[] = {
    {"attention", rb::wrap<attention_kernel>, 0, kMaskFloat},
    {"attention_backward", rb::wrap<attention_backward_kernel>, 0, kMaskFloat},
};

}  // namespace

int32_t add_attention(const RbHost* host, RbTxn* txn) {
  const int32_t rc = rb::add_kernels(host, txn, kBackendName, kKernels);
  return rc == RB_OK ? add_attention_dropout(host, txn) : rc;
}

}  // namespace rbcpu
