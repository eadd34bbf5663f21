// Kernels: one program per dtype, built from one text at first use; a launch sets arguments and
// enqueues.
#pragma once
#include "device.h"

namespace rbcl {

constexpr uint64_t kBool = 1ull << RB_BOOL8, kInt = 1ull << RB_I32 | 1ull << RB_I64,
                   kFloat = 1ull << RB_F32 | 1ull << RB_F64, kAll = kBool | kInt | kFloat;
inline int item_size(int dtype) {
  return dtype == RB_BOOL8 ? 1 : dtype == RB_I32 || dtype == RB_F32 ? 4 : 8;
}
const char* dtype_name(int dtype);

/// A program of its own: a fused body with its loops. id -1: the program of all other kernels.
struct Extra {
  int id = -1;
  const char* text = nullptr;
};

/// The text that a program of `dtype` is built from.
std::string program_source(int dtype, bool fp64, const Extra& extra);
/// The elementwise functions as rb_NAME(a, ...), written from their table (elementwise.cpp), and
/// their kernels.
std::string elementwise_functions(int dtype);
std::string elementwise_kernels(int dtype);
/// Whether the table has the function for all of `dtypes`.
bool has_body(const char* name, uint64_t dtypes);

constexpr int kGroup = 64;  // work items that run together, where a kernel does not say otherwise

/// One kernel call: Launch(device, RB_F32, "softmax").pointer(x).value(n)....run(n).
class Launch {
 public:
  Launch(Device& device, int dtype, const char* kernel, const Extra& extra = {})
      : device_(device),
        name_(kernel),
        lock_(device.mutex_),
        kernel_(device.kernel(dtype, kernel, extra)) {}

  Launch& pointer(const void* data) {
    check(cl().SetKernelArgSVMPointer(kernel_, count_++, data));
    return *this;
  }
  template <class T>
  Launch& value(const T& v) {
    check(cl().SetKernelArg(kernel_, count_++, sizeof v, &v));
    return *this;
  }
  /// A number in the dtype of the program.
  Launch& number(int dtype, double real, int64_t integer);

  /// `n` work items in a row; nothing for 0.
  void run(int64_t n) {
    const size_t local = kGroup, global = (static_cast<size_t>(n) + kGroup - 1) / kGroup * kGroup;
    if (n > 0) enqueue(1, &global, &local);
  }
  void enqueue(cl_uint dims, const size_t* global, const size_t* local) {
    check(device_.queue(device_.current_stream()).add([&](cl_command_queue queue, cl_event* event) {
      return cl().EnqueueNDRangeKernel(queue, kernel_, dims, nullptr, global, local, 0, nullptr,
                                       event);
    }));
  }

 private:
  void check(cl_int status) const {
    if (__builtin_expect(status != CL_SUCCESS, 0)) fail(status);
  }
  [[noreturn]] void fail(cl_int status) const;

  Device& device_;
  const char* name_;
  std::lock_guard<std::recursive_mutex> lock_;
  cl_kernel kernel_;
  cl_uint count_ = 0;
};

}  // namespace rbcl
