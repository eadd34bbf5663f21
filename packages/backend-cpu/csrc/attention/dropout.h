// Dropout of attention's weights: which are kept follows from a seed (rabbet/philox.h).
#pragma once
#include "attention/matrices.h"
#include "rabbet/plugin.hpp"

namespace rbcpu {

/// Without a seed, for the probability `p`.
Dropout dropout_by(double p);
/// Of matrix `index` of `batch` (its leading dimensions). Each seed counts its matrices.
Dropout dropout_of_head(Dropout d, const View& seed, const View& batch, int batch_ndim,
                        int64_t index);

/// Which weights of a tile are kept.
struct KeptTile {
  const uint8_t* data = nullptr;
  int64_t row = 0;

  KeptTile(const Dropout& d, int64_t query, int64_t queries, int64_t key, int64_t keys,
           uint8_t* space)
      : row((keys + 15) / 16 * 16) {
    if (!d.any()) return;
    RB_PICK_LEVEL(attention_table).kept(d, query, queries, key, keys, space, row);
    data = space;
  }
  static int64_t size(bool any, int64_t queries, int64_t keys) {
    return any ? (queries + 15) / 16 * 16 * ((keys + 15) / 16 * 16) : 0;
  }
  template <class T>
  void drop(T* x, int64_t i, int64_t n, double factor) const {
    if (data) rows_of<T>().drop(x, data + i * row, n, static_cast<T>(factor));
  }
};

int32_t add_attention_dropout(const RbHost* host, RbTxn* txn);

}  // namespace rbcpu
