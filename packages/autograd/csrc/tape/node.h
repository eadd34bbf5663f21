// Nodes of the tape and the per-tensor record that points to them.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "rabbet/autograd.h"
#include "rabbet/values.hpp"

namespace tape {

using rb::call1;
using rb::dtype_value;
using rb::host;
using rb::int_value;
using rb::ints_value;
using rb::Ref;
using rb::tensor_value;
using rb::ThreadGuard;

// Small calls read these: hidden visibility spares looking their addresses up.
extern int32_t layer __attribute__((visibility("hidden")));
extern int32_t slot __attribute__((visibility("hidden")));
extern uint32_t slot_offset __attribute__((visibility("hidden")));
extern uint64_t layer_key __attribute__((visibility("hidden")));

using Node = RbNode;
constexpr int kMaxArgs = RB_MAX_ARGS, kMaxRets = RB_MAX_RETS;  // of an operator

/// What a hook is called with. A run that goes on shares it: hooks may be removed by each other.
struct HookContext {
  HookContext(void* ctx, void (*del)(void*))
      : del(del), shared(ctx, [del](void* p) {
          if (del) del(p);
        }) {}
  void* get() const { return shared.get(); }
  void (*del)(void*);
  std::shared_ptr<void> shared;
};
struct GradHook {
  int64_t id;
  RbGradHook fn;
  HookContext ctx;
  bool after_accumulation;
};
struct NodeHook {
  int64_t id;
  RbNodeHook fn;
  HookContext ctx;
  bool before;
};
/// Guards all lists of hooks.
extern std::mutex hooks_mutex;
/// The hooks as they are now.
template <class Hook>
std::vector<Hook> copy_of(const std::vector<Hook>* hooks) {
  const std::lock_guard<std::mutex> lock(hooks_mutex);
  return hooks ? *hooks : std::vector<Hook>{};
}

/// What the tape knows of a tensor; the tensor's slot points to it. The records of a node's outputs
/// lie in the node.
struct Meta {
  Node* fn = nullptr;  // strong; null: a leaf
  Node* acc =
      nullptr;  // a leaf's accumulator, owned by this record; edges to it hold the leaf instead
  RbTensor* grad = nullptr;
  std::vector<GradHook>* hooks = nullptr;
  uint32_t output = 0;
  uint32_t version = 0;  // of the storage, when a view's history was made
  bool requires_grad = false, retains = false, embedded = false;
  bool rebased = false;  // the history came from a write in place
  bool shared = false;   // of a node's output: records of other tensors lead here, too
  // Levels of transforms around the code that asks for gradients: a call is recorded where it meets
  // values of no higher level than this.
  int16_t depth = 0;
};

struct Edge {
  Node* fn = nullptr;            // strong, or null where no gradient is wanted
  const RbMeta* meta = nullptr;  // shape and dtype of the edge's tensor, in the node's block
  uint32_t output = 0;
  int16_t arg = 0;  // index of the argument
};
/// What few nodes have: the line that made them, an object of the binding.
struct Notes {
  std::string source;
  void* object = nullptr;
  void (*del)(void*) = nullptr;
  ~Notes() {
    if (object && del) del(object);
  }
};
/// Where the gradient of a tensor flows: a node, held, and the number of its output.
struct Target {
  Node* fn;
  uint32_t output;
};

enum class NodeKind : uint8_t { kOp, kAccumulate, kViewWrite, kCustom, kNotDifferentiable, kFlat };

}  // namespace tape

