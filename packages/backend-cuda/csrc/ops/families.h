// Kernels by families: each file registers its own.
#pragma once
#include "rabbet/plugin.hpp"

namespace rbcuda {

constexpr uint64_t bit(int dtype) { return uint64_t{1} << dtype; }
constexpr uint64_t kFloat = bit(RB_F16) | bit(RB_BF16) | bit(RB_F32) | bit(RB_F64);
constexpr uint64_t kInt = bit(RB_I8) | bit(RB_I16) | bit(RB_I32) | bit(RB_I64) | bit(RB_U8) |
                          bit(RB_U16) | bit(RB_U32) | bit(RB_U64);
constexpr uint64_t kReal = kFloat | kInt | bit(RB_BOOL8);
constexpr uint64_t kAll = kReal | bit(RB_C64) | bit(RB_C128);

int32_t add_attention(const RbHost* host, RbTxn* txn);
int32_t add_create(const RbHost* host, RbTxn* txn);
int32_t add_elementwise(const RbHost* host, RbTxn* txn);
int32_t add_eigen(const RbHost* host, RbTxn* txn);
int32_t add_fourier(const RbHost* host, RbTxn* txn);
int32_t add_index(const RbHost* host, RbTxn* txn);
int32_t add_order(const RbHost* host, RbTxn* txn);
int32_t add_random(const RbHost* host, RbTxn* txn);
int32_t add_recurrent(const RbHost* host, RbTxn* txn);
int32_t add_reduce(const RbHost* host, RbTxn* txn);
int32_t add_softmax(const RbHost* host, RbTxn* txn);
int32_t add_norm(const RbHost* host, RbTxn* txn);
int32_t add_loss(const RbHost* host, RbTxn* txn);
int32_t add_optim(const RbHost* host, RbTxn* txn);
int32_t add_orthogonal(const RbHost* host, RbTxn* txn);
int32_t add_pool(const RbHost* host, RbTxn* txn);
int32_t add_conv(const RbHost* host, RbTxn* txn);
int32_t add_scan(const RbHost* host, RbTxn* txn);
int32_t add_search(const RbHost* host, RbTxn* txn);
int32_t add_lu(const RbHost* host, RbTxn* txn);
int32_t add_matmul(const RbHost* host, RbTxn* txn);
int32_t add_scaled(const RbHost* host, RbTxn* txn);
int32_t add_movement(const RbHost* host, RbTxn* txn);
int32_t add_triangular(const RbHost* host, RbTxn* txn);

/// out = from, with a cast; `from` broadcasts.
void copy(const char* op, const RbTensor& out, const RbTensor& from);
/// out = the lower or upper triangle of x, bounded by a diagonal, and 0 elsewhere. `x` may be
/// `out`.
void triangle(const char* op, const RbTensor& out, const RbTensor& x, int64_t diagonal, bool lower);
/// out = the number at every position, plus `step` times the position.
void fill(const char* op, const RbTensor& out, const RbValue& start, const RbValue& step);

}  // namespace rbcuda
