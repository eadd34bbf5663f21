// rabbet/plugin.hpp: a thin C++17 veneer over rabbet/abi.h for plugin authors. Header only; include
// it from C++ files of a plugin, never from core.
//
//   void scale(const rb::Args& a) {                     // may throw
//     const RbTensor& x = a.tensor(0);
//     if (x.ndim != 2) rb::fail(RB_E_ARG, "scale: expected 2 dimensions, got %d", x.ndim);
//     ...
//   }
//   const rb::KernelSpec kKernels[] = {{"my::scale", rb::wrap<scale>, RB_K_CONTIGUOUS}};
//   int32_t init(const RbHost* host, RbTxn* txn) {
//     rb::host = host;
//     return rb::add_kernels(host, txn, "cpu", kKernels);
//   }
#ifndef RABBET_PLUGIN_HPP
#define RABBET_PLUGIN_HPP

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <type_traits>

#include "rabbet/abi.h"
#include "rabbet/thread_end.hpp"
#include "rabbet/values.hpp"

namespace rb {

/// What a plugin's own code throws; `wrap` turns it into a status code and a message.
class Error : public std::exception {
 public:
  Error(int32_t code, const char* format, va_list list) noexcept : code_(code) {
    std::vsnprintf(message_, sizeof message_, format, list);
  }
  int32_t code() const noexcept { return code_; }
  const char* what() const noexcept override { return message_; }