namespace tape {

/// The members that are set anew in each node, also in a block that is reused.
struct NodeState {
  std::atomic<int32_t> refs{1};
  NodeKind kind{};
  bool released = false;  // the saved values were freed by a run without retain_graph
  bool holds = false;     // some of args and outs is owned
  uint16_t nest = 0;  // the outermost grad (counted from 1; 0: the plain tape) that can ask for it
  uint64_t seq = 0;   // see next_sequence
  void* stream = nullptr;  // of its forward; null: the default one
  const RbOp* op = nullptr;
  const RbOpInfo* info = nullptr;
  std::atomic<uint64_t> run{0};   // the run that has claimed `grads`; 0: none
  std::atomic<uint64_t> user{0};  // see NodeLock
  std::vector<NodeHook>* hooks = nullptr;
  Notes* notes = nullptr;
  // kAccumulate: the leaf (borrowed: it owns the node). kViewWrite: how the written view was made
  // (strong).
  RbTensor* tensor = nullptr;
  RbNode* next = nullptr;  // among nodes that wait to be destroyed, or free ones
  // kCustom
  RbCustomBackward custom = nullptr;
  void* ctx = nullptr;
  void (*ctx_del)(void*) = nullptr;
  std::string* name = nullptr;  // of kFlat too
};

}  // namespace tape

/// One recorded call. A block of its own: this header, then edges, saved values, output records.
struct RbNode : tape::NodeState {
  uint64_t layout;                // see layout_of; the members below follow from it
  uint32_t bytes;                 // of the block
  uint16_t nedges, nargs, nrets;  // nargs: 0 if the derivatives read no argument
  tape::Edge* edges;
  // What the derivatives read: owned tensors, or what a saved-tensors hook made of them
  // (RB_OBJECT: a tape::Packed), RbMeta, or plain values with their lists in this block; else none.
  RbValue* args;
  uint32_t* arg_versions;
  RbValue* outs;  // likewise results; null if none is saved
  uint32_t* out_versions;
  tape::Meta* metas;  // one per result
  RbMeta* out_metas;  // of each result
  RbTensor** grads;   // gradients of the results, in the run that has claimed them
  char* extra;        // room for lists, strings and sizes
};

