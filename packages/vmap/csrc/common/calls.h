// What the wheel's transforms share: tensors that release themselves, values, calls of operators.
#pragma once
#include <initializer_list>
#include <vector>

#include "rabbet/plugin.hpp"

namespace calls {

/// A tensor that is released at the end of scope.
class Ref {
 public:
  Ref() = default;
  explicit Ref(RbTensor* owned) : t_(owned) {}
  Ref(Ref&& other) noexcept : t_(other.take()) {}
  Ref& operator=(Ref&& other) noexcept {
    if (this != &other) {
      if (t_) rb::host->release(t_);
      t_ = other.take();
    }
    return *this;
  }
  ~Ref() {
    if (t_) rb::host->release(t_);
  }
  static Ref share(RbTensor* t) {
    rb::host->retain(t);
    return Ref(t);
  }
  RbTensor* get() const { return t_; }
  RbTensor* operator->() const { return t_; }
  RbTensor* take() {
    RbTensor* t = t_;
    t_ = nullptr;
    return t;
  }

 private:
  RbTensor* t_ = nullptr;
};

using Dims = std::vector<int64_t>;

RbValue none();
RbValue value(RbTensor* t);
inline RbValue value(const Ref& t) { return value(t.get()); }
RbValue integer(int64_t i);
RbValue list(const Dims& dims);  // borrowed

/// Call an operator of one result.
Ref call(const RbOp* op, std::initializer_list<RbValue> args);

Dims shape_of(const RbTensor* t);

}  // namespace calls
