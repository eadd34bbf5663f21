// One call of the batching layer, and what its rules need: tensors of the level taken apart,
// operators called on what they stand for, results put together.
#pragma once
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "../common/calls.h"
#include "rabbet/vmap.h"

namespace batch {

using namespace calls;

constexpr int kMaxDims = RB_MAX_DIMS, kMaxArgs = RB_MAX_ARGS;

/// A level: what transform_push got.
struct Frame {
  int64_t size;
  int32_t randomness, strict, level;
  uint64_t serial;
};

Ref reshape(const Ref& x, const Dims& shape);
Ref expand(RbTensor* x, const Dims& shape);
Ref permute(const Ref& x, const Dims& order);
/// Dimension `from` moved to place `to`.
Ref move_dim(Ref x, int from, int to);
Ref squeeze(const Ref& x, int dim);
/// `x`, with the examples in front, as of `ndim` dimensions after them.
Ref pad_rank(Ref x, int ndim);

struct Operators {
  const RbOp *view, *reshape, *expand, *permute, *squeeze, *select, *stack, *cast, *copy, *empty,
      *arange, *uniform, *lt, *add, *mul, *matmul, *gather, *scatter_add, *slice, *slice_scatter,
      *detach, *index, *transpose, *roll, *baddbmm, *nonzero, *index_select, *clone;
};
extern Operators ops;
extern int32_t layer;

/// Results of a call, released at the end of scope.
struct Owned {
  explicit Owned(int32_t n) : values(n, none_value()) {}
  Owned(Owned&&) = default;
  ~Owned() {
    for (RbValue& v : values) rb::host->value_release(&v);
  }
  std::vector<RbValue> values;
};

class Call;
using Rule = void (*)(Call&);

class Call {
 public:
  const RbCall* c;
  const RbOpInfo& info;
  const RbValue* args;
  int32_t nargs;
  RbValue* rets;
  int32_t nrets;
  const Frame& frame;

  int64_t size() const { return frame.size; }
  bool is_out() const { return (c->flags & RB_CALL_OUT) != 0; }
  /// Whether `t` stands for examples at this level.
  bool mine(const RbTensor* t) const { return t->level == frame.level; }
  bool mine(const RbValue& v) const {
    return v.tag == RB_TENSOR ? mine(v.v.t) : v.tag == RB_TENSORS && any_mine(v);
  }
  bool any_mine(const RbValue& tensors) const;
  bool any_mine() const;
  static const RbWrap& wrap_of(const RbTensor* t) { return *static_cast<const RbWrap*>(t->ext); }

  /// The examples of `t` along dimension 0: a view of what it stands for.
  Ref front(RbTensor* t) const;
  /// `front`; a tensor that is not batched is repeated (without a copy).
  Ref materialise(RbTensor* t) const;
  /// A tensor of the level whose examples lie along `dim` of `inner`.
  Ref wrap(Ref&& inner, int dim) const;
  Ref wrap(const Ref& inner, int dim) const { return wrap(Ref::share(inner.get()), dim); }
  /// Result i.
  void give(int i, Ref t) { rets[i] = tensor_value(t.take()); }
  void give(int i, const Ref& inner, int dim) { give(i, wrap(inner, dim)); }
  void give(int i, Ref&& inner, int dim) { give(i, wrap(std::move(inner), dim)); }
  /// The operator's results for one example.
  Owned call_example(int64_t index) const;
  /// Let the operator check one example: its error, if it has one.
  void check_example() const { call_example(0); }
  /// That the tensor to be written has the shape of the result.
  void check_destination(int i, const RbTensor* result) const;
  /// An inner call failed with `code`, and its message may speak of shapes that the user has not
  /// seen: throws what the operator says of one example, if it refuses that as well.
  void explain(int32_t code) const;
  /// The operator's error for one example, or else that there is no rule.
  [[noreturn]] void refuse() const;
};

void note_route(const RbOpInfo& info, int32_t route);

/// Rules by what the record says (derived.cpp, aligned.cpp).
void aligned(Call& c);
/// Whether all tensors of the call have the same floating dtype: nothing is promoted.
bool one_floating_dtype(const Call& c);
void shifted(Call& c);
void leading(Call& c);
void fold(Call& c);
void reduction(Call& c);
void movement(Call& c);
void random(Call& c);
/// A composite operator that may draw random numbers, of tensors that are the same for all.
void random_steps(Call& c);
void loop(Call& c);
void decompose(Call& c);
/// `decompose`, and where that fails `loop`: for results whose shape depends on the data.
void decompose_or_loop(Call& c);
/// `aligned`, with tensors that are not batched repeated.
void aligned_full(Call& c);
/// `shifted`, for results with the rank of argument `follow`; of the arguments in `which` (a bit
/// each).
void shifted_as(Call& c, int follow, uint64_t which = ~uint64_t{0});
/// The rule for the operator by its record.
Rule derived_rule(const Call& c);
bool writes_directly(Rule rule);

/// Check what holds for every rule, run it, see to destinations that are given.
void run(Call& c, Rule rule);

/// Rules that a record cannot give (exact*.cpp).
int32_t add_exact_rules(const RbHost* host, RbTxn* txn);
int32_t run_exact(void* self, const RbCall* call, const RbValue* args, int32_t nargs, RbValue* rets,
                  int32_t nrets);

extern int32_t (*warn)(const char* message);

}  // namespace batch
