// What formulas compute on the host: numbers and lists by Python's rules, shapes, dtypes.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "formula/formula.h"
#include "formula/formula_nodes.h"
#include "formula/formula_value.h"
#include "tensor/dtype.h"
#include "tensor/promotion.h"
#include "tensor/shape.h"
#include "thread/error.h"

namespace rabbet {

namespace {

class Args {
 public:
  Args(const Val* values, int count) : values_(values), count_(count) {}
  const Val& operator[](size_t i) const { return values_[i]; }
  size_t size() const { return static_cast<size_t>(count_); }
  const Val* begin() const { return values_; }
  const Val* end() const { return values_ + count_; }

 private:
  const Val* values_;
  int count_;
};

const Val& as_list(const Val& x, const std::string& where) {
  if (!x.is_list()) fail_formula(where, "a formula expected a list");
  return x;
}
std::vector<int64_t> ints(const Val& x, const std::string& where) {
  std::vector<int64_t> out;
  const size_t size = as_list(x, where).size();
  for (size_t i = 0; i < size; ++i) out.push_back(x.at(i).v.v.i);
  return out;
}

std::vector<int64_t> shape_of(const Val& x, const std::string& where) {
  const Described d = describe(x.v);
  if (d.known) return {d.shape, d.shape + d.ndim};
  if (x.is_number()) return {};
  fail_formula(where, "a formula expected a tensor");
}

int64_t wrap(int64_t dim, int64_t ndim, const std::string& where) {
  const int64_t range = std::max<int64_t>(ndim, 1);
  if (dim < -range || dim >= range) {
    fail(RB_E_INDEX,
         "%s: dim %lld is out of range for a tensor of %lld dimensions, expected %lld to %lld",
         where.c_str(), (long long)dim, (long long)ndim, (long long)-range, (long long)(range - 1));
  }
  return dim < 0 ? dim + range : dim;
}

// Which dimensions `dim` (None or []: all) names.
std::vector<bool> dim_mask(const Val& dim, int64_t ndim, const std::string& where) {
  std::vector<bool> mask(ndim, false);
  std::vector<int64_t> dims;
  if (dim.is_list()) dims = ints(dim, where);
  if (dim.is_integer()) dims.push_back(dim.v.v.i);
  if (dims.empty()) return std::vector<bool>(ndim, true);
  for (int64_t d : dims) {
    if (ndim) mask[wrap(d, ndim, where)] = true;
  }
  return mask;
}

// ---- functions

Val f_len(const Args& a, const std::string& w) { return Val::integer(as_list(a[0], w).size()); }
Val f_numel(const Args& a, const std::string& w) {
  const auto shape = shape_of(a[0], w);
  const auto mask = dim_mask(a.size() > 1 ? a[1] : Val(), shape.size(), w);
  int64_t n = 1;
  for (size_t i = 0; i < shape.size(); ++i) n *= mask[i] ? shape[i] : 1;
  return Val::integer(n);
}
Val f_inverse(const Args& a, const std::string& w) {
  const auto perm = ints(a[0], w);
  std::vector<int64_t> out(perm.size());
  for (size_t i = 0; i < perm.size(); ++i)
    out[wrap(perm[i], perm.size(), w)] = static_cast<int64_t>(i);
  return Val::ints(out);
}
Val f_keepdim_shape(const Args& a, const std::string& w) {
  auto shape = ints(a[0], w);
  const auto mask = dim_mask(a[1], shape.size(), w);
  for (size_t i = 0; i < shape.size(); ++i) {
    if (mask[i]) shape[i] = 1;
  }
  return Val::ints(shape);
}
Val f_lead_and_ones(const Args& a, const std::string& w) {
  const auto from = ints(a[0], w), to = ints(a[1], w);
  const size_t lead = from.size() - to.size();
  std::vector<int64_t> dims;
  for (size_t i = 0; i < from.size(); ++i) {
    if (i < lead || (to[i - lead] == 1 && from[i] != 1)) dims.push_back(static_cast<int64_t>(i));
  }
  return Val::ints(dims);
}
Val f_flatten_shape(const Args& a, const std::string& w) {
  auto shape = ints(a[0], w);
  if (shape.empty()) shape = {1};
  const int64_t ndim = shape.size();
  const int64_t from = wrap(a[1].v.v.i, ndim, w), to = wrap(a[2].v.v.i, ndim, w);
  if (from > to)
    fail(RB_E_ARG, "%s: start_dim %lld comes after end_dim %lld", w.c_str(), (long long)from,
         (long long)to);
  std::vector<int64_t> out(shape.begin(), shape.begin() + from);
  int64_t joined = 1;
  for (int64_t i = from; i <= to; ++i) joined *= shape[i];
  out.push_back(joined);
  out.insert(out.end(), shape.begin() + to + 1, shape.end());
  return Val::ints(out);
}
Val f_unflatten_shape(const Args& a, const std::string& w) {
  const auto shape = ints(a[0], w);
  auto sizes = ints(a[2], w);
  if (shape.empty())
    fail(RB_E_INDEX, "%s: a 0-dimensional tensor has no dimension to split", w.c_str());
  const int64_t d = wrap(a[1].v.v.i, shape.size(), w);
  int64_t known = 1, unknown = -1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] != -1) {
      known = checked_product(w, known, sizes[i]);
    } else if (unknown >= 0) {
      fail(RB_E_ARG, "%s: only one size can be -1", w.c_str());
    } else {
      unknown = i;
    }
  }
  if (unknown >= 0 && known > 0 && shape[d] % known == 0)
    known *= sizes[unknown] = shape[d] / known;
  if (known != shape[d]) {
    fail(RB_E_ARG, "%s: the sizes do not multiply to %lld, the size of dimension %lld", w.c_str(),
         (long long)shape[d], (long long)d);
  }
  std::vector<int64_t> out(shape.begin(), shape.begin() + d);
  out.insert(out.end(), sizes.begin(), sizes.end());
  out.insert(out.end(), shape.begin() + d + 1, shape.end());
  return Val::ints(out);
}
Val f_move_permutation(const Args& a, const std::string& w) {
  const int64_t ndim = a[0].v.v.i;
  const auto from = ints(a[1], w), to = ints(a[2], w);
  if (from.size() != to.size()) {
    fail(RB_E_ARG, "%s: source has %zu dimensions and destination %zu, expected as many", w.c_str(),
         from.size(), to.size());
  }
  std::vector<int64_t> out(ndim, -1);
  std::vector<bool> moved(ndim, false);
  if (ndim == 0) {  // dim 0 and -1 of a 0-d tensor name nothing that could move
    for (const int64_t d : from) wrap(d, ndim, w);
    for (const int64_t d : to) wrap(d, ndim, w);
    return Val::ints(out);
  }
  for (size_t i = 0; i < from.size(); ++i) {
    const int64_t s = wrap(from[i], ndim, w), d = wrap(to[i], ndim, w);
    if (moved[s] || out[d] >= 0) fail(RB_E_ARG, "%s: a dimension is named twice", w.c_str());
    out[d] = s;
    moved[s] = true;
  }
  int64_t rest = 0;
  for (int64_t& place : out) {
    if (place >= 0) continue;
    while (moved[rest]) ++rest;
    place = rest++;
  }
  return Val::ints(out);
}
Val f_split_sizes(const Args& a, const std::string& w) {
  const int64_t size = a[0].v.v.i, piece = a[1].v.v.i;
  if (piece < 0 || (piece == 0 && size != 0)) {
    fail(RB_E_ARG, "%s: split_size must be positive, got %lld", w.c_str(), (long long)piece);
  }
  std::vector<int64_t> out;
  if (piece) checked_length(w, size / piece);
  for (int64_t left = size; left > 0; left -= piece) out.push_back(std::min(piece, left));
  if (out.empty()) out.push_back(0);
  return Val::ints(out);
}
Val f_chunk_size(const Args& a, const std::string& w) {
  const int64_t size = a[0].v.v.i, chunks = a[1].v.v.i;
  if (chunks <= 0)
    fail(RB_E_ARG, "%s: chunks must be positive, got %lld", w.c_str(), (long long)chunks);
  return Val::integer(std::max<int64_t>(size / chunks + (size % chunks != 0), size ? 1 : 0));
}
Val f_checked_offsets(const Args& a, const std::string& w) {
  const auto sizes = ints(a[0], w);
  std::vector<int64_t> out;
  int64_t sum = 0;
  for (int64_t s : sizes) {
    if (s < 0) fail(RB_E_ARG, "%s: size %lld is negative", w.c_str(), (long long)s);
    out.push_back(sum);
    sum = checked_sum(w, sum, s);
  }
  if (sum != a[1].v.v.i) {
    fail(RB_E_ARG, "%s: the sizes add up to %lld, but the dimension has size %lld", w.c_str(),
         (long long)sum, (long long)a[1].v.v.i);
  }
  return Val::ints(out);
}
// Where `length` entries of dimension `dim` begin, counted from the front.
Val f_checked_start(const Args& a, const std::string& w) {
  const auto shape = ints(a[0], w);
  const int64_t dim = a[1].v.v.i, start = a[2].v.v.i, length = a[3].v.v.i;
  if (shape.empty()) fail(RB_E_INDEX, "%s: a 0-dimensional tensor has no dim", w.c_str());
  const int64_t size = shape[wrap(dim, shape.size(), w)];
  if (length < 0)
    fail(RB_E_ARG, "%s: length must not be negative, got %lld", w.c_str(), (long long)length);
  if (start < -size || start > size) {
    fail(RB_E_INDEX, "%s: start %lld is out of range for dimension %lld of size %lld", w.c_str(),
         (long long)start, (long long)dim, (long long)size);
  }
  const int64_t from = start < 0 ? start + size : start;
  if (length > size - from) {
    fail(RB_E_ARG, "%s: %lld entries from %lld on reach beyond dimension %lld of size %lld",
         w.c_str(), (long long)length, (long long)from, (long long)dim, (long long)size);
  }
  return Val::integer(from);
}
Val f_range(const Args& a, const std::string& w) {
  std::vector<int64_t> out;
  const int64_t n = checked_length(w, a[0].v.v.i);
  for (int64_t i = 0; i < n; ++i) out.push_back(i);
  return Val::ints(out);
}
Val f_last_dims(const Args& a, const std::string& w) {
  const auto shape = ints(a[0], w), want = ints(a[1], w);
  if (want.empty() || want.size() > shape.size() ||
      !std::equal(want.begin(), want.end(), shape.end() - want.size())) {
    std::string have, expected;
    for (int64_t s : shape) have += (have.empty() ? "" : ", ") + std::to_string(s);
    for (int64_t s : want) expected += (expected.empty() ? "" : ", ") + std::to_string(s);
    fail(RB_E_ARG,
         "%s: normalized_shape [%s] does not match the last dimensions of the input's shape [%s]",
         w.c_str(), expected.c_str(), have.c_str());
  }
  std::vector<int64_t> out;
  for (size_t i = shape.size() - want.size(); i < shape.size(); ++i) out.push_back(i);
  return Val::ints(out);
}
Val f_broadcast_shape(const Args& a, const std::string& w) {
  auto x = ints(a[0], w), y = ints(a[1], w);
  if (x.size() < y.size()) std::swap(x, y);
  const size_t lead = x.size() - y.size();
  for (size_t i = 0; i < y.size(); ++i) {
    int64_t& to = x[lead + i];
    if (to != y[i] && to != 1 && y[i] != 1) {
      fail(RB_E_ARG, "%s: sizes %lld and %lld do not broadcast", w.c_str(), (long long)to,
           (long long)y[i]);
    }
    if (to == 1) to = y[i];
  }
  return Val::ints(x);
}
Val f_pad_widths(const Args& a, const std::string& w) {
  const auto from = ints(a[0], w), to = ints(a[1], w);
  std::vector<int64_t> out;
  if (from.size() != to.size()) {
    fail(RB_E_ARG, "%s: the shape has %zu dimensions, expected %zu", w.c_str(), to.size(),
         from.size());
  }
  for (size_t i = from.size(); i-- > 0;) {
    if (to[i] < from[i]) {
      fail(RB_E_ARG, "%s: size %lld of dimension %zu is less than the %lld that are there",
           w.c_str(), (long long)to[i], i, (long long)from[i]);
    }
    out.push_back(0);
    out.push_back(to[i] - from[i]);
  }
  return Val::ints(out);
}
int dtype_of(const Val& x) {
  const Described d = describe(x.v);
  return d.known ? d.dtype : x.tag() == RB_DTYPE ? static_cast<int>(x.v.v.i) : number_dtype(x.v);
}
Val f_is_complex(const Args& a, const std::string&) {
  return Val::boolean(is_complex(dtype_of(a[0])));
}
// Float32 and what is shorter; numbers have the dtype of the tensors beside them.
Val f_is_single(const Args& a, const std::string&) {
  return Val::boolean(a[0].is_number() || kDTypes[to_real(dtype_of(a[0]))].itemsize <= 4);
}
Val f_is_bool(const Args& a, const std::string&) {
  return Val::boolean(dtype_of(a[0]) == RB_BOOL8);
}
Val f_is_integral(const Args& a, const std::string&) {
  return Val::boolean(is_integral(dtype_of(a[0])));
}
Val f_is_unsigned(const Args& a, const std::string&) {
  return Val::boolean(kDTypes[dtype_of(a[0])].kind == RB_CLASS_UINT);
}
// Integers exactly: doubles cannot tell neighbours beyond 2 ** 53 apart.
bool less(const Val& x, const Val& y) {
  if (x.is_integer() && y.is_integer()) return x.v.v.i < y.v.v.i;
  return number_value(x.v) < number_value(y.v);
}
// Of two numbers, or of one list of them: that which no other is before.
template <typename Before>
Val extreme(const Args& a, const std::string& w, Before before) {
  if (a.size() == 2) return before(a[1], a[0]) ? a[1] : a[0];
  const Val& list = as_list(a[0], w);
  if (!list.size()) fail(RB_E_ARG, "%s: an empty list has no least or greatest entry", w.c_str());
  Val best = list.at(0);
  for (size_t i = 1; i < list.size(); ++i) {
    Val x = list.at(i);
    if (before(x, best)) best = std::move(x);
  }
  return best;
}
Val f_min(const Args& a, const std::string& w) { return extreme(a, w, less); }
Val f_max(const Args& a, const std::string& w) {
  return extreme(a, w, [](const Val& x, const Val& y) { return less(y, x); });
}
Val f_all(const Args& a, const std::string& w) {
  const auto items = ints(a[0], w);
  return Val::boolean(std::all_of(items.begin(), items.end(), [](int64_t i) { return i != 0; }));
}
Val f_broadcasts_to(const Args& a, const std::string& w) {
  const auto from = ints(a[0], w), to = ints(a[1], w);
  if (from.size() > to.size()) return Val::boolean(false);
  const size_t lead = to.size() - from.size();
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i] != 1 && from[i] != to[lead + i]) return Val::boolean(false);
  }
  return Val::boolean(true);
}

