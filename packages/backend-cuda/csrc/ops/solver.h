// Matrices in the layout of cuSOLVER and cuBLAS, and calls of both libraries.
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

/// The dtypes of both libraries.
constexpr uint64_t kSolved =
    uint64_t{1} << RB_F32 | uint64_t{1} << RB_F64 | uint64_t{1} << RB_C64 | uint64_t{1} << RB_C128;

inline int real_dtype(int dtype) { return dtype == RB_F32 || dtype == RB_C64 ? +RB_F32 : +RB_F64; }
/// Up to this size one call factors all matrices of a batch.
constexpr int64_t kFactoredTogether = 256;

/// The dtype's cudaDataType.
inline int data_type(int dtype) {
  return dtype == RB_F32 ? kR32F : dtype == RB_F64 ? kR64F : dtype == RB_C64 ? kC32F : kC64F;
}
/// Chooses among the four functions of a routine by dtype; see RB_BY_DTYPE.
template <class F>
F by_dtype(int dtype, F s, F d, F c, F z) {
  return dtype == RB_F32 ? s : dtype == RB_F64 ? d : dtype == RB_C64 ? c : z;
}
/// The function `name` of a table for the dtype: table.name_s, ..._d, ..._c or ..._z.
#define RB_BY_DTYPE(dtype, table, name) \
  by_dtype(dtype, (table).name##_s, (table).name##_d, (table).name##_c, (table).name##_z)

/// A batch of contiguous column-major matrices, one after another.
class Columns {
 public:
  /// The matrices of a result: in its own memory if that has this layout, else in temporary memory,
  /// which done() copies to the result.
  Columns(const char* op, const RbTensor& out);
  /// Temporary memory for as many matrices as `like` has, of its dtype.
  Columns(const char* op, const RbTensor& like, int64_t rows, int64_t columns);

  /// Copies the matrices of `from`, which broadcast, or with `adjoint` their conjugate transposes.
  void load(const RbTensor& from, bool adjoint = false) const;
  /// Copies the leading rows and columns that both batches have.
  void load(const Columns& from) const;
  void done() const;

  int64_t count = 1, rows, columns;
  int dtype() const { return view_.tensor().dtype_id; }
  int64_t ld() const { return rows > 0 ? rows : 1; }
  int64_t size() const { return rows * columns; }
  char* at(int64_t i) const;
  /// The matrices as a tensor, with the batch dimensions of the constructor's tensor.
  const RbTensor& tensor() const { return view_.tensor(); }
  /// The addresses of the matrices, in an array on the device.
  Temporary addresses() const;

 private:
  void make_room(const RbTensor& like);

  const char* op_;
  const RbTensor* out_ = nullptr;
  Temporary room_;
  View view_;
};

/// Calls of the libraries for one operator, on the current stream. Holds the device's lock, as the
/// handles are shared: one call at a time on each device.
class Solver {
 public:
  Solver(const char* op, const RbTensor& like);
  Solver(const Solver&) = delete;
  Solver& operator=(const Solver&) = delete;

  /// Handles, created at their first use. Throw if the library does not start.
  SolverHandle handle();
  SolverParams params();
  SolverJacobi jacobi();
  BlasHandle blas();
  /// Gives cuBLAS a workspace, until the next blas(): in a capture it must not use its own.
  Temporary give_blas_workspace();

  /// To be called after the routine `what`, with the status it returned. Throws if it failed, else
  /// records its work as launched.
  void solver_done(int status, const char* what);
  void blas_done(int status, const char* what);

  /// Calls `routine(i, device workspace, bytes, host workspace, bytes)` for each of `count`
  /// matrices. `room(&device bytes, &host bytes)` queries the sizes of the workspaces.
  template <class Room, class Routine>
  void each(int64_t count, const char* what, Room room, Routine routine) {
    size_t on_device = 0, on_host = 0;
    solver_done(room(&on_device, &on_host), what);
    const Temporary device = workspace(on_device);
    std::vector<char> host(on_host);
    for (int64_t i = 0; i < count; ++i)
      solver_done(routine(i, device.data(), on_device, host.data(), on_host), what);
  }
  /// The same for routines that count their workspace in elements of `item` bytes, on the device
  /// only.
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
  const RelaxedCapture relaxed_;  // new handles allocate memory and load modules
};

/// Replaces matrices that contain NaN or infinity by zeros, for which iterations converge. Returns
/// an int32 flag for each matrix: LAPACK's code for a wrong fourth argument if it was replaced,
/// else 0.
Temporary clear_not_finite(const char* op, const Columns& matrices);
/// For each matrix whose flag is set, fills its line of `values` with NaN and copies the flag to
/// its `info`.
void mark_not_finite(const char* op, const RbTensor& flags, const RbTensor& values,
                     const RbTensor& info);
/// A contiguous copy of the vectors `given`, broadcast to one for each matrix of `out`.
Temporary vectors(const char* op, const RbTensor& given, const RbTensor& out);
/// Makes each matrix of `out` an identity matrix.
void identity(const char* op, const RbTensor& out);

}  // namespace rbcuda
