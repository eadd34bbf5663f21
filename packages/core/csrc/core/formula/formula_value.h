// Values of formulas while they run, and what the host computes with them.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "record/op.h"
#include "tensor/tensor.h"

namespace rabbet {

struct Shared;

/// Throw an error of an operator's formulas, with the place of its record. Those that core does not
/// ship are their author's errors.
[[noreturn]] void fail_formula(const std::string& op, const std::string& message);

/// A value: an RbValue and what it keeps alive, a tensor or shared memory. Lists are RB_INTS,
/// RB_TENSORS (as the boundary gives them) or, of any values, RB_OBJECT.
class Val {
 public:
  Val() = default;
  Val(const Val& other) : v(other.v), owner_(other.owner_) { keep(); }
  Val(Val&& other) noexcept : v(other.v), owner_(std::exchange(other.owner_, 0)) {}
  Val& operator=(Val other) noexcept {
    v = other.v;
    std::swap(owner_, other.owner_);
    return *this;
  }
  ~Val() {
    if (owner_) drop();
  }

  RbValue v = value_none();

  uint32_t tag() const { return v.tag; }
  bool is_tensor() const { return v.tag == RB_TENSOR; }
  bool is_number() const { return v.tag >= RB_BOOL && v.tag <= RB_COMPLEX; }
  bool is_integer() const { return v.tag == RB_BOOL || v.tag == RB_INT; }
  bool is_list() const {
    return v.tag == RB_INTS || v.tag == RB_TENSORS || (v.tag == RB_OBJECT && (owner_ & 1));
  }
  size_t size() const { return v.len; }  // of a list
  Val at(size_t i) const;

  static Val borrow(const RbValue& value) {
    Val x;
    x.v = value;
    return x;
  }
  static Val own(TensorRef t) {
    Val x;
    x.v = value_tensor(t.get());
    x.owner_ = reinterpret_cast<uintptr_t>(t.release_ownership());
    return x;
  }
  static Val boolean(bool b) { return borrow(value_bool(b)); }
  static Val integer(int64_t i) { return borrow(value_int(i)); }
  static Val number(double f) { return borrow(value_float(f)); }
  static Val complex(double re, double im);
  static Val dtype(int id) { return tagged(RB_DTYPE, id); }
  static Val zero() { return tagged(RB_ZERO, 0); }
  static Val ints(std::vector<int64_t> values);
  static Val list(std::vector<Val> items);
  /// The shape of `x`, a tensor or what stands in for one.
  static Val shape_of(Val x, const int64_t* shape, int ndim);

  /// The owned tensor of an RB_TENSOR value: this one's, or a share of it.
  RbTensor* take();

 private:
  static Val tagged(uint32_t tag, int64_t i) {
    RbValue v = value_int(i);
    v.tag = tag;
    return borrow(v);
  }
  static Val shared(uint32_t tag, Shared* memory);
  void keep() const;
  void drop();

  uintptr_t owner_ = 0;  // a tensor; with the lowest bit set: a Shared
};

/// Shape and dtype of a tensor or of the RbMeta that stands in for one.
struct Described {
  bool known = false;
  int ndim = 0, dtype = 0, backend = 0, device = 0;
  const int64_t* shape = nullptr;
};
Described describe(const RbValue& v);

/// As messages say it: a list as "(2, 3)", a dtype by its name.
std::string value_text(const Val& v);
double number_value(const RbValue& v);  // of a real number
Val negate_number(const Val& v);
Val conj_number(const Val& v);
/// Whether host data counts as true; throws Error where it is no host data.
bool truth(const RbValue& v, const Op& op);
/// Whether a derivative is known to be zero.
bool is_zero(const RbValue& v);

enum class Operator : uint8_t;
Val host_binary(Operator op, const Val& x, const Val& y, const std::string& where);

struct HostFunction;
const HostFunction* find_host_function(const char* name);
bool is_host_function(const char* name, bool dtype_rule);
Val run_host_function(const HostFunction& f, const Val* values, int count,
                      const std::string& where);

/// Whether an elementwise call is zero because all of its linear arguments are; of `values`, those
/// with a bit in `given` are set.
bool vanishes(const Op& op, const RbValue* values, uint32_t given);

}  // namespace rabbet