 private:
  int32_t code_;
  char message_[480];
};

/// Throw Error{code, printf-formatted message}.
[[noreturn]] __attribute__((format(printf, 2, 3), cold, noinline)) inline void fail(
    int32_t code, const char* format, ...) {
  va_list list;
  va_start(list, format);
  Error error(code, format, list);
  va_end(list);
  throw error;
}

/// Store a printf-formatted message in the thread's error record; returns `code`. For code that
/// does not throw.
__attribute__((format(printf, 2, 3), cold, noinline)) inline int32_t set_error(int32_t code,
                                                                               const char* format,
                                                                               ...) {
  char message[480];
  va_list list;
  va_start(list, format);
  std::vsnprintf(message, sizeof message, format, list);
  va_end(list);
  return host->err_set(code, message);
}

/// A host function returned an error whose message is already stored: carries the code to the
/// boundary.
struct Stored {
  int32_t code;
};
/// Throw if a host function did not return RB_OK.
inline void check(int32_t code) {
  if (__builtin_expect(code != RB_OK, 0)) throw Stored{code};
}

/// Run `body`, which may throw, and return a status code.
template <class Body>
int32_t guarded(Body&& body) noexcept {
  try {
    body();
    return RB_OK;
  } catch (const Stored& stored) {
    return stored.code;
  } catch (const Error& error) {
    return host->err_set(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return host->err_set(RB_E_OOM, "out of host memory");
  } catch (const std::exception& error) {
    return host->err_set(RB_E_INTERNAL, error.what());
  } catch (const ThreadEnd&) {
    hold_thread();
  } catch (...) {
    return host->err_set(RB_E_INTERNAL, "unknown C++ exception in a plugin");
  }
}

/// `len` elements at `data`, borrowed.
template <class T>
struct Span {
  const T* data;
  uint32_t len;
  const T& operator[](size_t i) const { return data[i]; }
  const T* begin() const { return data; }
  const T* end() const { return data + len; }
};

inline bool is_number(const RbValue& v) {
  return (v.tag >= RB_BOOL && v.tag <= RB_COMPLEX) || v.tag == RB_UINT;
}
/// Real part of a number.
inline double to_double(const RbValue& v) {
  switch (v.tag) {
    case RB_FLOAT:
      return v.v.f;
    case RB_COMPLEX:
      return v.v.fs[0];
    case RB_UINT:
      return static_cast<double>(v.v.u);
    default:
      return static_cast<double>(v.v.i);
  }
}
/// A number as an integer, towards zero; one above INT64_MAX wraps.
inline int64_t to_int(const RbValue& v) {
  return v.tag == RB_BOOL || v.tag == RB_INT || v.tag == RB_UINT
             ? v.v.i
             : static_cast<int64_t>(to_double(v));
}

/// The arguments and results of one call, with typed access. Accessors throw when the type is
/// another one.
class Args {
 public:
  void* self;
  const RbCall* call;
  const RbValue* args;
  int32_t nargs;
  RbValue* rets;
  int32_t nrets;

  const char* op_name() const { return call && call->op ? host->op_info(call->op)->name : "op"; }

  bool has(int i) const { return i < nargs && args[i].tag != RB_NONE; }
  const RbTensor& tensor(int i) const {
    need(i, args[i].tag == RB_TENSOR, "a tensor");
    return *args[i].v.t;
  }
  /// Null where the argument is None.
  const RbTensor* optional_tensor(int i) const { return has(i) ? &tensor(i) : nullptr; }
  Span<RbTensor*> tensors(int i) const {
    need(i, args[i].tag == RB_TENSORS, "a list of tensors");
    return {args[i].v.ts, args[i].len};
  }
  int64_t integer(int i) const {
    need(i, args[i].tag == RB_INT || args[i].tag == RB_BOOL, "an int");
    return args[i].v.i;
  }
  double real(int i) const {
    need(i, is_number(args[i]), "a number");
    return to_double(args[i]);
  }
  bool boolean(int i) const { return integer(i) != 0; }
  /// Empty for None.
  const char* str(int i) const {
    if (!has(i)) return "";
    need(i, args[i].tag == RB_STR, "a str");
    return args[i].v.s;
  }
  Span<int64_t> ints(int i) const {
    if (has(i) && args[i].tag == RB_INT) return {&args[i].v.i, 1};
    need(i, args[i].tag == RB_INTS, "a list of ints");
    return {args[i].v.is, args[i].len};
  }
  Span<uint8_t> bools(int i) const {
    need(i, args[i].tag == RB_BOOLS, "a list of bools");
    return {args[i].v.bs, args[i].len};
  }
  Span<const char*> strs(int i) const {
    need(i, args[i].tag == RB_STRS, "a list of strs");
    return {args[i].v.ss, args[i].len};
  }
  Span<RbValue> scalars(int i) const {
    need(i, args[i].tag == RB_SCALARS, "a list of numbers");
    return {args[i].v.vs, args[i].len};
  }
  RbGenerator* generator(int i) const { return has(i) ? args[i].v.gen : nullptr; }

  RbTensor& ret(int i = 0) const { return *rets[i].v.t; }
  void set_ret(int i, RbTensor* owned) const {
    rets[i].tag = RB_TENSOR;
    rets[i].len = 0;
    rets[i].v.t = owned;
  }

 private:
  void need(int i, bool ok, const char* what) const {
    if (__builtin_expect(i < nargs && ok, 1)) return;
    const char* name = "?";
    if (call && call->op) {
      const RbOpInfo* info = host->op_info(call->op);
      if (i < info->nargs) name = arg_info(*info, i).name;
    }
    fail(RB_E_TYPE, "%s: argument `%s` must be %s", op_name(), name, what);
  }
};

/// A kernel or layer function out of `F`, a function `void(const rb::Args&)` that may throw.
template <auto F>
int32_t wrap(void* self, const RbCall* call, const RbValue* args, int32_t nargs, RbValue* rets,
             int32_t nrets) noexcept {
  return guarded([&] { F(Args{self, call, args, nargs, rets, nrets}); });
}

/// Run `body(begin, end)` over [0, n) on the host's pool. An exception in `body` is carried to the
/// caller (of several, the first one that was noticed).
template <class Body>
void parallel_for(int64_t n, int64_t grain, const Body& body) {
  if (n <= 0) return;
  if (n <= grain) return body(int64_t{0}, n);
  struct Ctx {
    const Body* body;
    std::exception_ptr error;
    int taken;
  } ctx{&body, nullptr, 0};
  const int32_t rc = host->parallel_for(
      n, grain,
      [](int64_t begin, int64_t end, void* p) {
        Ctx& c = *static_cast<Ctx*>(p);
        try {
          (*c.body)(begin, end);
        } catch (...) {
          if (!__atomic_exchange_n(&c.taken, 1, __ATOMIC_ACQ_REL))
            c.error = std::current_exception();
        }
      },
      &ctx);
  if (rc != RB_OK) throw Stored{rc};
  if (ctx.taken) std::rethrow_exception(ctx.error);
}

/// Scratch memory of trivially destructible elements from the host's cached blocks, released at the
/// end of scope.
template <class T>
class Scratch {
 public:
  explicit Scratch(size_t n) : bytes_(n * sizeof(T) + (n == 0)) {
    static_assert(std::is_trivially_destructible_v<T>);
    if (n > (SIZE_MAX >> 4) / sizeof(T)) throw std::bad_alloc();
    data_ = static_cast<T*>(host->block_alloc(bytes_));
    if (!data_) throw std::bad_alloc();
  }
  ~Scratch() { host->block_free(data_, bytes_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  T* data() const { return data_; }
  T& operator[](size_t i) const { return data_[i]; }

 private:
  size_t bytes_;
  T* data_;
};

/// One row of a plugin's kernel table.
struct KernelSpec {
  const char* op;
  RbFn fn;
  uint32_t flags = 0;       // RB_K_*
  uint64_t dtype_mask = 0;  // 0: every dtype of the header
  const void* self = nullptr;
};

#ifdef RABBET_SCHEMAS
extern "C" {
extern const char* const rabbet_schemas[];  // of core's operators, sorted (rabbet_add_plugin)
extern const unsigned rabbet_schema_count;
}
#endif
/// The signature of the operator that the plugin was built against; null: none of core's.
inline const char* schema_of([[maybe_unused]] const char* op) {
#ifdef RABBET_SCHEMAS
  const size_t length = std::strlen(op);
  unsigned first = 0, last = rabbet_schema_count;
  while (first < last) {
    const unsigned middle = (first + last) / 2;
    const char* const schema = rabbet_schemas[middle];
    int order = std::strncmp(schema, op, length);
    if (order == 0) order = static_cast<int>(schema[length]) - '(';
    if (order == 0) return schema;
    if (order < 0) {
      first = middle + 1;
    } else {
      last = middle;
    }
  }
#endif
  return nullptr;
}

/// Register `count` kernels for `backend` inside a transaction; stops at the first error.
inline int32_t add_kernels(const RbHost* h, RbTxn* txn, const char* backend,
                           const KernelSpec* specs, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    RbKernel kernel;
    std::memset(&kernel, 0, sizeof kernel);
    kernel.struct_size = RB_SIZE(RbKernel, reserved);
    kernel.flags = specs[i].flags;
    kernel.op = specs[i].op;
    kernel.backend = backend;
    kernel.schema = schema_of(specs[i].op);
    kernel.fn = specs[i].fn;
    kernel.self = const_cast<void*>(specs[i].self);
    kernel.dtype_mask = specs[i].dtype_mask;
    if (int32_t code = h->add_kernel(txn, &kernel)) return code;
  }
  return RB_OK;
}
template <size_t N>
int32_t add_kernels(const RbHost* h, RbTxn* txn, const char* backend,
                    const KernelSpec (&specs)[N]) {
  return add_kernels(h, txn, backend, specs, N);
}

/// A rule of an operator that is a function. `reads_args` and `reads_rets`: of a vjp, whose values
/// it reads.
inline int32_t add_rule(const RbHost* h, RbTxn* txn, const char* op, int32_t rule, RbFn fn,
                        uint64_t reads_args = ~uint64_t{0}, uint64_t reads_rets = ~uint64_t{0}) {
  RbRule r;
  std::memset(&r, 0, sizeof r);
  r.struct_size = sizeof r;
  r.flags = RB_RULE_READS;
  r.op = op;
  r.schema = schema_of(op);
  r.rule = rule;
  r.fn = fn;
  r.reads_args = reads_args;
  r.reads_rets = reads_rets;
  return h->add_rule(txn, &r);
}

}  // namespace rb
#endif
