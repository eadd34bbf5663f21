// How calls are recorded: which arguments need it, what the derivatives read, and the node.
#pragma once
#include <algorithm>

#include "grad_level.h"
#include "node.h"
#include "node_blocks.h"
#include "observers.h"
#include "saved.h"

namespace tape {

/// The recorded arguments of a call of `level`, one bit each; their number, in which each tensor of
/// a list counts; and the depth of the results.
struct Recorded {
  int32_t level;
  uint64_t need = 0;
  int32_t count = 0;
  int16_t depth = 0;
  void add(const RbTensor* t, int32_t i) {
    if (!(t->keys[0] & layer_key)) return;
    const Meta* m = meta_of(t);
    if (!is_recorded_at(m, level)) return;
    need |= 1ull << i;
    ++count;
    depth = std::max(depth, m->depth);
  }
};

/// What the derivatives of the wanted arguments read, one bit each: the arguments and the results
/// whose values they read, and the arguments that they mention at all.
struct Reads {
  uint64_t save_args = 0, save_rets = 0, args = 0;
  uint32_t flags = 0;  // RB_ARG_* of the wanted arguments
  Reads(const RbOpInfo* info, uint64_t need) {
    for (uint64_t rest = need; rest; rest &= rest - 1) {
      const RbArgInfo& a = *RB_ARG(info, __builtin_ctzll(rest));
      save_args |= a.saves_args;
      save_rets |= a.saves_rets;
      args |= a.reads_args;
      flags |= a.flags;
    }
  }
  /// The arguments whose shape and dtype are kept, one bit each.
  uint64_t metas(uint64_t need) const { return need | (args & ~save_args); }
};

/// Keep an argument that the derivatives read and that is not a list of tensors: a tensor if they
/// read its value, else `meta` in its place. Lists and strings are copied to `room`.
int32_t keep_argument(Node* n, int32_t i, const RbValue& v, bool saves, const RbMeta* meta,
                      char* room);
/// Keep a list of tensors that the derivatives read.
int32_t keep_tensors(Node* n, int32_t i, const RbValue& v, char* room);
/// Save the results that the derivatives read: `saved`, one bit each.
int32_t save_results(Node* n, uint64_t saved, const RbValue* rets, int32_t nrets);

/// Makes the node of any call.
struct Recorder {
  const RbCall* call;
  const RbOpInfo* info;
  const RbValue* args;
  int32_t nargs;
  uint64_t need;
  Reads reads;
  RbTensor* replaced = nullptr;  // an argument that the call overwrites ...
  RbTensor* original = nullptr;  // ... and the copy of what it held, if a derivative reads it

  /// Node with edges and saved arguments for results of the shapes of `rets`; call before an
  /// in-place call overwrites histories. Null on an error, which goes to *status.
  Node* begin(const RbValue* rets, int32_t nrets, int32_t* status) const;

 private:
  bool wants(int32_t i) const { return need >> i & 1; }
  bool reads_arg(int32_t i) const { return reads.args >> i & 1; }
  bool saves_arg(int32_t i) const { return reads.save_args >> i & 1; }
  bool needs_meta(int32_t i) const { return reads.metas(need) >> i & 1; }
  NodeShape layout(const RbValue* rets, int32_t nrets, uint64_t* shared) const;
  int32_t keep(Node* n, int32_t i, const RbMeta* meta, char** extra) const;
};

/// Fills in the edges of a new node, and sets what follows from the nodes that they lead to.
struct Links {
  Edge* next;
  uint64_t seq = 0;
  uint16_t nest = no_nest;
  void add(const Target& target, const RbMeta* meta, int32_t i) {
    *next++ = Edge{target.fn, meta, target.output, static_cast<int16_t>(i)};
    if (!target.fn) return;
    seq = std::max(seq, target.fn->seq);
    nest = std::min(nest, target.fn->nest);
  }
  void finish(Node* n) const {
    n->seq = next_sequence(seq);
    n->nest = nest;
    if (has_observers(RB_EVENT_NODE)) tell_recorded(n);
  }
};

/// Point a tensor at its node; the record lies in the node. Takes over a reference to the node.
inline void attach(Node* n, int32_t i, RbTensor* t, int16_t depth) {
  Meta& m = n->metas[i];
  m.depth = depth;
  m.fn = n;
  m.output = static_cast<uint32_t>(i);
  m.embedded = true;
  if (t->flags & RB_T_VIEW) m.version = host->version_get(t);
  if (__builtin_expect(!meta_of(t), 1)) {
    host->slot_set(t, slot, &m, 1);
  } else {
    replace_meta(t, &m, 1);
  }
}

/// Whether the call writes its first argument, and nothing else.
inline bool is_in_place(const RbValue* args, int32_t nargs, const RbValue* rets, int32_t nrets) {
  return nrets == 1 && nargs > 0 && args[0].tag == RB_TENSOR && args[0].v.t == rets[0].v.t;
}

}  // namespace tape
