#include "ops/solver.h"

#include <algorithm>
#include <memory>
#include <string>

#include "device/failure.h"
#include "device/timing.h"
#include "launch/jit.h"
#include "launch/texts.h"
#include "ops/families.h"
#include "ops/library_plans.h"
#include "ops/loop.h"

namespace rbcuda {

// ---- matrices

namespace {

// Whether the matrices are column-major and contiguous, one after another.
bool is_in_columns(const RbTensor& t) {
  int64_t step = 1;
  const int last = t.ndim - 1;
  for (int k = 0; k < t.ndim; ++k) {
    const int d = k == 0 ? last - 1 : k == 1 ? last : last - k;
    if (t.shape[d] != 1 && t.strides[d] != step) return false;
    step *= std::max<int64_t>(t.shape[d], 1);
  }
  return true;
}

View in_columns(const RbTensor& like, void* data, int64_t rows, int64_t columns) {
  View view = scalar_view(like);
  view.set_data(data);
  int64_t step = rows * columns, strides[RB_MAX_DIMS] = {};
  for (int d = like.ndim - 3; d >= 0; --d) {
    strides[d] = step;
    step *= like.shape[d];
  }
  for (int d = 0; d < like.ndim - 2; ++d) view.add(like.shape[d], strides[d]);
  view.add(rows, 1);
  view.add(columns, rows);
  return view;
}

// out = conj(from)
void conjugate(const char* op, const RbTensor& out, const RbTensor& from) {
  static const Expression kConjugate("rb_conj(a)", kText_complex);
  const RbValue value = read_value(from);
  Operands operands(out, 1, &value);
  loop(op, out.dtype_id, kConjugate, operands);
}

}  // namespace

Columns::Columns(const char* op, const RbTensor& out)
    : rows(out.shape[out.ndim - 2]),
      columns(out.shape[out.ndim - 1]),
      op_(op),
      out_(&out),
      view_(out) {
  for (int d = 0; d < out.ndim - 2; ++d) count *= out.shape[d];
  if (!is_in_columns(out)) make_room(out);
}

Columns::Columns(const char* op, const RbTensor& like, int64_t rows_, int64_t columns_)
    : rows(rows_), columns(columns_), op_(op), view_(like) {
  for (int d = 0; d < like.ndim - 2; ++d) count *= like.shape[d];
  make_room(like);
}

void Columns::make_room(const RbTensor& like) {
  const int64_t numel = count * rows * columns;
  room_ = Temporary(like, like.dtype_id, 1, &numel);
  view_ = in_columns(like, room_.data(), rows, columns);
}

void Columns::load(const RbTensor& from, bool adjoint) const {
  if (view_.tensor().numel == 0) return;
  if (!adjoint) return copy(op_, view_.tensor(), from);
  View turned = scalar_view(from);
  for (int d = 0; d < from.ndim - 2; ++d) turned.add(from.shape[d], from.strides[d]);
  for (const int d : {from.ndim - 1, from.ndim - 2}) turned.add(from.shape[d], from.strides[d]);
  if (!is_complex(from.dtype_id)) return copy(op_, view_.tensor(), turned.tensor());
  conjugate(op_, view_.tensor(), turned.tensor());
}

void Columns::load(const Columns& from) const {
  View source = from.view_, target = view_;
  const int d = target.ndim() - 2;
  const int64_t shared[] = {std::min(rows, from.rows), std::min(columns, from.columns)};
  for (int k = 0; k < 2; ++k) {
    source.narrow(d + k, 0, shared[k]);
    target.narrow(d + k, 0, shared[k]);
  }
  if (target.tensor().numel) copy(op_, target.tensor(), source.tensor());
}

void Columns::done() const {
  if (out_ && room_.is_made() && out_->numel) copy(op_, *out_, view_.tensor());
}

char* Columns::at(int64_t i) const {
  return static_cast<char*>(view_.tensor().data) + i * size() * stored_size(dtype());
}

Temporary Columns::addresses() const {
  Temporary made(view_.tensor(), RB_I64, 1, &count);
  fill(op_, made.tensor(), rb::int_value(reinterpret_cast<intptr_t>(view_.tensor().data)),
       rb::int_value(size() * stored_size(dtype())));
  return made;
}

// ---- calls

struct Solver::State {
  std::mutex mutex;
  SolverHandle solver = nullptr;
  SolverParams params = nullptr;
  SolverJacobi jacobi = nullptr;
  BlasHandle blas = nullptr;
};

namespace {
Device& entered(const RbTensor& like) {
  Device& device = device_of(like);
  device.enter();
  return device;
}
}  // namespace

Solver::Solver(const char* op, const RbTensor& like)
    : op_(op),
      like_(like),
      device_(entered(like)),
      stream_(device_.current_stream()),
      state_(state_of<State>(device_.index())),
      lock_(state_.mutex) {}

SolverHandle Solver::handle() {
  const int index = device_.index();
  if (!state_.solver)
    check_cusolver(cusolver()->create(&state_.solver), index, "cusolverDnCreate", op_);
  check_cusolver(cusolver()->set_stream(state_.solver, stream_), index, "cusolverDnSetStream", op_);
  return state_.solver;
}
SolverParams Solver::params() {
  if (!state_.params)
    check_cusolver(cusolver()->create_params(&state_.params), device_.index(),
                   "cusolverDnCreateParams", op_);
  return state_.params;
}
SolverJacobi Solver::jacobi() {
  if (!state_.jacobi)
    check_cusolver(cusolver()->jacobi_create(&state_.jacobi), device_.index(),
                   "cusolverDnCreateSyevjInfo", op_);
  return state_.jacobi;
}
BlasHandle Solver::blas() {
  const int index = device_.index();
  if (!state_.blas) check_cublas(cublas()->create(&state_.blas), index, "cublasCreate", op_);
  check_cublas(cublas()->set_stream(state_.blas, stream_), index, "cublasSetStream", op_);
  return state_.blas;
}

Temporary Solver::give_blas_workspace() {
  constexpr size_t kBytes = 4 << 20;
  Temporary room = workspace(kBytes);
  check_cublas(cublas()->set_workspace(state_.blas, room.data(), kBytes), device_.index(),
               "cublasSetWorkspace", op_);
  return room;
}

Temporary Solver::workspace(size_t bytes) const {
  return bytes ? Temporary(like_, static_cast<int64_t>(bytes)) : Temporary();
}

void Solver::done(int status, const char* what, void (*check)(int, int, const char*, const char*)) {
  if (__builtin_expect(status != 0, 0)) {
    check_recovers(device_, stream_, failure_on(op_, device_, std::string(what) + " failed"));
    check(status, device_.index(), what, op_);
  }
  launched(device_, stream_, op_, kSuccess);
}
void Solver::solver_done(int status, const char* what) { done(status, what, check_cusolver); }
void Solver::blas_done(int status, const char* what) { done(status, what, check_cublas); }

// ---- around the routines

Temporary clear_not_finite(const char* op, const Columns& matrices) {
  constexpr int kNotFinite = -4;
  const RbTensor& x = matrices.tensor();
  Temporary flags(x, RB_I32, 1, &matrices.count);
  const Kernel kernel{op, {{"T", real_dtype(x.dtype_id)}}, kText_linalg, "RB_FINITE_FLAGS()\n"};
  void *data = x.data, *to = flags.data();
  int64_t count = matrices.count, size = matrices.size() * (is_complex(x.dtype_id) ? 2 : 1);
  int bad = kNotFinite;
  void* arguments[] = {&data, &to, &count, &size, &bad};
  launch(device_of(x), kernel,
         Grid{static_cast<unsigned>(std::min<int64_t>(count, 1 << 20)), 1, 1, 256}, arguments);
  return flags;
}

void mark_not_finite(const char* op, const RbTensor& flags, const RbTensor& values,
                     const RbTensor& info) {
  static const Expression kNan("b != (T)0 ? (T)NAN : a"), kFlag("b != (T)0 ? b : a");
  const int64_t count = flags.numel;
  const auto select = [&](const Expression& expression, const RbTensor& to, int64_t size) {
    View lines = scalar_view(to), bits = scalar_view(flags);
    lines.add(count, size);
    lines.add(size, 1);
    bits.add(count, 1);
    bits.add(1, 0);
    const RbValue given[] = {read_value(lines.tensor()), read_value(bits.tensor())};
    Operands operands(lines.tensor(), 2, given);
    loop(op, to.dtype_id, expression, operands);
  };
  if (values.numel) select(kNan, values, values.numel / count);
  select(kFlag, info, 1);
}

Temporary vectors(const char* op, const RbTensor& given, const RbTensor& out) {
  int64_t shape[RB_MAX_DIMS];
  std::copy_n(out.shape, out.ndim - 2, shape);
  shape[out.ndim - 2] = given.shape[given.ndim - 1];
  Temporary made(out, given.dtype_id, out.ndim - 1, shape);
  copy(op, made.tensor(), given);
  return made;
}

void identity(const char* op, const RbTensor& out) {
  if (out.numel == 0) return;
  fill(op, out, rb::int_value(0), rb::int_value(0));
  const int rows = out.ndim - 2, columns = out.ndim - 1;
  View diagonal = scalar_view(out);
  for (int d = 0; d < rows; ++d) diagonal.add(out.shape[d], out.strides[d]);
  diagonal.add(std::min(out.shape[rows], out.shape[columns]),
               out.strides[rows] + out.strides[columns]);
  fill(op, diagonal.tensor(), rb::int_value(1), rb::int_value(0));
}

}  // namespace rbcuda
