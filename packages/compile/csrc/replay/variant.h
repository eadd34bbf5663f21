// A recorded program with its guards: what runs in place of a function.
#pragma once
#include <vector>

#include "replay/guards.h"
#include "replay/numbers.h"
#include "replay/object.h"

namespace replay {

/// The structure of arguments or results: containers around tensors and fixed objects.
class Tree {
 public:
  enum Kind : long { kTensor, kObject, kList, kTuple, kDict, kArgument, kNumber };
  /// Of nested tuples, as `_variant.py` makes them. Throws after setting an exception.
  explicit Tree(PyObject* spec);

  /// Whether `object` has this structure; collects its tensors.
  bool match(PyObject* object, std::vector<PyObject*>& tensors) const;
  /// New reference to the object with these tensors and numbers; null with an exception.
  PyObject* build(const struct Made& made) const;
  int traverse(visitproc visit, void* arg) const;

 private:
  Kind kind_;
  size_t number_ = 0;
  Ref object_;  // fixed, or the keys of a dict
  std::vector<Tree> parts_;
};

/// What a run has, to build objects of.
struct Made {
  const std::vector<PyObject*>& arguments;
  std::vector<Ref> tensors, numbers;
};

struct Outcome {
  enum What { kMismatch, kDone, kRaised, kFailed } what;
  Ref result;
};

/// The parts of `spec` are listed in `_record.py`, where it is made.
class Variant {
 public:
  Variant(PyObject* spec, Py_ssize_t number);
  Py_ssize_t number() const { return number_; }  // in the order of their recording
  /// Run the program if the arguments and all guards fit. kFailed: it raised an error, cleared
  /// here, before it changed anything: the function itself raises it.
  Outcome call(PyObject* args, PyObject* kwargs);
  Py_ssize_t failed() const { return failed_; }
  int64_t runs() const { return runs_; }
  int traverse(visitproc visit, void* arg) const;

 private:
  struct Effect {
    Ref dict, key;
    bool removes;
    Tree value;
  };
  struct Gradient {
    size_t input;
    long output;  // -1: none
  };
  bool fits(const std::vector<PyObject*>& tensors) const;
  Outcome run(const std::vector<PyObject*>& arguments);
  bool give_numbers(const std::vector<Ref>& numbers, std::vector<RbValue>& given) const;
  int finish(const Made& made);

  Py_ssize_t number_;
  Tree arguments_;
  Guards guards_;
  Numbers numbers_;
  std::vector<size_t> given_;  // the numbers that operators get
  std::vector<Signature> signatures_;
  std::vector<size_t> same_as_;  // the first argument that is the same object
  std::vector<Ref> states_;
  std::vector<Ref> others_;  // tensors that the program has seen; none of them was an argument
  Ref program_;              // owns handle_
  const RbProgram* handle_;
  Tree outputs_;
  std::vector<Effect> effects_;
  std::vector<Gradient> gradients_;
  size_t noutputs_;
  // Errors of steps before this one leave the function to be run once more, after the memory of
  // these inputs, which earlier steps write, has been put back.
  int32_t repeatable_;
  std::vector<size_t> saved_;
  bool in_region_, needs_distinct_;
  Ref generator_;  // whose state is put back where the program is run once more; may be null
  Py_ssize_t failed_ = -1;
  int64_t runs_ = 0;
};

}  // namespace replay
