// What plugins see of an operator: for each argument, which values its derivative reads.
#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "formula/emit.h"
#include "formula/formula.h"
#include "formula/formula_program.h"

namespace rabbet {

namespace {

// Which values a derivative formula reads. A use as `.shape`, by a function on host data, or by
// zeros_like and the like, needs no value.
class Reads {
 public:
  Reads(const Op& op, const Formula& f) : op_(op), f_(f) {}

  void visit(int entry) {
    if (entry >= 0) read(block(entry));
  }

  uint64_t args = 0, rets = 0;          // whose values are read
  uint64_t all_args = 0, all_rets = 0;  // that are mentioned at all

 private:
  // What a value may be, unchanged, of arguments and results.
  struct Origin {
    uint64_t args = 0, rets = 0;
    void join(const Origin& other) {
      args |= other.args;
      rets |= other.rets;
    }
  };

  void read(const Origin& value) {
    args |= value.args & op_.tensor_args;
    rets |= value.rets;
  }

  // The origin of the block's value.
  Origin block(int entry) {
    const Instruction* at = &f_.code[entry];
    std::vector<Origin> slots(at->count);
    std::vector<std::pair<int32_t, Origin>> arriving;  // by jumps to later instructions
    for (++at;; ++at) {
      for (auto& [target, value] : arriving) {
        if (&f_.code[target] == at) slots[(at - 1)->to].join(value);
      }
      Origin* const s = &slots[at->to];
      switch (at->code) {
        case Code::kArgument:
          s[0] = {uint64_t{1} << at->index, 0};
          all_args |= s[0].args;
          break;
        case Code::kResult:
          s[0] = {0, uint64_t{1} << at->index};
          all_rets |= s[0].rets;
          break;
        case Code::kLet:
          s[0] = block(f_.lets[at->index]);
          break;
        case Code::kJump:
          arriving.emplace_back(at->index, s[0]);
          break;
        case Code::kUnless:
          read(s[0]);
          break;
        case Code::kIfFalse:
        case Code::kIfTrue:
          read(s[0]);
          arriving.emplace_back(at->index, s[0]);
          break;
        case Code::kHost:
        case Code::kAttribute:
          s[0] = {};
          break;
        case Code::kCall: {
          const bool only_meta = f_.callees[at->index].way == ShortWay::kLike;
          for (int i = only_meta ? 1 : 0; i < at->count; ++i) read(s[i]);
          s[0] = {};
          break;
        }
        case Code::kEach:  // lists of tensors are kept whole: there is no list of RbMeta
          for (int i = 0; i < at->count; ++i) read(s[i]);
          s[0] = block(f_.loops[at->index].block);
          break;
        case Code::kList:
          for (int i = 1; i < at->count; ++i) s[0].join(s[i]);
          break;
        case Code::kNegate:
        case Code::kNot:
          read(s[0]);
          s[0] = {};
          break;
        case Code::kBinary:
        case Code::kItem:
          read(s[0]);
          read(s[1]);
          s[0] = {};
          break;
        case Code::kSlice:
          for (int i = 0; i < 3; ++i) read(s[i]);
          s[0] = {};
          break;
        case Code::kReturn:
          return s[0];
        default:  // constants and what is no argument
          s[0] = {};
      }
    }
  }

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

// The effects of a call (RB_EFFECT_*), those of the operators that it is made of included.
class Effects {
 public:
  uint32_t of(const Op& op) {
    if (__atomic_load_n(&op.info_ready, __ATOMIC_ACQUIRE)) return op.info.effects;
    if (std::find(path_.begin(), path_.end(), &op) != path_.end()) return 0;  // it calls itself
    path_.push_back(&op);
    uint32_t effects = op.info.effects;
    const Formula& f = compiled(op);
    if (f.decomp >= 0) effects |= block(f, f.decomp);
    path_.pop_back();
    return effects;
  }

 private:
  uint32_t block(const Formula& f, int entry) {
    uint32_t effects = 0;
    for (const Instruction* at = &f.code[entry] + 1; at->code != Code::kReturn; ++at) {
      if (at->code == Code::kCall) effects |= of(*f.callees[at->index].op);
      if (at->code == Code::kLet && f.lets[at->index] >= 0) effects |= block(f, f.lets[at->index]);
      if (at->code == Code::kEach) effects |= block(f, f.loops[at->index].block);
    }
    // What a decomposition writes is its own: only the record says what it writes of arguments.
    return effects & ~uint32_t{RB_EFFECT_WRITES};
  }

  std::vector<const Op*> path_;
};

void complete(const Op& op) {
  static std::mutex mutex;
  const Formula& f = compiled(op);
  const uint32_t effects = Effects().of(op);
  const bool pointwise = is_pointwise(op);
  std::lock_guard<std::mutex> lock(mutex);
  if (op.info_ready) return;
  Op& writable = const_cast<Op&>(op);
  writable.info.effects = effects;
  if (effects & RB_EFFECT_DRAWS) writable.info.flags |= RB_OP_RANDOM;
  if (effects & RB_EFFECT_FAILS) writable.info.flags |= RB_OP_CHECKS_DATA;
  for (size_t i = 0; i < op.params.size(); ++i) {
    Reads reads(op, f);
    reads.visit(f.vjps[i]);
    writable.arg_infos[i].saves_args = reads.args;
    writable.arg_infos[i].saves_rets = reads.rets;
    writable.arg_infos[i].reads_args = reads.all_args;
    writable.arg_infos[i].reads_rets = reads.all_rets;
    if (op.rules[kVjpRule].fn) set_reads(op, writable.arg_infos[i]);
    if (pointwise && op.params[i].type == RB_A_TENSOR) writable.arg_infos[i].core_ndim = 0;
  }
  __atomic_store_n(&writable.info_ready, true, __ATOMIC_RELEASE);
}

}  // namespace

namespace {
[[gnu::noinline]] void try_complete(const Op& op) {
  try {
    complete(op);
  } catch (...) {
    // A formula that is wrong: whoever runs it is told. Plugins ask from code that exceptions must
    // not pass.
  }
}
}  // namespace

const RbOpInfo* op_info(const Op& op) {
  if (__builtin_expect(!__atomic_load_n(&op.info_ready, __ATOMIC_ACQUIRE), 0)) try_complete(op);
  return &op.info;
}

}  // namespace rabbet
