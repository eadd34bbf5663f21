// Elementwise formulas as source text: one loop body for each way through a formula, instead of
// one kernel per operator.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rabbet/emit.h"
#include "record/op.h"

namespace rabbet {

/// A scalar function that backends supply.
struct Primitive {
  RbPrimitive info;
  enum Cost { kPlain = 1, kSlow = 8, kHeavy = 24 } cost;  // in additions, roughly
  // Whether the CPU backend's vector registers go through it: never, for float32, for float64 too.
  enum { kScalar, kPacked32, kPacked } packs;
};
const std::vector<Primitive>& primitives();
const Primitive* find_primitive(const std::string& name);

/// A real number of the host: a constant, or computed from the call's numbers.
struct HostNumber {
  enum Kind : char { kConstant = 'c', kValue = 'v', kNegate = 'n' };
  char kind;  // these, or one of + - * /
  double constant = 0;
  int index = 0;  // of the call's value
  std::shared_ptr<const HostNumber> a, b;

  bool is_constant() const { return kind == kConstant; }
  double of(const RbValue* values) const;
  std::string text() const;  // C++ of type double
};
using HostNumberRef = std::shared_ptr<const HostNumber>;

/// What a way through a formula depends on: a question about the call's values.
struct Question {
  enum Kind { kIsTensor, kIsNumber, kIsNone, kIsText, kIsSingle, kCompares } kind;
  int index = 0;
  std::string word;           // of kIsText; the C++ sign of kCompares
  HostNumberRef left, right;  // of kCompares
  bool wanted = true;

  bool holds(const RbValue* values) const;
  std::string text() const;  // C++
};

/// A loop body: statements on the operands x0, x1, ... and the numbers p[0], p[1], ...
struct LoopBody {
  int inputs = 0, numbers = 0;
  std::vector<std::string> statements;  // each made of what `spell` writes
  std::string result;
  bool heavy = false;
  int packs = Primitive::kScalar;
  // Every formula that it serves computes in float64, or in float32.
  bool wide = false, narrow = false;
};

struct BodyInput {
  int index;  // of the call's value
  bool is_number;
  bool operator==(const BodyInput& o) const { return index == o.index && is_number == o.is_number; }
};

/// The ways through a formula: questions that lead to bodies.
struct Ways {
  std::vector<std::pair<Question, std::unique_ptr<Ways>>> branches;  // none: `body` it is
  int body = -1;
  std::vector<BodyInput> inputs;
  std::vector<HostNumberRef> numbers;
};

struct EmittedFormula {
  std::string name, text;
  const Op* op;
  int argument;  // the formula is its derivative; -1: the decomposition
  int nvalues;
  std::unique_ptr<Ways> ways;
};

enum class Dialect {
  kCpu,  // C++ templates over scalars and packs, for packages/backend-cpu
  kC     // what OpenCL C and CUDA C share
};

/// The answers that one way through a formula has been given: the question, which option holds.
using EmitPath = std::vector<std::pair<std::string, int>>;

/// Elementwise formulas of records in one dialect; equal bodies are there once.
class Emission {
 public:
  explicit Emission(Dialect dialect) : dialect_(dialect) {}
  /// Those of `op`: its decomposition, its derivatives; nothing where there are none.
  void add(const Op& op);

  const std::vector<EmittedFormula>& formulas() const { return formulas_; }
  const std::vector<LoopBody>& bodies() const { return bodies_; }
  /// The C function of a body (kC).
  std::string function(int body) const;
  /// Files for a backend's build, by name: the bodies, and the C++ that chooses among them.
  std::map<std::string, std::string> files() const;

 private:
  void add(const Op& op, int argument, int32_t entry);
  std::unique_ptr<Ways> explore(const Op& op, int argument, int32_t entry, EmitPath& path);
  int index_of(LoopBody body);

  const Dialect dialect_;
  std::vector<EmittedFormula> formulas_;
  std::vector<LoopBody> bodies_;
  std::map<std::string, int> known_;
};

/// Whether `op` is composite and its decomposition elementwise, for tensors of one floating dtype.
bool is_pointwise(const Op& op);

/// The table behind rabbet/emit.h.
const RbEmit* emit_table();

}  // namespace rabbet