// ---- functions of dtype rules

Promotion promotion(const Args& a) {
  Promotion p;
  auto join = [&p](const Val& x) {
    const Described d = describe(x.v);
    if (d.known)
      p.add_tensor(d.ndim, d.dtype);
    else if (x.is_number())
      p.add_number(x.v);
    else if (x.tag() == RB_DTYPE)
      p.add_tensor(1, static_cast<int>(x.v.v.i));
  };
  for (const Val& x : a) {
    if (x.is_list()) {
      for (size_t i = 0; i < x.size(); ++i) join(x.at(i));
    } else {
      join(x);
    }
  }
  return p;
}
int promoted(const Args& a, const std::string& w) {
  const int dtype = promotion(a).result();
  if (dtype < 0) fail(RB_E_TYPE, "%s: no argument has a dtype", w.c_str());
  return dtype;
}
Val d_promote(const Args& a, const std::string& w) { return Val::dtype(promoted(a, w)); }
Val d_float(const Args& a, const std::string& w) {
  const int dtype = promoted(a, w);
  return Val::dtype(is_integral(dtype) ? default_dtype() : dtype);
}
Val d_floating(const Args& a, const std::string& w) {
  const int dtype = promoted(a, w);
  if (is_integral(dtype)) {
    fail(RB_E_DTYPE, "%s: expected a floating or complex dtype, got %s", w.c_str(),
         kDTypes[dtype].name);
  }
  return Val::dtype(dtype);
}
Val d_same(const Args& a, const std::string& w) {  // as a whole rule: infer.cpp
  int dtype = -1;
  for (const Val& x : a) {
    const Described d = describe(x.v);
    if (!d.known || d.dtype == dtype) continue;
    if (dtype >= 0) {
      fail(RB_E_TYPE, "%s: expected tensors of one dtype, got %s and %s", w.c_str(),
           kDTypes[dtype].name, kDTypes[d.dtype].name);
    }
    dtype = d.dtype;
  }
  if (dtype < 0) fail(RB_E_TYPE, "%s: no argument has a dtype", w.c_str());
  return Val::dtype(dtype);
}
Val d_real(const Args& a, const std::string& w) { return Val::dtype(to_real(promoted(a, w))); }
Val d_complex(const Args& a, const std::string& w) {
  return Val::dtype(to_complex(promoted(a, w)));
}
Val d_int_to_int64(const Args& a, const std::string& w) {
  const int dtype = promoted(a, w);
  return Val::dtype(is_integral(dtype) ? +RB_I64 : dtype);
}
Val d_default_float(const Args&, const std::string&) { return Val::dtype(default_dtype()); }
Val d_number_dtype(const Args& a, const std::string&) { return Val::dtype(number_dtype(a[0].v)); }
Val d_range_dtype(const Args& a, const std::string&) {
  for (const Val& x : a) {
    if (x.tag() == RB_FLOAT) return Val::dtype(default_dtype());
  }
  return Val::dtype(RB_I64);
}

}  // namespace

