// Products by cuBLASLt. Matrices in rows are its matrices in columns, transposed: it computes
// C^T = B^T A^T without a copy.
#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "device/timing.h"
#include "driver/cublaslt.h"
#include "launch/temporary.h"
#include "ops/families.h"
#include "ops/library_plans.h"
#include "ops/product.h"
#include "ops/settings.h"

namespace rbcuda {
namespace {

// How a product of two dtypes is computed, of those that the library knows.
struct Numbers {
  int operands, results, scale, compute;
  bool activates;  // epilogues know it
};
constexpr Numbers kNumbers[] = {
    {RB_F32, RB_F32, kR32F, kCompute32, true},   {RB_F16, RB_F16, kR32F, kCompute32, true},
    {RB_BF16, RB_BF16, kR32F, kCompute32, true}, {RB_F16, RB_F32, kR32F, kCompute32, true},
    {RB_BF16, RB_F32, kR32F, kCompute32, true},  {RB_F64, RB_F64, kR64F, kCompute64, false},
    {RB_C64, RB_C64, kC32F, kCompute32, false},  {RB_C128, RB_C128, kC64F, kCompute64, false},
    {RB_I8, RB_I32, kR32I, kCompute32I, false},
};
constexpr Numbers kFloat8Numbers[] = {{-1, RB_F32, kR32F, kCompute32, false},
                                      {-1, RB_F16, kR32F, kCompute32, true},
                                      {-1, RB_BF16, kR32F, kCompute32, true}};
const Numbers* numbers_of(int operands, int results) {
  if (float8_dtypes().has(operands)) {
    for (const Numbers& n : kFloat8Numbers) {
      if (n.results == results) return &n;
    }
  }
  for (const Numbers& n : kNumbers) {
    if (n.operands == operands && n.results == results) return &n;
  }
  return nullptr;
}
// cudaDataType
int type_of(int dtype) {
  switch (dtype) {
    case RB_F32:
      return kR32F;
    case RB_F64:
      return kR64F;
    case RB_F16:
      return kR16F;
    case RB_BF16:
      return kR16BF;
    case RB_C64:
      return kC32F;
    case RB_C128:
      return kC64F;
    case RB_I8:
      return kR8I;
    case RB_I32:
      return kR32I;
    default:
      return dtype == float8_dtypes().e5m2 ? kR8E5M2 : kR8E4M3;
  }
}

// ---- what the library is asked: equal questions have equal answers

struct LtMatrix {
  int32_t turned;     // k is its first dimension where ours is not, or the other way round
  uint32_t aligned;   // bytes, of the address in every batch
  int64_t ld, batch;  // strides
};
struct Question {
  int32_t device, operands, second, results, epilogue, tf32, reduced, adds, fast, scaled;
  int64_t m, n, k, batches;
  LtMatrix a, b, added, c;
};

// What is a part of a description, but not of the question.
struct Addresses {
  const void *bias, *scales[2];
};

// ---- the library's objects

struct Destroy {
  void operator()(LtDescription x) const { cublaslt()->description_destroy(x); }
  void operator()(LtLayout x) const { cublaslt()->layout_destroy(x); }
  void operator()(LtPreference x) const { cublaslt()->preference_destroy(x); }
};
template <class T>
using Owned = std::unique_ptr<std::remove_pointer_t<T>, Destroy>;

struct Plan {
  Owned<LtDescription> description;
  Owned<LtLayout> a, b, added, c;
  std::vector<LtChoice> choices;  // the one in use first; empty if no algorithm runs
};

template <class T>
void set(const Plan& plan, int device, int attribute, const T& value) {
  check_cublaslt(
      cublaslt()->description_set(plan.description.get(), attribute, &value, sizeof value), device,
      "cublasLtMatmulDescSetAttribute");
}

// Of `lines` of `length` elements.
Owned<LtLayout> layout(const Question& q, int type, int64_t length, int64_t lines,
                       const LtMatrix& x) {
  const CublasLt& lt = *cublaslt();
  LtLayout made = nullptr;
  check_cublaslt(lt.layout_create(&made, type, length, lines, x.ld), q.device,
                 "cublasLtMatrixLayoutCreate");
  Owned<LtLayout> owned(made);
  const auto batches = static_cast<int32_t>(q.batches);
  constexpr const char* kSet = "cublasLtMatrixLayoutSetAttribute";
  check_cublaslt(lt.layout_set(made, kLtBatchCount, &batches, sizeof batches), q.device, kSet);
  check_cublaslt(lt.layout_set(made, kLtBatchStride, &x.batch, sizeof x.batch), q.device, kSet);
  return owned;
}

constexpr uint64_t kWorkspace = 32 << 20;

Owned<LtPreference> preference(const Question& q) {
  const CublasLt& lt = *cublaslt();
  LtPreference made = nullptr;
  check_cublaslt(lt.preference_create(&made), q.device, "cublasLtMatmulPreferenceCreate");
  Owned<LtPreference> owned(made);
  const auto prefer = [&](int attribute, const auto& value) {
    check_cublaslt(lt.preference_set(made, attribute, &value, sizeof value), q.device,
                   "cublasLtMatmulPreferenceSetAttribute");
  };
  prefer(kLtMostWorkspace, kWorkspace);
  prefer(kLtAlignmentA, q.b.aligned);  // its first operand is our second
  prefer(kLtAlignmentB, q.a.aligned);
  prefer(kLtAlignmentC, q.added.aligned);
  prefer(kLtAlignmentD, q.c.aligned);
  const uint32_t reductions = q.reduced ? kReductions : kReductions & ~kReductionInOutput;
  prefer(kLtReductions, reductions);
  return owned;
}

void set_addresses(const Plan& plan, int device, const Addresses& at) {
  if (at.bias) set(plan, device, kLtBias, at.bias);
  if (at.scales[0]) set(plan, device, kLtScaleB, at.scales[0]);
  if (at.scales[1]) set(plan, device, kLtScaleA, at.scales[1]);
}

// The library's algorithms, best first.
std::vector<LtChoice> choices_of(const Plan& plan, const Question& q, LtHandle handle) {
  constexpr int kMostChoices = 8;
  std::vector<LtChoice> choices(kMostChoices);
  int count = 0;
  const int status = cublaslt()->choose(handle, plan.description.get(), plan.b.get(), plan.a.get(),
                                        plan.added.get(), plan.c.get(), preference(q).get(),
                                        kMostChoices, choices.data(), &count);
  if (status == kLtNotSupported || status == kLtOtherArchitecture) return {};
  check_cublaslt(status, q.device, "cublasLtMatmulAlgoGetHeuristic");
  choices.resize(static_cast<size_t>(std::clamp(count, 0, kMostChoices)));
  const auto fails = [](const LtChoice& choice) { return choice.status != 0; };
  choices.erase(std::remove_if(choices.begin(), choices.end(), fails), choices.end());
  choices.shrink_to_fit();
  return choices;
}

Plan plan_of(const Question& q, LtHandle handle, const Addresses& at) {
  const CublasLt& lt = *cublaslt();
  const Numbers& numbers = *numbers_of(q.operands, q.results);
  Plan plan;
  LtDescription made = nullptr;
  check_cublaslt(
      lt.description_create(&made, q.tf32 ? kComputeTf32 : numbers.compute, numbers.scale),
      q.device, "cublasLtMatmulDescCreate");
  plan.description.reset(made);
  const int32_t turns_a = q.b.turned ? kTurned : 0, turns_b = q.a.turned ? kTurned : 0;
  set(plan, q.device, kLtTransposeA, turns_a);
  set(plan, q.device, kLtTransposeB, turns_b);
  set(plan, q.device, kLtEpilogue, q.epilogue);
  const int a = type_of(q.operands), b = type_of(q.second), c = type_of(q.results);
  if (q.fast) set(plan, q.device, kLtFastSums, int8_t{1});
  // Of floats of 8 bits the bias has another dtype unless it is told.
  if (at.bias && float8_dtypes().has(q.operands)) set(plan, q.device, kLtBiasType, c);
  set_addresses(plan, q.device, at);
  plan.a = q.a.turned ? layout(q, a, q.m, q.k, q.a) : layout(q, a, q.k, q.m, q.a);
  plan.b = q.b.turned ? layout(q, b, q.k, q.n, q.b) : layout(q, b, q.n, q.k, q.b);
  plan.added = layout(q, c, q.n, q.m, q.added);
  plan.c = layout(q, c, q.n, q.m, q.c);
  plan.choices = choices_of(plan, q, handle);
  return plan;
}

constexpr const char* kLibrary = "cuBLASLt";
constexpr size_t kMostPlans = 4096;  // on each device

// One call at a time: addresses are a part of a plan.
struct State {
  std::mutex mutex;
  Started<LtHandle> handle;
  LruCache<Question, Plan, HashWords, EqualWords> plans{kMostPlans};
};

// ---- operands as the library takes them

// The largest power of two that divides addresses of these bits, up to what the library asks for.
uint32_t alignment(uintptr_t offsets) {
  constexpr uintptr_t kMost = 256;
  offsets |= kMost;
  return static_cast<uint32_t>(offsets & -offsets);
}

// Whether rows of `columns` elements lie one behind another, with gaps or without.
bool lies_in_rows(const Matrix& x, int64_t rows, int64_t columns) {
  return (x.column == 1 || columns == 1) && (rows == 1 || x.row >= columns);
}

int dtype_of_second(const Product& p) { return p.second < 0 ? p.operands : p.second; }

// The matrix and its batches as a tensor; `k`: 0 the result, 1 and 2 the operands, 3 what is added.
View view_of(const Product& p, const Matrix& x, int k, int64_t rows, int64_t columns) {
  View view = scalar_view(*p.out);
  view.set_data(x.data);
  view.set_dtype(k == 1 ? p.operands : k == 2 ? dtype_of_second(p) : p.results);
  for (int d = 0; d < p.batch.ndim; ++d) {
    const bool broadcasts = p.batch.strides[k][d] == 0;
    view.add(broadcasts ? 1 : p.batch.shape[d], p.batch.strides[k][d]);
  }
  view.add(rows, x.row);
  view.add(columns, x.column);
  return view;
}

// Let `x`, operand `k` of the batch, be in rows without gaps in memory of its own.
Temporary moved(Product& p, Matrix& x, int k, int64_t rows, int64_t columns) {
  const View view = view_of(p, x, k, rows, columns);
  Temporary made(*p.out, view.tensor().dtype_id, view.ndim(), view.tensor().shape);
  for (int d = 0; d < p.batch.ndim; ++d)
    p.batch.strides[k][d] =
        p.batch.shape[d] == 1 || p.batch.strides[k][d] == 0 ? 0 : made.tensor().strides[d];
  x = {made.data(), columns, 1};
  return made;
}

// The dimension of the batch that the library walks; -1: none can be.
int walked(const Product& p) {
  int best = -1;
  for (int d = 0; d < p.batch.ndim; ++d) {
    const int64_t size = p.batch.shape[d];
    bool can = size > 1 && size <= INT32_MAX && p.batch.strides[0][d] >= p.c.row;
    for (int k = 0; k < kLayoutTensors; ++k) can = can && p.batch.strides[k][d] >= 0;
    if (can && (best < 0 || size > p.batch.shape[best])) best = d;
  }
  return best;
}

// The bits of the strides, in bytes, between the matrices of operand `k`.
uintptr_t offsets_in_batch(const Product& p, int k, int dtype) {
  uintptr_t offsets = 0;
  for (int d = 0; d < p.batch.ndim; ++d)
    if (p.batch.shape[d] > 1)
      offsets |= static_cast<uintptr_t>(p.batch.strides[k][d] * stored_size(dtype));
  return offsets;
}

LtMatrix asked(const Matrix& x, int64_t rows, int64_t columns, uintptr_t offsets, int64_t batch) {
  const bool in_rows = lies_in_rows(x, rows, columns);
  const Matrix& lines = in_rows ? x : turned(x);
  const int64_t length = in_rows ? columns : rows, count = in_rows ? rows : columns;
  return {!in_rows, alignment(reinterpret_cast<uintptr_t>(x.data) | offsets),
          count == 1 ? length : lines.row, batch};
}

struct Scalar {  // in the cudaDataType of the sums
  Scalar(const RbValue& v, int type) {
    const double re = rb::to_double(v), im = v.tag == RB_COMPLEX ? v.v.fs[1] : 0.0;
    if (type == kR64F || type == kC64F) {
      const double parts[] = {re, im};
      std::memcpy(bytes, parts, sizeof parts);
    } else if (type == kR32I) {
      const auto whole = static_cast<int32_t>(rb::to_int(v));
      std::memcpy(bytes, &whole, sizeof whole);
    } else {
      const float parts[] = {static_cast<float>(re), static_cast<float>(im)};
      std::memcpy(bytes, parts, sizeof parts);
    }
  }
  alignas(16) char bytes[16];
};

void* shifted(const void* data, int64_t elements, int dtype) {
  return static_cast<char*>(const_cast<void*>(data)) + elements * stored_size(dtype);
}

// One call of the library for each index of the batch's other dimensions.
class Calls {
 public:
  Calls(const Product& p, const Numbers& numbers, int epilogue, const void* bias)
      : p_(p),
        addresses_{bias, {p.scales[0], p.scales[1]}},
        walked_(walked(p)),
        alpha_(p.alpha, numbers.scale),
        beta_(p.added.data ? p.beta : rb::int_value(0), numbers.scale) {
    const auto stride = [&](int k) { return walked_ < 0 ? 0 : p.batch.strides[k][walked_]; };
    q_.device = p.out->device.id;
    q_.operands = p.operands;
    q_.second = dtype_of_second(p);
    q_.results = p.results;
    q_.fast = p.fast;
    q_.scaled = p.scales[0] != nullptr;
    q_.epilogue = epilogue;
    q_.tf32 = p.operands == RB_F32 && setting("cuda.matmul.allow_tf32", 0);
    q_.reduced = p.operands == RB_F16
                     ? setting("cuda.matmul.allow_fp16_reduced_precision_reduction", 1) != 0
                 : p.operands == RB_BF16
                     ? setting("cuda.matmul.allow_bf16_reduced_precision_reduction", 1) != 0
                     : 1;
    q_.adds = p.added.data != nullptr;
    q_.m = p.m, q_.n = p.n, q_.k = p.k;
    q_.batches = walked_ < 0 ? 1 : p.batch.shape[walked_];
    const auto offsets = [&](int k, int dtype) {
      return p.batch.n > 1 ? offsets_in_batch(p, k, dtype) : 0;
    };
    q_.a = asked(p.a, p.m, p.k, offsets(1, q_.operands), stride(1));
    q_.b = asked(p.b, p.k, p.n, offsets(2, q_.second), stride(2));
    q_.c = asked(p.c, p.m, p.n, offsets(0, q_.results), stride(0));
    q_.added = p.added.data ? asked(p.added, p.m, p.n, offsets(3, q_.results), stride(3)) : q_.c;
  }

