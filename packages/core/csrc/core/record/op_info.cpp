// What plugins see of an operator: for each argument, which values its derivative reads.
#include <mutex>
#include <vector>

#include "formula/formula.h"
#include "formula/formula_nodes.h"

namespace rabbet {

namespace {

// Walks a derivative formula. A use as `.shape`, or by zeros_like and the like, needs no value.
class Reads {
 public:
  Reads(const Op& op, const Formula& f) : op_(op), f_(f) {}

  void visit(int at, bool value) {
    if (at < 0) return;
    const Node& n = f_.nodes[at];
    switch (n.kind) {
      case NodeKind::kArgument:
        all_args |= 1ull << n.index;
        if (value && (op_.tensor_args >> n.index & 1)) args |= 1ull << n.index;
        return;
      case NodeKind::kResult:
        all_rets |= 1ull << n.index;
        if (value) rets |= 1ull << n.index;
        return;
      case NodeKind::kLet:
        return visit(f_.lets[n.index].root, value);
      case NodeKind::kAttribute:
        return visit(n.kids[0], false);
      case NodeKind::kHost:
        for (int kid : n.kids) visit(kid, false);
        return;
      case NodeKind::kCall: {
        const bool only_meta = n.callee->name == "zeros_like" || n.callee->name == "ones_like" ||
                               n.callee->name == "empty_like";
        for (size_t i = 0; i < n.kids.size(); ++i) visit(n.kids[i], i > 0 || !only_meta);
        return;
      }
      case NodeKind::kComprehension: {
        visit(n.kids[0], value);
        // Lists of tensors are kept whole: there is no list of RbMeta at the boundary.
        for (size_t i = 1; i < n.kids.size(); ++i) visit(n.kids[i], true);
        return;
      }
      default:
        for (int kid : n.kids) visit(kid, value);
    }
  }

  uint64_t args = 0, rets = 0;          // whose values are read
  uint64_t all_args = 0, all_rets = 0;  // that are mentioned at all

 private:
  const Op& op_;
  const Formula& f_;
};

// Of a derivative that is a function: it is given all arguments and results, those that it does not
// read as RB_META.
void set_reads(const Op& op, RbArgInfo& arg) {
  if (!(arg.flags & RB_ARG_HAS_VJP)) return;
  const Handler& rule = op.rules[kVjpRule];
  arg.reads_args = (uint64_t{1} << op.params.size()) - 1;
  arg.reads_rets = (uint64_t{1} << op.ret_names.size()) - 1;
  arg.saves_args = rule.reads_args & op.tensor_args;
  arg.saves_rets = rule.reads_rets & arg.reads_rets;
}

}  // namespace

const RbOpInfo* op_info(const Op& op) {
  static std::mutex mutex;
  if (__atomic_load_n(&op.info_ready, __ATOMIC_ACQUIRE)) return &op.info;
  const Formula& f = compiled(op);
  std::lock_guard<std::mutex> lock(mutex);
  if (op.info_ready) return &op.info;
  Op& writable = const_cast<Op&>(op);
  for (size_t i = 0; i < op.params.size(); ++i) {
    Reads reads(op, f);
    reads.visit(f.vjps[i], true);
    writable.arg_infos[i].saves_args = reads.args;
    writable.arg_infos[i].saves_rets = reads.rets;
    writable.arg_infos[i].reads_args = reads.all_args;
    writable.arg_infos[i].reads_rets = reads.all_rets;
    if (op.rules[kVjpRule].fn) set_reads(op, writable.arg_infos[i]);
  }
  __atomic_store_n(&writable.info_ready, true, __ATOMIC_RELEASE);
  return &op.info;
}

}  // namespace rabbet