struct HostFunction {
  const char* name;
  int least, most;
  Val (*fn)(const Args&, const std::string&);
  bool dtype_rule;
};

namespace {

const HostFunction kFunctions[] = {{"len", 1, 1, f_len, false},
                                   {"numel", 1, 2, f_numel, false},
                                   {"inverse", 1, 1, f_inverse, false},
                                   {"keepdim_shape", 2, 2, f_keepdim_shape, false},
                                   {"lead_and_ones", 2, 2, f_lead_and_ones, false},
                                   {"flatten_shape", 3, 3, f_flatten_shape, false},
                                   {"unflatten_shape", 3, 3, f_unflatten_shape, false},
                                   {"move_permutation", 3, 3, f_move_permutation, false},
                                   {"split_sizes", 2, 2, f_split_sizes, false},
                                   {"chunk_size", 2, 2, f_chunk_size, false},
                                   {"checked_offsets", 2, 2, f_checked_offsets, false},
                                   {"checked_start", 4, 4, f_checked_start, false},
                                   {"range", 1, 1, f_range, false},
                                   {"last_dims", 2, 2, f_last_dims, false},
                                   {"broadcast_shape", 2, 2, f_broadcast_shape, false},
                                   {"pad_widths", 2, 2, f_pad_widths, false},
                                   {"is_complex", 1, 1, f_is_complex, false},
                                   {"is_single", 1, 1, f_is_single, false},
                                   {"is_bool", 1, 1, f_is_bool, false},
                                   {"promote", 1, 31, d_promote, true},
                                   {"same", 1, 31, d_same, true},
                                   {"float", 1, 31, d_float, true},
                                   {"floating", 1, 31, d_floating, true},
                                   {"real", 1, 1, d_real, true},
                                   {"complex", 1, 1, d_complex, true},
                                   {"int_to_int64", 1, 1, d_int_to_int64, true},
                                   {"default_float", 0, 0, d_default_float, true},
                                   {"number_dtype", 1, 1, d_number_dtype, true},
                                   {"range_dtype", 3, 3, d_range_dtype, true},
                                   {"is_integral", 1, 1, f_is_integral, false},
                                   {"is_unsigned", 1, 1, f_is_unsigned, false},
                                   {"broadcasts_to", 2, 2, f_broadcasts_to, false},
                                   {"all", 1, 1, f_all, true},
                                   {"min", 1, 2, f_min, true},
                                   {"max", 1, 2, f_max, true}};

int64_t floor_div(int64_t a, int64_t b) { return a / b - ((a % b != 0) && ((a < 0) != (b < 0))); }

Val exact(Operator op, const Val& x, const Val& y, const std::string& where) {
  const int64_t a = x.v.v.i, b = y.v.v.i;
  int64_t out = 0;
  const bool wraps = op == Operator::kAdd   ? __builtin_add_overflow(a, b, &out)
                     : op == Operator::kSub ? __builtin_sub_overflow(a, b, &out)
                                            : __builtin_mul_overflow(a, b, &out);
  if (wraps)
    fail(RB_E_ARG, "%s: sizes %lld and %lld are too large together", where.c_str(), (long long)a,
         (long long)b);
  return Val::integer(out);
}

template <class T>
bool holds(Operator op, T a, T b) {
  switch (op) {
    case Operator::kEq:
      return a == b;
    case Operator::kNe:
      return a != b;
    case Operator::kLt:
      return a < b;
    case Operator::kLe:
      return a <= b;
    case Operator::kGt:
      return a > b;
    default:
      return a >= b;
  }
}

Val arithmetic(Operator op, const Val& x, const Val& y, const std::string& where) {
  const bool integers = x.is_integer() && y.is_integer();
  const double a = number_value(x.v), b = number_value(y.v);
  switch (op) {
    case Operator::kAdd:
      return integers ? exact(op, x, y, where) : Val::number(a + b);
    case Operator::kSub:
      return integers ? exact(op, x, y, where) : Val::number(a - b);
    case Operator::kMul:
      return integers ? exact(op, x, y, where) : Val::number(a * b);
    case Operator::kDiv:
      return Val::number(a / b);
    case Operator::kFloorDiv:
    case Operator::kMod: {
      if (!integers || y.v.v.i == 0)
        fail_formula(where, "// and % need integers, and no division by 0");
      if (y.v.v.i == -1) {  // the least int64 has no opposite
        return op == Operator::kMod ? Val::integer(0)
                                    : exact(Operator::kSub, Val::integer(0), x, where);
      }
      const int64_t q = floor_div(x.v.v.i, y.v.v.i);
      return Val::integer(op == Operator::kMod ? x.v.v.i - q * y.v.v.i : q);
    }
    case Operator::kPow:
      return Val::number(std::pow(a, b));
    case Operator::kBitAnd:
      return Val::boolean(x.v.v.i && y.v.v.i);
    case Operator::kBitOr:
      return Val::boolean(x.v.v.i || y.v.v.i);
    default:
      return Val::boolean(integers ? holds(op, x.v.v.i, y.v.v.i) : holds(op, a, b));
  }
}

Val complex_arithmetic(Operator op, const Val& x, const Val& y, const std::string& where) {
  auto parts = [](const Val& v, double* re, double* im) {
    *re = v.tag() == RB_COMPLEX ? v.v.v.fs[0] : number_value(v.v);
    *im = v.tag() == RB_COMPLEX ? v.v.v.fs[1] : 0.0;
  };
  double a, b, c, d;
  parts(x, &a, &b);
  parts(y, &c, &d);
  if (op == Operator::kEq) return Val::boolean(a == c && b == d);
  if (op == Operator::kNe) return Val::boolean(a != c || b != d);
  if (op == Operator::kAdd) return Val::complex(a + c, b + d);
  if (op == Operator::kSub) return Val::complex(a - c, b - d);
  if (op == Operator::kMul) return Val::complex(a * c - b * d, a * d + b * c);
  fail(RB_E_TYPE, "%s: this is not defined for complex numbers", where.c_str());
}

bool equal(const Val& x, const Val& y) {
  if (x.is_list() && y.is_list()) {
    bool same = x.size() == y.size();
    for (size_t i = 0; same && i < x.size(); ++i) same = equal(x.at(i), y.at(i));
    return same;
  }
  if (x.tag() == RB_STR && y.tag() == RB_STR)
    return x.v.len == y.v.len && !std::memcmp(x.v.v.s, y.v.v.s, x.v.len);
  if (x.is_integer() && y.is_integer()) return x.v.v.i == y.v.v.i;
  if (x.is_number() && y.is_number()) return number_value(x.v) == number_value(y.v);
  return x.tag() == y.tag() && x.v.v.i == y.v.v.i;
}

}  // namespace

