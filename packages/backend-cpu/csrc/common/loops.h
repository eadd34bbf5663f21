// The one loops header: broadcasting, strided, threaded loops over 1..3 inputs. A kernel supplies a
// 1-d loop
// (`Loop`) per dtype and instruction-set level; everything about shapes and threads lives in
// loops.cpp.
#pragma once
#include <cstdint>

#include "rabbet/abi.h"

struct RbTensor;
struct RbValue;

namespace rbcpu {

constexpr int kMaxDims = RB_MAX_DIMS;
constexpr int kMaxInputs = 3;
constexpr int64_t kGrain = 32768;      // elements per task, bandwidth-bound
constexpr int64_t kGrainHeavy = 8192;  // transcendental functions

/// One run of the innermost dimension; strides in bytes, any value.
struct LoopArgs {
  int64_t n;
  char* out;
  int64_t out_stride;
  const char* in[kMaxInputs];
  int64_t in_stride[kMaxInputs];
  const void* ctx;
};
enum LoopStatus { kLoopOk = 0, kLoopZeroDivision = 1 };
using Loop = int (*)(const LoopArgs*);

/// What `run_loop` walks over: output and inputs with byte strides over `shape`.
struct LoopSpace {
  int ndim;
  int nin;
  int64_t shape[kMaxDims];
  char* out;
  int64_t out_strides[kMaxDims];
  const char* in[kMaxInputs];
  int64_t in_strides[kMaxInputs][kMaxDims];
  const void* ctx;  // handed to the loop
};

/// An input: a tensor, or one element of `value` at stride 0.
struct LoopInput {
  const RbTensor* tensor;
  const void* value;
  int item;  // bytes per element
};

/// Broadcast `inputs` to `out` and run `loop` over everything. Returns a LoopStatus.
int run_elementwise(Loop loop, const RbTensor& out, const LoopInput* inputs, int nin, int64_t grain,
                    const void* ctx = nullptr);

/// Sort and merge the dimensions of `space` so that the innermost one is the output's fastest.
void simplify(LoopSpace& space);
/// Run `loop` over `space` on the pool.
int run_space(LoopSpace& space, Loop loop, int64_t grain);

}  // namespace rbcpu
