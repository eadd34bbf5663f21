// Matrices as cuSOLVER and cuBLAS take them, and calls of the two.
#pragma once
#include <mutex>
#include <vector>

#include "device/device.h"
#include "device/dtypes.h"
#include "driver/cublas.h"
#include "driver/cublaslt.h"
#include "driver/cusolver.h"
#include "launch/temporary.h"
#include "launch/view.h"

namespace rbcuda {

constexpr uint64_t kSolved =
    uint64_t{1} << RB_F32 | uint64_t{1} << RB_F64 | uint64_t{1} << RB_C64 | uint64_t{1} << RB_C128;

inline bool is_complex(int dtype) { return dtype == RB_C64 || dtype == RB_C128; }
inline int real_dtype(int dtype) { return dtype == RB_F32 || dtype == RB_C64 ? +RB_F32 : +RB_F64; }
/// cudaDataType
inline int data_type(int dtype) {
  return dtype == RB_F32 ? kR32F : dtype == RB_F64 ? kR64F : dtype == RB_C64 ? kC32F : kC64F;
}
/// The function of a table for the dtype: by_dtype(dtype, table.f_s, table.f_d, ...).
template <class F>
F by_dtype(int dtype, F s, F d, F c, F z) {
  return dtype == RB_F32 ? s : dtype == RB_F64 ? d : dtype == RB_C64 ? c : z;
}
#define RB_BY_DTYPE(dtype, table, name) \
  by_dtype(dtype, (table).name##_s, (table).name##_d, (table).name##_c, (table).name##_z)

/// Column-major matrices without gaps, one behind another.
class Columns {
 public:
  /// Those of a result: its own memory where they lie so, else some that done() copies from.
  Columns(const char* op, const RbTensor& out);
  /// Scratch memory for matrices of `like`'s dtype, one for each of its.
  Columns(const char* op, const RbTensor& like, int64_t rows, int64_t columns);

  /// Copies matrices, which broadcast; with `adjoint` their conjugate transposes.
  void load(const RbTensor& from, bool adjoint = false) const;
  /// Copies the first columns and rows of other matrices.
  void load(const Columns& from) const;
  void done() const;

  int64_t count = 1, rows, columns;
  int dtype() const { return view_.tensor().dtype_id; }
  int64_t ld() const { return rows > 0 ? rows : 1; }
  int64_t size() const { return rows * columns; }
  char* at(int64_t i) const;
  /// With the dimensions of the tensor that it was made for.
  const RbTensor& tensor() const { return view_.tensor(); }
  /// As (count, size), and its real and imaginary parts as one line each.
  View flat() const;
  /// The matrices' addresses, on the device.
  Temporary addresses() const;

 private:
  void make_room(const RbTensor& like);

  const char* op_;
  const RbTensor* out_ = nullptr;
  Temporary room_;
  View view_;
};

/// One call at a time on each device. Sets the current stream.
class Solver {
 public:
  /// Throws if the library does not start.
  Solver(const char* op, const RbTensor& like);
  Solver(const Solver&) = delete;
  Solver& operator=(const Solver&) = delete;

  /// Handles, made at the first use.
  SolverHandle handle();
  SolverParams params();
  SolverJacobi jacobi();
  BlasHandle blas();
  /// Memory for cuBLAS until the handle is asked for again: in a capture it must not take its own.
  Temporary give_blas_workspace();

  /// `status` is what `what` returned; what it has enqueued counts as launched.
  void solver_done(int status, const char* what);
  void blas_done(int status, const char* what);

  /// A routine whose workspace `room(&device bytes, &host bytes)` tells: `routine(device memory,
  /// bytes, host memory, bytes)` is called for each of `count`.
  template <class Room, class Routine>
  void each(int64_t count, const char* what, Room room, Routine routine) {
    size_t on_device = 0, on_host = 0;
    solver_done(room(&on_device, &on_host), what);
    const Temporary device = workspace(on_device);
    std::vector<char> host(on_host);
    for (int64_t i = 0; i < count; ++i)
      solver_done(routine(i, device.data(), on_device, host.data(), on_host), what);
  }
  /// One whose workspace is counted in elements.
  template <class Room, class Routine>
  void each_of(int64_t count, int64_t item, const char* what, Room room, Routine routine) {
    int elements = 0;
    solver_done(room(&elements), what);
    const Temporary device = workspace(static_cast<size_t>(elements) * static_cast<size_t>(item));
    for (int64_t i = 0; i < count; ++i) solver_done(routine(i, device.data(), elements), what);
  }

 private:
  struct State;
  Temporary workspace(size_t bytes) const;
  void done(int status, const char* what, void (*check)(int, int, const char*, const char*));

  const char* op_;
  const RbTensor& like_;
  Device& device_;
  CuStream stream_;
  State& state_;
  std::lock_guard<std::mutex> lock_;
  const RelaxedCapture relaxed_;  // new handles take memory and load modules
};

/// Declines, so that the CPU takes the call and the user reads why.
void need_cusolver();
void need_cublas();

/// For each matrix with a number that is not finite: zeros, on which iterations end. The flags are
/// int32: 0, or LAPACK's code for a wrong fourth argument.
Temporary clear_not_finite(const char* op, const Columns& matrices);
/// Where flags are set, NaN in the lines of `values`, and the flag in place of `info`.
void mark_not_finite(const char* op, const RbTensor& flags, const RbTensor& values,
                     const RbTensor& info);
/// Vectors in rows without gaps, one for each matrix of `out`; they broadcast.
Temporary vectors(const char* op, const RbTensor& given, const RbTensor& out);
/// A unit matrix for each matrix of `out`.
void identity(const char* op, const RbTensor& out);

}  // namespace rbcuda