  /// False if no algorithm of the library runs. Some of the results may be written then.
  bool enqueue() {
    Device& device = device_of(*p_.out);
    device.enter();
    const RelaxedCapture relaxed;  // it takes memory and loads modules when a plan is new
    State& state = state_of<State>(q_.device);
    const std::lock_guard<std::mutex> lock(state.mutex);
    const LtHandle handle = state.handle.get(kLibrary, q_.device, cublaslt()->create);
    if (!handle) return false;
    bool is_new = false;
    Plan& plan = state.plans.get(q_, [&] {
      is_new = true;
      return planned(device, handle);
    });
    if (plan.choices.empty()) return false;
    if (!is_new) set_addresses(plan, q_.device, addresses_);
    for (int64_t i = 0, n = p_.batch.n / q_.batches; i < n; ++i) {
      int64_t offset[kLayoutTensors] = {}, rest = i;
      for (int d = p_.batch.ndim - 1; d >= 0; --d) {
        if (d == walked_) continue;
        for (int k = 0; k < kLayoutTensors; ++k)
          offset[k] += rest % p_.batch.shape[d] * p_.batch.strides[k][d];
        rest /= p_.batch.shape[d];
      }
      const auto run = [&](const LtChoice& choice) {
        return multiply(device, handle, plan, choice, offset);
      };
      if (!run_first(plan.choices, run, [] { return false; })) return false;
    }
    return true;
  }

