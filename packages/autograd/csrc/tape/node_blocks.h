// Memory of nodes. A thread keeps some of the nodes that it frees. The next node of the same layout
// reuses one of them, and its sizes and pointers need not be computed.
#pragma once
#include <new>

#include "node.h"

namespace tape {

/// The free nodes and the counts of a thread. Never freed: a new thread takes those of an ended
/// one.
struct ThreadNodes {
  static constexpr int kListBits = 8;
  static constexpr int kMostFree = 512;

  // Free nodes, by the hash of their layout. All nodes of a list have the layout of its first node.
  Node* lists[1 << kListBits] = {};
  int free = 0;  // nodes in all lists
  int most_free = kMostFree;
  // Nodes that this thread has made, minus those that it has destroyed. Only this thread writes it,
  // and only the sum over all threads is the number of live nodes.
  std::atomic<int64_t> live{0};
  // Nodes whose last reference went while another is being destroyed, linked through RbNode::next:
  // chains are unwound by a loop.
  Node* pending = nullptr;
  bool destroying = false;
  ThreadNodes* next = nullptr;         // in the list of all
  ThreadNodes* next_unused = nullptr;  // in the list of those whose thread has ended

  Node*& list(uint64_t layout) { return lists[layout * 0x9E3779B97F4A7C15u >> (64 - kListBits)]; }
  void count(int64_t by) {
    live.store(live.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
  }
};
extern __thread ThreadNodes* thread_nodes __attribute__((tls_model("initial-exec")))
__attribute__((visibility("hidden")));
ThreadNodes* make_thread_nodes();
inline ThreadNodes& own_nodes() {
  ThreadNodes* const own = thread_nodes;
  return __builtin_expect(own != nullptr, 1) ? *own : *make_thread_nodes();
}

constexpr size_t kRoomUnit = 32;  // the room for lists is a multiple of it
constexpr size_t kMostRoom = UINT16_MAX;

/// The sizes of a node as one number; 0 if they do not fit, and the node is not kept.
inline uint64_t layout_of(const NodeShape& s) {
  const size_t room = (s.extra + kRoomUnit - 1) / kRoomUnit;
  if (__builtin_expect(room > kMostRoom, 0)) return 0;
  return uint64_t{room} << 48 | uint64_t{s.saves_rets} << 47 |
         static_cast<uint64_t>(static_cast<uint32_t>(s.nrets)) << 32 |
         static_cast<uint32_t>(s.nargs) << 16 | static_cast<uint32_t>(s.nedges);
}

/// A new node with only the members after NodeState set. Null without memory.
Node* new_block(NodeShape shape, uint64_t layout);
/// The same, with the block of a free node if there is one.
[[gnu::always_inline]] inline Node* take_block(const NodeShape& shape, ThreadNodes& own) {
  const uint64_t layout = layout_of(shape);
  Node*& list = own.list(layout);
  Node* const n = list;
  if (__builtin_expect(!n || n->layout != layout, 0)) return new_block(shape, layout);
  list = n->next;
  --own.free;
  return n;
}

/// Free a node that does not fit into the lists, or make room for it.
void give_block_slowly(Node* n, ThreadNodes& own);
inline void give_block(Node* n, ThreadNodes& own) {
  Node*& list = own.list(n->layout);
  const bool fits = (!list || list->layout == n->layout) && n->layout && own.free < own.most_free;
  if (__builtin_expect(!fits, 0)) return give_block_slowly(n, own);
  n->next = list;
  list = n;
  ++own.free;
}

/// A node with empty edges, arguments and results; the RbMetas of edges and results are not set.
/// `*extra` is the room for lists. Null without memory.
[[gnu::always_inline]] inline Node* make_node(NodeKind kind, const NodeShape& shape, char** extra) {
  ThreadNodes& own = own_nodes();
  Node* const n = take_block(shape, own);
  if (__builtin_expect(!n, 0)) return nullptr;
  new (static_cast<NodeState*>(n)) NodeState;
  n->kind = kind;
  for (int i = 0; i < shape.nedges; ++i) n->edges[i].fn = nullptr;
  for (int i = 0; i < shape.nargs; ++i) n->args[i].tag = RB_NONE;
  for (int i = 0; shape.saves_rets && i < shape.nrets; ++i) n->outs[i].tag = RB_NONE;
  for (int i = 0; i < shape.nrets; ++i) {
    n->metas[i] = Meta{};
    n->grads[i] = nullptr;
  }
  *extra = n->extra;
  if (__builtin_expect(keeps_sources.load(std::memory_order_relaxed), 0)) note_source(n);
  own.count(1);
  return n;
}

}  // namespace tape
