// What a program has read, and whether it would still read the same.
#pragma once
#include <cstdint>
#include <vector>

#include "replay/object.h"

namespace replay {

/// Dtype, place, sizes, strides and flags of a tensor, the class of its Python object, and what
/// autograd knows of it.
class Signature {
 public:
  explicit Signature(PyObject* tensor);
  bool fits(PyObject* tensor) const;

 private:
  PyTypeObject* type_;
  std::vector<int64_t> words_;
};

class Guards {
 public:
  /// `items`: a list of tuples, as `_guards.py` makes them. Throws after setting an exception.
  explicit Guards(PyObject* items);
  /// Whether all of them hold. If not, `failed` is the number of one of them. -1 with an exception
  /// if one cannot be checked.
  int check(Py_ssize_t& failed);
  int traverse(visitproc visit, void* arg) const;

  enum Kind : long {
    kEntry,     // dict, key, value
    kLength,    // container, length
    kItems,     // list, tuple of its items
    kPairs,     // dict, tuple of its keys and values in turn
    kSequence,  // any container, tuple of its items as it yields them
    kCell,      // cell, value
    kClass,     // class: no attribute of it or of its bases has changed
    kClassOf,   // object, class
    kSlot,      // object, descriptor, value
    kFunction,  // function, code, defaults, defaults of keywords
    kTensor,    // tensor: its signature
    kGrad,      // tensor, whether it has a gradient
    kCall,      // callable, arguments, value
    kThread,    // the layers that are on, the levels of transforms, and the flags of new tensors
    kDictOf,    // object, the dict of its attributes
    kKinds
  };

 private:
  struct Entry {
    Py_ssize_t number;
    Ref key, value;
  };
  struct Dict {
    Ref dict;
    uint64_t version;
    std::vector<Entry> entries;
  };
  struct Other {
    Py_ssize_t number;
    Kind kind;
    Ref a, b, c, d;
    uint64_t word;
  };

  void add(Py_ssize_t number, PyObject* item);
  int check_dict(Dict& dict, Py_ssize_t& failed) const;
  int check_other(const Other& guard) const;

  std::vector<Dict> dicts_;
  std::vector<Other> others_;
  std::vector<Signature> signatures_;
  RbThread thread_{};
  bool checks_thread_ = false;
};

}  // namespace replay
