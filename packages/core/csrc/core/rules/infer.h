// Shape and dtype rules: what a call's results are, before any kernel runs.
#pragma once
#include "record/op.h"
#include "tensor/tensor.h"

namespace rabbet {

struct TensorSpec {
  int32_t ndim;
  int32_t dtype;
  int64_t shape[kMaxDims];
};
TensorSpec spec_of(const RbTensor* t);
struct Inferred {
  TensorSpec rets[kMaxRets];
  int32_t compute;  // dtype to which Op::compute_args are cast; -1: no cast
};

/// Fill in shapes and dtypes of the results of a call that is neither a view nor data-dependent.
/// Throws Error (RB_E_ARG for shapes, RB_E_TYPE for dtypes) naming the op and the argument.
void infer(const Op& op, const RbValue* args, int nargs, Inferred& out);

/// The dtype of result `ret`; -1: no argument has one.
int result_dtype(const Op& op, int ret, const RbValue* args, int nargs);

/// What the record of a composite says of shapes and dtypes, for its checks.
void validate(const Op& op, const RbValue* args, int nargs);

/// Wrap negative dims in place (args is a private copy); throws RB_E_INDEX when out of range.
/// `scratch` holds rewritten lists.
struct DimScratch {
  int64_t values[kMaxDims * 2];
  int used = 0;
};
void wrap_dims(const Op& op, RbValue* args, int nargs, DimScratch& scratch);

/// Make the view that a `view(x)` primitive describes (views.cpp). Owned result, without a view
/// record.
Tensor* make_view(const Op& op, const RbValue* args, int nargs);

/// Strides of a view of `t` with `shape`, if one exists without copying. -1 must be resolved
/// already.
bool view_strides(const RbTensor& t, int ndim, const int64_t* shape, int64_t* strides);
/// Replace one -1 in `shape` so that it has `numel` elements; throws RB_E_ARG when impossible.
void resolve_size(const char* op, int64_t numel, int ndim, int64_t* shape);

/// Broadcast `shape` into `out` in place; throws RB_E_ARG naming op and sizes.
void broadcast_into(const Op& op, int ndim, const int64_t* shape, TensorSpec& out,
                    int32_t code = RB_E_ARG);

}  // namespace rabbet
