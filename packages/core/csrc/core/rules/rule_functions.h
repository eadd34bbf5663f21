// Rules of an operator that are functions instead of formulas: its decomposition, shape and
// derivatives. They are registered like kernels, with the rule's name in place of a backend's.
#pragma once
#include <string>

#include "record/op.h"
#include "rules/infer.h"

namespace rabbet {

/// The slot of Op::rules for a name such as "vjp"; -1: it names no rule.
int find_rule(const std::string& target);
const char* rule_name(int slot);

/// Why the operator takes no function for that rule; empty: it takes one.
std::string why_no_rule(const Op& op, int slot);

/// Counts the decompositions and Python kernels that the thread is inside; throws Error where an
/// operator seems to be made of itself, before the stack ends.
class Nesting {
 public:
  explicit Nesting(const Op& op);
  ~Nesting();
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;
};

/// What stands for a call of a level draws its random numbers there, and may enter levels.
class AtLevel {
 public:
  explicit AtLevel(int32_t level);
  ~AtLevel();
  AtLevel(const AtLevel&) = delete;
  AtLevel& operator=(const AtLevel&) = delete;

 private:
  int32_t before_;
};

/// Derive what the operator's info says of its rules, after one came or went.
void update_rules(Op& op);
/// After the rule `changed` came or went. What derivatives read stays unless theirs did: a
/// decomposition is loaded inside its first call, which records what they read once it has run.
void update_rules(Op& op, int changed);

/// Throw, and drop what there is, unless a function that returned RB_OK has set all results.
void check_given(const Op& op, const char* provider, RbValue* rets, int nrets);

/// Run such a rule; the operator has it. Throw Error. The conventions are those of RbRule.
void run_decomp_rule(const Op& op, const RbValue* args, int nargs, RbValue* rets, int nrets);
void run_shape_function(const Op& op, const RbValue* args, int nargs, Inferred& out);
void run_vjp_rule(const Op& op, uint64_t wanted, const RbValue* args, int nargs,
                  const RbValue* outs, int nouts, const RbValue* grads, RbValue* results);
void run_jvp_rule(const Op& op, const RbValue* args, int nargs, const RbValue* outs, int nouts,
                  const RbValue* tangents, RbValue* results);

}  // namespace rabbet
