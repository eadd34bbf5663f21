// Python's numbers that differ from call to call, such as counts of steps, and what is computed of
// them.
#pragma once
#include <vector>

#include "replay/object.h"

namespace replay {

/// New reference to an integer or a float that is no other object, with the value of `number`.
PyObject* unique_number(PyObject* number);

class Numbers {
 public:
  /// `steps`: a list of tuples, as `_numbers.py` makes them. Throws after setting an exception.
  explicit Numbers(PyObject* steps);
  /// Compute all of them; false: a comparison, or the class of a number, is not as it was.
  bool compute(std::vector<Ref>& values) const;
  int traverse(visitproc visit, void* arg) const;

  enum Kind : long {
    kEntry,    // dict, key, class
    kFixed,    // number
    kBinary,   // operator, number, number, class
    kUnary,    // operator, number, class
    kCall,     // function, numbers, class
    kCompare,  // operator, number, number, outcome
    kTruth,    // number, outcome
    kKinds
  };

 private:
  struct Step {
    Kind kind;
    long op = 0;
    Ref a, b;                     // dict and key, the number, or the function
    std::vector<size_t> numbers;  // by their steps
    Ref expected;                 // class or outcome
  };
  PyObject* compute_step(const Step& step, const std::vector<Ref>& values) const;

  std::vector<Step> steps_;
};

}  // namespace replay