const HostFunction* find_host_function(const char* name) {
  for (const HostFunction& f : kFunctions) {
    if (!std::strcmp(f.name, name)) return &f;
  }
  return nullptr;
}

bool is_host_function(const char* name, bool dtype_rule) {
  const HostFunction* f = find_host_function(name);
  return f && (!f->dtype_rule || dtype_rule);
}

Val run_host_function(const HostFunction& f, const Val* values, int count,
                      const std::string& where) {
  if (count < f.least || count > f.most) {
    fail_formula(where, std::string(f.name) + " takes " + std::to_string(f.least) + " to " +
                            std::to_string(f.most) + " arguments, got " + std::to_string(count));
  }
  return f.fn(Args(values, count), where);
}

Val host_binary(Operator op, const Val& x, const Val& y, const std::string& where) {
  if (x.is_list() && y.is_list() && op == Operator::kAdd) {
    std::vector<Val> items;
    for (size_t i = 0; i < x.size(); ++i) items.push_back(x.at(i));
    for (size_t i = 0; i < y.size(); ++i) items.push_back(y.at(i));
    return Val::list(std::move(items));
  }
  const bool numbers = x.is_number() && y.is_number();
  if (!numbers && (op == Operator::kEq || op == Operator::kNe)) {
    return Val::boolean(equal(x, y) == (op == Operator::kEq));
  }
  if (!numbers) fail_formula(where, "a formula computes with something that is no number");
  if (x.tag() == RB_COMPLEX || y.tag() == RB_COMPLEX) return complex_arithmetic(op, x, y, where);
  return arithmetic(op, x, y, where);
}

}  // namespace rabbet
