#include "node_blocks.h"

#include <pthread.h>

namespace tape {

__thread ThreadNodes* thread_nodes = nullptr;

namespace {

std::mutex mutex;               // guards both lists
ThreadNodes* all = nullptr;     // by `next`
ThreadNodes* unused = nullptr;  // by `next_unused`

// A forked child gets a new mutex: the thread that holds this one is not in the child.
[[maybe_unused]] const int fork_handler =
    pthread_atfork(nullptr, nullptr, [] { new (&mutex) std::mutex; });

void drop(Node*& list, ThreadNodes& own) {
  while (Node* n = list) {
    list = n->next;
    --own.free;
    host->block_free(n, n->bytes);
  }
}

__thread bool thread_ended __attribute__((tls_model("initial-exec"))) = false;

// Frees the nodes that its thread kept when the thread ends. Later, the thread keeps none.
struct Keeper {
  ThreadNodes* own = nullptr;
  ~Keeper() {
    if (!own) return;
    own->most_free = 0;
    for (Node*& list : own->lists) drop(list, *own);
    thread_nodes = nullptr;
    thread_ended = true;
    const std::lock_guard<std::mutex> lock(mutex);
    own->next_unused = unused;
    unused = own;
  }
};
thread_local Keeper keeper;

template <class T>
T* carve(char*& at, size_t n) {
  T* p = reinterpret_cast<T*>(at);
  at += (n * sizeof(T) + 7) / 8 * 8;
  return p;
}
constexpr size_t padded(size_t bytes) { return (bytes + 7) / 8 * 8; }

}  // namespace

ThreadNodes* make_thread_nodes() {
  const std::lock_guard<std::mutex> lock(mutex);
  ThreadNodes* own = unused;
  if (own) {
    unused = own->next_unused;
  } else {
    own = new ThreadNodes;
    own->next = all;
    all = own;
  }
#if defined(__SANITIZE_ADDRESS__)
  constexpr bool keeps = false;  // the sanitizer has to see each free
#else
  constexpr bool keeps = true;
#endif
  own->most_free = keeps && !thread_ended ? ThreadNodes::kMostFree : 0;
  if (!thread_ended) keeper.own = own;
  return thread_nodes = own;
}

int64_t live_nodes() {
  const std::lock_guard<std::mutex> lock(mutex);
  int64_t total = 0;
  for (ThreadNodes* t = all; t; t = t->next) total += t->live.load(std::memory_order_relaxed);
  return total;
}

Node* new_block(NodeShape s, uint64_t layout) {
  const size_t kept_rets = s.saves_rets ? s.nrets : 0;
  const size_t room = (s.extra + kRoomUnit - 1) / kRoomUnit * kRoomUnit;
  const size_t bytes = sizeof(Node) + s.nedges * sizeof(Edge) + s.nargs * sizeof(RbValue) +
                       padded(s.nargs * sizeof(uint32_t)) + kept_rets * sizeof(RbValue) +
                       padded(kept_rets * sizeof(uint32_t)) +
                       s.nrets * (sizeof(Meta) + sizeof(RbMeta) + sizeof(RbTensor*)) + room;
  char* const block = static_cast<char*>(host->block_alloc(bytes));
  if (!block) return nullptr;
  char* at = block + sizeof(Node);
  Node* n = new (block) Node;
  n->layout = layout;
  n->bytes = static_cast<uint32_t>(bytes);
  n->nedges = static_cast<uint16_t>(s.nedges);
  n->nargs = static_cast<uint16_t>(s.nargs);
  n->nrets = static_cast<uint16_t>(s.nrets);
  n->edges = carve<Edge>(at, s.nedges);
  n->args = carve<RbValue>(at, s.nargs);
  n->arg_versions = carve<uint32_t>(at, s.nargs);
  n->outs = kept_rets ? carve<RbValue>(at, kept_rets) : nullptr;
  n->out_versions = kept_rets ? carve<uint32_t>(at, kept_rets) : nullptr;
  n->metas = carve<Meta>(at, s.nrets);
  n->out_metas = carve<RbMeta>(at, s.nrets);
  n->grads = carve<RbTensor*>(at, s.nrets);
  n->extra = at;
  return n;
}

void give_block_slowly(Node* n, ThreadNodes& own) {
  if (!n->layout || own.free >= own.most_free) return host->block_free(n, n->bytes);
  Node*& list = own.list(n->layout);
  drop(list, own);
  n->next = nullptr;
  list = n;
  ++own.free;
}

}  // namespace tape
