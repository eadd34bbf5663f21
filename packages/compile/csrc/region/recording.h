// The deferred calls of a region: elementwise, with results of one size, in program order.
#pragma once
#include <string>

#include "region/state.h"

namespace compile {

constexpr int kMostNodes = 64;
constexpr int kMostValues = 4 * kMostNodes;
constexpr int kMostArguments = 8;
constexpr int kMostDims = 8;
constexpr int kMostAbandoned = 3;

/// How the elements of a tensor meet those of a result of `numel` elements, seen as rows of `cols`.
enum class Extent : uint8_t {
  kFull,    // one for each
  kRow,     // the same row for every row
  kColumn,  // one element for each row
  kOne      // one element for all
};

/// Elements that nodes read or make.
struct Value {
  RbTensor* held;  // keeps the memory; null: nobody else had it any more, and it was given back
  char* data;
  uint64_t bytes;
  int16_t node;  // that makes the elements; -1: they are there already
  uint16_t dtype;
  uint8_t itemsize;
  Extent extent;
  bool made;     // the memory is new: nobody needs it once no tensor refers to it
  bool current;  // no later node writes the memory
};

/// Whether the memory of a node's result has to be written.
inline bool is_stored(const Value& v) { return v.held && v.current && v.node >= 0; }

/// One deferred call.
struct Node {
  struct Argument {
    int16_t value;    // a tensor: its index; -1: `literal`
    RbValue literal;  // strings are interned
  };
  const RbOp* op;
  RbPointwise kernel;
  int16_t nargs;
  int16_t result;
  Argument args[kMostArguments];
  std::string source;  // line of the program, where reports are on

  /// The operator's name, and the line where it is known.
  std::string text() const;
};

/// Nodes and values up to now. Not thread-safe: `Region` holds the lock.
class Recording {
 public:
  enum class Outcome {
    kRecorded,
    kUnsuited,  // no call to be deferred
    kConflict   // possible after the recording so far has run
  };
  bool is_empty() const { return nnodes_ == 0; }
  int nodes() const { return nnodes_; }
  int values() const { return nvalues_; }
  const Node& node(int i) const { return nodes_[i]; }
  const Value& value(int i) const { return values_[i]; }
  int64_t numel() const { return numel_; }
  int64_t cols() const { return cols_; }

  /// Defer the call: results become tensors whose memory is written later. `source`: its line.
  Outcome record(const RbCall& c, const RbOpInfo& info, const RbValue* args, int32_t nargs,
                 RbValue* rets, const std::string& source);
  /// Whether the memory of `t` will be written by a node.
  bool writes(const RbTensor* t) const;
  /// Whether a node reads or writes memory of `t`.
  bool uses(const RbTensor* t) const;
  /// Whether a node reads or writes the memory of which `t` is a part, and in which it may grow
  /// where it is a destination.
  bool uses_memory_of(const RbTensor* t) const;
  /// Give back the memory of results that no tensor refers to any more.
  void drop_dead();
  /// Forget everything.
  void clear();

 private:
  struct Operands;
  int find(const RbTensor* t, Extent extent) const;
  template <class Test>
  bool any_meets(const RbTensor* t, Test&& test) const;
  Outcome resolve(const RbValue* args, int32_t nargs, Operands& ops) const;
  Outcome place(Operands& ops, const RbTensor* target) const;
  int16_t add_operand(RbTensor* t, Extent extent);
  /// Operands that the program has given up: eager calls would have freed their memory.
  int abandoned() const;

  Node nodes_[kMostNodes];
  Value values_[kMostValues];
  int nnodes_ = 0, nvalues_ = 0;
  int64_t numel_ = 0, cols_ = 0;  // cols: 0 while no value is a row or a column
};

/// Bytes of an element.
int item_size(int32_t dtype);

}  // namespace compile