 private:
  // Without choices, and with a warning, if the library fails.
  Plan planned(Device& device, LtHandle handle) const {
    try {
      return plan_of(q_, handle, addresses_);
    } catch (const rb::Error& error) {
      plan_failed(kLibrary, p_.op, device, device.current_stream(), error.what());
      return {};
    }
  }

  Attempt multiply(Device& device, LtHandle handle, const Plan& plan, const LtChoice& choice,
                   const int64_t* offset) {
    Temporary workspace;
    try {
      if (choice.workspace) workspace = Temporary(*p_.out, static_cast<int64_t>(choice.workspace));
    } catch (const rb::Stored& error) {
      if (error.code != RB_E_OOM) throw;
      return Attempt::kNoMemory;
    }
    void* const c = shifted(p_.c.data, offset[0], q_.results);
    const void* const a = shifted(p_.a.data, offset[1], q_.operands);
    const void* const b = shifted(p_.b.data, offset[2], q_.second);
    const void* const added = q_.adds ? shifted(p_.added.data, offset[3], q_.results) : c;
    const CuStream stream = device.current_stream();
    const Timed timed(device, stream, p_.op);
    const int status =
        cublaslt()->multiply(handle, plan.description.get(), alpha_.bytes, b, plan.b.get(), a,
                             plan.a.get(), beta_.bytes, added, plan.added.get(), c, plan.c.get(),
                             &choice.algorithm, workspace.data(), choice.workspace, stream);
    if (__builtin_expect(status == 0, 1)) return Attempt::kDone;
    if (status == kLtNoMemory) return Attempt::kNoMemory;
    plan_failed(kLibrary, p_.op, device, stream, cublaslt_failure("cublasLtMatmul", status));
    return Attempt::kFailed;
  }

