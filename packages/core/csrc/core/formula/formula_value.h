// Values of formulas while they run, and calls of operators with them.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "record/op.h"
#include "tensor/tensor.h"

namespace rabbet {

/// A value: an RbValue that keeps alive what it points to. Lists are lists of values.
struct Val {
  RbValue v = value_none();
  TensorRef tensor;                         // owner of v.v.t, where this value owns one
  std::shared_ptr<std::vector<Val>> items;  // v.tag is then RB_OBJECT

  uint32_t tag() const { return v.tag; }
  bool is_tensor() const { return v.tag == RB_TENSOR; }
  bool is_number() const { return v.tag >= RB_BOOL && v.tag <= RB_COMPLEX; }

  static Val borrow(const RbValue& value) {
    Val x;
    x.v = value;
    return x;
  }
  /// As `borrow`; lists of the boundary become lists here.
  static Val from(const RbValue& value);
  static Val own(TensorRef t) {
    Val x;
    x.v = value_tensor(t.get());
    x.tensor = std::move(t);
    return x;
  }
  static Val boolean(bool b) { return borrow(value_bool(b)); }
  static Val integer(int64_t i) { return borrow(value_int(i)); }
  static Val number(double f) { return borrow(value_float(f)); }
  static Val complex(double re, double im);
  static Val dtype(int id) {
    RbValue v = value_int(id);
    v.tag = RB_DTYPE;
    return borrow(v);
  }
  static Val zero() {
    RbValue v = value_none();
    v.tag = RB_ZERO;
    return borrow(v);
  }
  static Val list() {
    Val x;
    x.v.tag = RB_OBJECT;
    x.items = std::make_shared<std::vector<Val>>();
    return x;
  }

 private:
  std::shared_ptr<double> parts_;  // of a complex number
};

/// Shape and dtype of a tensor or of the RbMeta that stands in for one.
struct Described {
  bool known = false;
  int ndim = 0, dtype = 0, backend = 0, device = 0;
  const int64_t* shape = nullptr;
};
Described describe(const Val& v);

Val as_list(const Val& v, const std::string& where);
/// As messages say it: a list as "(2, 3)", a dtype by its name.
std::string value_text(const Val& v);
double number_value(const Val& v);  // of a real number
Val negate_number(const Val& v);
Val conj_number(const Val& v);

enum class Operator : uint8_t;
Val host_binary(Operator op, const Val& x, const Val& y, const std::string& where);
bool is_host_function(const char* name, bool dtype_rule);
Val run_host_function(const std::string& name, const std::vector<Val>& args,
                      const std::string& where);

/// Whether an elementwise call is zero because all of its linear arguments are; of `values`, those
/// with a bit in `given` are set.
bool vanishes(const Op& op, const RbValue* values, uint32_t given);

/// The value as an owned RB_TENSOR / RB_TENSORS; a number becomes a 0-d tensor of the default
/// device.
RbValue take_tensor(Val& v, const std::string& where);
RbValue take_tensors(Val& v, const std::string& where);

/// One call: values converted for the boundary, kept alive until it is over.
struct CallFrame {
  explicit CallFrame(const Op& op) : op(op), count(static_cast<int>(op.params.size())) {}
  void set(int i, Val v);
  void fill_defaults();
  Val run();
  /// Whether some argument is a tensor or a list of tensors.
  bool has_tensors() const;
  /// The value that was set for argument `i`.
  Val kept(int i) const;

  const Op& op;
  const int count;
  RbValue values[32];  // those that were set, and all after fill_defaults
  uint32_t given = 0;

 private:
  // Most operators have few arguments: those need no memory of their own.
  Val first_[6];
  std::vector<std::pair<int, Val>> others_;
  std::vector<std::vector<int64_t>> ints_;
  std::vector<std::vector<RbTensor*>> tensors_;
};

}  // namespace rabbet
