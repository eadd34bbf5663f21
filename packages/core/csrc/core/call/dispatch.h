// The dispatcher: one full call, and the way down through the layers.
#pragma once
#include "record/op.h"
#include "tensor/tensor.h"

namespace rabbet {

/// Full call. With RB_CALL_OUT in `flags` rets hold borrowed destinations. Returns a status code;
/// the message is in the thread's error record.
int32_t call(const Op* op, const RbValue* args, int32_t nargs, RbValue* rets, int32_t nrets,
             uint32_t flags = 0);

/// While it lives, the next call goes to the layers of these destinations too, as it goes to those
/// of arguments: the tape refuses to overwrite a tensor that requires grad.
class DestinationLayers {
 public:
  DestinationLayers(const RbValue* rets, int32_t nrets);
  ~DestinationLayers();
  DestinationLayers(const DestinationLayers&) = delete;
  DestinationLayers& operator=(const DestinationLayers&) = delete;

 private:
  uint64_t include_, included_once_;
};

/// Full call with one tensor result, owned; throws Error.
inline TensorRef call1(const Op* op, const RbValue* args, int32_t nargs);

}  // namespace rabbet

#include "thread/error.h"

namespace rabbet {
inline TensorRef call1(const Op* op, const RbValue* args, int32_t nargs) {
  RbValue ret = value_none();
  check(call(op, args, nargs, &ret, 1));
  return TensorRef(ret.v.t);
}
}  // namespace rabbet
