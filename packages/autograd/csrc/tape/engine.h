#pragma once
#include "node.h"

namespace tape {

/// See RbAutograd.run. Runs of several threads go on beside each other, over shared nodes too, and
/// a hook may start a run inside a run.
int32_t run_backward(RbTensor* const* outputs, RbTensor* const* grads, int32_t noutputs,
                     RbTensor* const* inputs, int32_t ninputs, uint32_t flags, RbTensor** results);
extern std::atomic<int32_t> check_nan;
uint64_t current_run();
int32_t run_has_inputs();
void run_reaches(Node* const* nodes, int32_t n, uint8_t* out);
void watch_nodes(int32_t (*fn)(void*, Node*, RbTensor* const*, int32_t), void* ctx,
                 void (*del)(void*));
void* node_watcher(int32_t (*fn)(void*, Node*, RbTensor* const*, int32_t));
/// See RbAutograd.running_node.
Node* running_node();
uint32_t running_flags();

/// "MulBackward": the operator's name in the style of PyTorch's grad_fn.
const char* node_name(const Node* n);

}  // namespace tape