  const Product& p_;
  const Addresses addresses_;
  const int walked_;
  const Scalar alpha_, beta_;
  Question q_ = {};
};

bool is_one(const RbValue& v) {
  return rb::to_double(v) == 1 && (v.tag != RB_COMPLEX || v.v.fs[1] == 0);
}

// One row that is added to all rows of all batches, and that the library's kernels can read: they
// do so in 16 bytes, and are not told the alignment.
bool is_bias(const Product& p) {
  return p.added.data && is_one(p.beta) && p.added.row == 0 && p.added.column == 1 &&
         alignment(reinterpret_cast<uintptr_t>(p.added.data)) >= 16 &&
         std::all_of(p.batch.strides[3], p.batch.strides[3] + p.batch.ndim,
                     [](int64_t stride) { return stride == 0; });
}

// Of the library's GELU the formula is the one with tanh.
int epilogue_of(const Product& p, bool bias) {
  const int activation = !std::strcmp(p.activation, "relu")        ? kEpilogueRelu
                         : !std::strcmp(p.activation, "gelu_tanh") ? kEpilogueGelu
                                                                   : 0;
  const int epilogue = activation | (bias ? kEpilogueBias : 0);
  return epilogue ? epilogue : kEpilogueDefault;
}
bool knows_activation(const Product& p, const Numbers& numbers) {
  return !*p.activation || (numbers.activates && (epilogue_of(p, false) & kEpilogueDefault) == 0);
}

bool may_be_read(const Matrix& x, int64_t rows, int64_t columns) {
  return lies_in_rows(x, rows, columns) || lies_in_rows(turned(x), columns, rows);
}

}  // namespace

// The sums by the library, then the activation, in the result's memory if that has no gaps.
static bool multiply_and_activate(const Product& product) {
  Product sums = product;
  sums.activation = "";
  Temporary values;
  if (!(product.out->flags & RB_T_CONTIGUOUS)) values = moved(sums, sums.c, 0, sums.m, sums.n);
  if (!multiply_by_library(sums)) return false;
  activate(product, sums.c.data);
  return true;
}

bool multiply_by_library(const Product& product) {
  const Numbers* numbers = numbers_of(product.operands, product.results);
  if (!numbers || product.k == 0 || !cublaslt()) return false;
  if (!knows_activation(product, *numbers)) return multiply_and_activate(product);
  const bool turns = !lies_in_rows(product.c, product.m, product.n);
  Product p = turns ? transposed(product) : product;
  Temporary a, b, result;
  if (!may_be_read(p.a, p.m, p.k)) {
    const View from = view_of(p, p.a, 1, p.m, p.k);
    a = moved(p, p.a, 1, p.m, p.k);
    copy(p.op, a.tensor(), from.tensor());
  }
  if (!may_be_read(p.b, p.k, p.n)) {
    const View from = view_of(p, p.b, 2, p.k, p.n);
    b = moved(p, p.b, 2, p.k, p.n);
    copy(p.op, b.tensor(), from.tensor());
  }
  std::optional<View> target;  // where the library cannot write
  if (!lies_in_rows(p.c, p.m, p.n)) {
    target.emplace(view_of(p, p.c, 0, p.m, p.n));
    result = moved(p, p.c, 0, p.m, p.n);
  }
  const bool bias = numbers->activates && is_bias(p);
  const void* row = bias ? p.added.data : nullptr;
  if (bias) p.added = {};
  if (p.added.data && !lies_in_rows(p.added, p.m, p.n)) {
    // What is added goes into the result first.
    copy(p.op, view_of(p, p.c, 0, p.m, p.n).tensor(), view_of(p, p.added, 3, p.m, p.n).tensor());
    p.added = p.c;
    std::copy_n(p.batch.strides[0], kLayoutDims, p.batch.strides[3]);
  }
  if (!Calls(p, *numbers, epilogue_of(p, bias), row).enqueue()) return false;
  if (target) copy(p.op, target->tensor(), result.tensor());
  return true;
}

}  // namespace rbcuda
