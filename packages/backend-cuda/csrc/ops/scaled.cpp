// Products of 8 bits: integers summed in int32, and floats with scales. cuBLASLt multiplies both
// where the second operand's columns lie together; else integers have a kernel of ours, and floats
// are multiplied in bfloat16, which holds their values exactly.
#include "launch/temporary.h"
#include "ops/families.h"
#include "ops/loop.h"
#include "ops/product.h"

namespace rbcuda {
namespace {

void int_mm_kernel(const rb::Args& a) {
  const RbTensor &x = a.tensor(0), &y = a.tensor(1), &out = a.ret();
  if (x.dtype_id != RB_I8 || y.dtype_id != RB_I8)
    rb::fail(RB_E_NOTIMPL, "%s on 'cuda': operands must be int8", a.op_name());
  if (out.numel) multiply(product_of(a.op_name(), x, y, out));
}

// A matrix in bfloat16, whose columns lie together where those of the given one do.
class Wide {
 public:
  Wide(const char* op, const RbTensor& t)
      : in_columns_(t.strides[0] == 1),
        from_(in_columns_ ? turned(t) : View(t)),
        memory_(t, RB_BF16, 2, from_.tensor().shape),
        view_(in_columns_ ? turned(memory_.tensor()) : View(memory_.tensor())) {
    copy(op, memory_.tensor(), from_.tensor());
  }
  const RbTensor& tensor() const { return view_.tensor(); }

 private:
  const bool in_columns_;
  const View from_;
  const Temporary memory_;
  const View view_;
};

// The arguments of _scaled_mm.
struct Scaled {
  const char* op;
  const RbTensor &x, &y, &scale_x, &scale_y, *bias, &out;
  bool fast;

  explicit Scaled(const rb::Args& a)
      : op(a.op_name()),
        x(a.tensor(0)),
        y(a.tensor(1)),
        scale_x(a.tensor(2)),
        scale_y(a.tensor(3)),
        bias(a.optional_tensor(4)),
        out(a.ret()),
        fast(a.boolean(7)) {}

  bool scaled_as_a_whole() const { return scale_x.numel == 1 && scale_y.numel == 1; }

  // The library does all of it where it can add the bias, too, and write the result's dtype.
  bool multiply_at_once() const {
    const bool narrow = out.dtype_id == RB_F16 || out.dtype_id == RB_BF16;
    const bool added = !bias || (narrow && bias->dtype_id == out.dtype_id && bias->strides[0] == 1);
    if (!scaled_as_a_whole() || !added || !(narrow || out.dtype_id == RB_F32)) return false;
    Product p = product(out, bias);
    p.scales[0] = scale_x.data;
    p.scales[1] = scale_y.data;
    return multiply_by_library(p);
  }

  // Sums in float32, then the scales and the bias.
  void multiply_in_steps() const {
    const Temporary memory(out, RB_F32, 2, out.shape);
    const RbTensor& sums = memory.tensor();
    if (!multiply_by_library(product(sums, nullptr)))
      multiply(product_of(op, Wide(op, x).tensor(), Wide(op, y).tensor(), sums));
    static const Expression kScaled("a * b * c"), kAdded("a + b");
    const View all_x = scalar_view(scale_x), all_y = scalar_view(scale_y);
    const bool whole = scaled_as_a_whole();
    const RbValue factors[] = {read_value(sums), read_value(whole ? all_x.tensor() : scale_x),
                               read_value(whole ? all_y.tensor() : scale_y)};
    Operands scaling(bias ? sums : out, 3, factors);
    loop(op, RB_F32, kScaled, scaling);
    if (!bias) return;
    const RbValue terms[] = {read_value(sums), read_value(*bias)};
    Operands adding(out, 2, terms);
    loop(op, RB_F32, kAdded, adding);
  }

 private:
  Product product(const RbTensor& to, const RbTensor* added) const {
    Product p = product_of(op, x, y, to, added);
    p.second = y.dtype_id;
    p.fast = fast;
    return p;
  }
};

// Arguments: input, mat2, scale_a, scale_b, bias, scale_result, out_dtype, use_fast_accum.
void scaled_mm_kernel(const rb::Args& a) {
  const Scaled scaled(a);
  if (scaled.out.numel == 0) return;
  if (scaled.x.shape[1] == 0 || a.has(5))
    rb::fail(RB_E_NOTIMPL, "%s on 'cuda': no elements, or a scale of the result", a.op_name());
  if (!scaled.multiply_at_once()) scaled.multiply_in_steps();
}

}  // namespace

int32_t add_scaled(const RbHost* host, RbTxn* txn) {
  const rb::KernelSpec kernels[] = {
      {"_int_mm", rb::wrap<int_mm_kernel>, 0, bit(RB_I8)},
      {"_scaled_mm", rb::wrap<scaled_mm_kernel>, 0, kAll | float8_dtypes().bits()},
  };
  return rb::add_kernels(host, txn, kBackendName, kernels);
}

}  // namespace rbcuda