namespace tape {

inline Meta* meta_of(const RbTensor* t) {
  return *reinterpret_cast<Meta* const*>(reinterpret_cast<const char*>(t) + slot_offset);
}
/// Where the gradient of a tensor with this record and what it retains are kept.
inline Meta* gradient_holder(Meta* m) { return m && m->fn ? &m->fn->metas[m->output] : m; }
inline bool is_recorded(const Meta* m) { return m && (m->fn || m->requires_grad); }

inline bool differentiable(int dtype) { return rb::is_differentiable(dtype); }
using rb::is_complex;

extern std::atomic<uint64_t> newest_sequence __attribute__((visibility("hidden")));

/// The sequence number of a new node whose inputs have numbers up to `inputs`: above those, and
/// above those of all nodes that were made before. Backward runs the newest nodes first. Threads
/// that record at once may get equal numbers, which no node and its inputs share.
inline uint64_t next_sequence(uint64_t inputs) {
  const uint64_t sequence = std::max(newest_sequence.load(std::memory_order_relaxed), inputs) + 1;
  newest_sequence.store(sequence, std::memory_order_relaxed);
  return sequence;
}

/// What make_node needs to lay out a block.
struct NodeShape {
  int nedges = 0, nargs = 0, nrets = 0;
  bool saves_rets = false;
  size_t extra = 0;  // bytes for lists, strings and sizes
};
void node_retain(Node* n);
/// Iterative: chains of any length.
void node_release(Node* n);
/// See RbAutograd.each_context and drop_hooks.
int32_t each_context(RbTensor* t, int32_t (*visit)(void*, void*, void (*)(void*)), void* arg);
void drop_hooks(RbTensor* t);
/// Free the tensors that the derivative reads, if it reads any; running the node again is an error
/// then.
void drop_saved(Node* n);
/// Whether new nodes remember the line that made them.
extern std::atomic<int32_t> keeps_sources __attribute__((visibility("hidden")));
void note_source(Node* n);
int64_t live_nodes();

/// The accumulator of a leaf whose record has none yet; null without memory.
Node* find_accumulator(RbTensor* t, Meta* m);
/// Where gradients of `t` flow: its node, or a leaf's accumulator; owned.
inline Target gradient_target(RbTensor* t) {
  Meta* const m = meta_of(t);
  if (!m) return Target{nullptr, 0};
  if (m->fn) {
    node_retain(m->fn);
    return Target{m->fn, m->output};
  }
  if (!m->requires_grad) return Target{nullptr, 0};
  Node* n = __atomic_load_n(&m->acc, __ATOMIC_ACQUIRE);
  if (__builtin_expect(!n, 0)) n = find_accumulator(t, m);
  if (__builtin_expect(!n, 0)) return Target{nullptr, 0};
  host->retain(t);  // an edge to an accumulator is a hold on its leaf
  return Target{n, 0};
}
/// Whether calls with `t` among their arguments, the highest of which has `level`, are recorded.
inline bool is_recorded_at(const Meta* m, int32_t level) {
  return is_recorded(m) && m->depth >= level;
}
/// The record of `t`, brought up to date if `t` is a view whose base was written; null: none.
Meta* current_meta(RbTensor* t, int32_t* status);
/// Give a view the history of the same view of `root`, its outermost base, as that is now.
int32_t renew_view_history(RbTensor* view, RbTensor* root);
/// That a write goes through a view that a user's function made, whose backward it would replace.
/// `what` was written: the view itself, or its base.
int32_t refuse_custom_view(const Node* function, uint32_t output, const char* what);
inline bool is_custom_view(const RbTensor* t, const Meta* m) {
  return (t->flags & RB_T_VIEW) && m && m->fn && m->fn->kind == NodeKind::kCustom;
}
/// Make `fn`'s result `output` the history of `t`, instead of what it had.
void set_history(RbTensor* t, Node* fn, uint32_t output);
Meta* new_meta(RbTensor* t);
/// Put `m` (null: nothing) in the place of the tensor's record; a leaf's accumulator moves along.
/// What the tensor retains and its gradient move to the new record; hooks stay with the old one.
void replace_meta(RbTensor* t, Meta* m, int32_t on);
/// The list that holds a hook which a write in place left behind, for the hook to be taken out;
/// null: there is none. Under hooks_mutex.
std::vector<GradHook>* forget_former_hook(int64_t id);
void delete_meta(void* meta);

inline void copy_meta(RbMeta& to, const RbTensor* t, char** extra) {
  auto* dims = reinterpret_cast<int64_t*>(*extra);
  const int n = t->ndim;
  *extra += n * sizeof(int64_t);
  for (int i = 0; i < n; ++i) dims[i] = t->shape[i];
  to = rb::meta_of(t);
  to.shape = dims;
}
/// A copy of shape and dtype in the room for lists: meta_bytes(t) bytes.
inline const RbMeta* new_meta_copy(const RbTensor* t, char** extra) {
  auto* meta = reinterpret_cast<RbMeta*>(*extra);
  *extra += sizeof(RbMeta);
  copy_meta(*meta, t, extra);
  return meta;
}
inline size_t meta_bytes(const RbTensor* t) { return sizeof(RbMeta) + t->ndim * sizeof(int64_t); }
/// Whether `t` has the shape, dtype and device of `like`, and so can share its RbMeta.
inline bool same_meta(const RbTensor* t, const RbTensor* like) {
  if (t->ndim != like->ndim || t->dtype_id != like->dtype_id || t->backend != like->backend ||
      t->device.id != like->device.id || t->layout != like->layout)
    return false;
  for (int i = 0; i < t->ndim; ++i) {
    if (t->shape[i] != like->shape[i]) return false;
  }
  return true;
}

int32_t fail(int32_t code, const char* format, ...) __attribute__((format(printf, 2, 3)));
/// A dtype as messages write it: "rabbet.float32".
std::string dtype_name(int32_t dtype);

}  // namespace tape
