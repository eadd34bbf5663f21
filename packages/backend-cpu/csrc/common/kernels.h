// Each family of kernels registers itself with one function.
#pragma once
#include "rabbet/plugin.hpp"

namespace rbcpu {

constexpr const char* kBackendName = "cpu";

using Family = int32_t (*)(const RbHost*, RbTxn*);
int32_t add_elementwise(const RbHost*, RbTxn*);
int32_t add_fused(const RbHost*, RbTxn*);
int32_t add_copy(const RbHost*, RbTxn*);
int32_t add_create(const RbHost*, RbTxn*);
int32_t add_random(const RbHost*, RbTxn*);
int32_t add_reduce(const RbHost*, RbTxn*);
int32_t add_minmax(const RbHost*, RbTxn*);
int32_t add_moments(const RbHost*, RbTxn*);
int32_t add_vector_norm(const RbHost*, RbTxn*);
int32_t add_norm(const RbHost*, RbTxn*);
int32_t add_batch_norm(const RbHost*, RbTxn*);
int32_t add_loss(const RbHost*, RbTxn*);
int32_t add_softmax(const RbHost*, RbTxn*);
int32_t add_along(const RbHost*, RbTxn*);
int32_t add_sort(const RbHost*, RbTxn*);
int32_t add_movement(const RbHost*, RbTxn*);
int32_t add_scatter(const RbHost*, RbTxn*);
int32_t add_index(const RbHost*, RbTxn*);
int32_t add_embedding(const RbHost*, RbTxn*);
int32_t add_search(const RbHost*, RbTxn*);
int32_t add_matmul(const RbHost*, RbTxn*);
int32_t add_conv(const RbHost*, RbTxn*);
int32_t add_pool(const RbHost*, RbTxn*);
int32_t add_resample(const RbHost*, RbTxn*);
int32_t add_grid_sample(const RbHost*, RbTxn*);
int32_t add_distance(const RbHost*, RbTxn*);
int32_t add_optim(const RbHost*, RbTxn*);
int32_t add_attention(const RbHost*, RbTxn*);
int32_t add_recurrent(const RbHost*, RbTxn*);
int32_t add_triangular(const RbHost*, RbTxn*);
int32_t add_lu(const RbHost*, RbTxn*);
int32_t add_orthogonal(const RbHost*, RbTxn*);
int32_t add_eigen(const RbHost*, RbTxn*);
int32_t add_singular(const RbHost*, RbTxn*);
int32_t add_symmetric(const RbHost*, RbTxn*);
int32_t add_fourier(const RbHost*, RbTxn*);

}  // namespace rbcpu
