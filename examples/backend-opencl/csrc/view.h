// Views: an address with shape and strides; what kernels get of them, and dense stand-ins for
// operands.
#pragma once
#include "program.h"

namespace rbcl {

constexpr int kMaxDims = RB_MAX_DIMS;
constexpr int kSpaceDims = 8;
constexpr int kSpaceViews = 4;

struct View {
  char* data;
  int dtype;
  int ndim;
  int64_t shape[kMaxDims], strides[kMaxDims];  // in elements

  int64_t numel() const {
    int64_t n = 1;
    for (int d = 0; d < ndim; ++d) n *= shape[d];
    return n;
  }
  int item() const { return item_size(dtype); }
  bool contiguous() const;
  /// The elements [start, start + n * step) of one dimension.
  View narrowed(int dim, int64_t start, int64_t n, int64_t step = 1) const;
};
View view_of(const RbTensor& t);
/// Row-major memory in the shape of `like`.
View dense_view(void* data, int dtype, const View& like);
/// Strides of `v` when it broadcasts to `shape`.
View broadcast(const View& v, int ndim, const int64_t* shape);
/// A dimension of size 1 in place of none.
View at_least_1d(View v);

/// Positions that kernels walk, with strides for up to four views; the twin of `Space` in
/// common.cl. Dimensions that lie alike in all views are joined.
struct Space {
  int64_t n;
  int32_t ndim, reserved;
  int64_t shape[kSpaceDims];
  int64_t strides[kSpaceViews][kSpaceDims];
};
/// All views must have the shape of the first. Throws RB_E_NOTIMPL if more than 8 dimensions stay.
Space space_of(const char* op, std::initializer_list<const View*> views);

/// Memory of the device until the end of scope; kernels that were enqueued with it may still run.
class Temp {
 public:
  Temp(const Device& device, int dtype, int64_t numel);
  ~Temp();
  Temp(const Temp&) = delete;
  Temp& operator=(const Temp&) = delete;
  char* data() const { return static_cast<char*>(tensor_->data); }

 private:
  RbTensor* tensor_;
};

/// dst = src with a cast; src has the shape of dst.
void copy_view(Device& device, const View& dst, const View& src);
/// dst = number everywhere.
void fill_view(Device& device, const View& dst, const RbValue& number);

/// An input as row-major memory of `dtype`: itself, or a copy.
class DenseInput {
 public:
  DenseInput(Device& device, const RbTensor& t, int dtype);
  DenseInput(Device& device, const View& v, int dtype);
  char* data() const { return data_; }

 private:
  void set(Device& device, const View& v, int dtype);
  std::unique_ptr<Temp> copy_;
  char* data_;
};

/// Row-major memory for a result; `finish` brings it to its place.
class DenseResult {
 public:
  DenseResult(Device& device, const RbTensor& t);
  char* data() const { return data_; }
  void finish() const;

 private:
  Device& device_;
  View view_;
  std::unique_ptr<Temp> copy_;
  char* data_;
};

/// Rows of a table of kernels: family files fill them, plugin.cpp registers them.
using Family = int32_t (*)(const RbHost* host, RbTxn* txn, uint64_t dtypes);
int32_t add_copy(const RbHost*, RbTxn*, uint64_t), add_create(const RbHost*, RbTxn*, uint64_t),
    add_elementwise(const RbHost*, RbTxn*, uint64_t), add_fused(const RbHost*, RbTxn*, uint64_t),
    add_reduce(const RbHost*, RbTxn*, uint64_t),
    add_along(const RbHost*, RbTxn*, uint64_t), add_sort(const RbHost*, RbTxn*, uint64_t),
    add_matmul(const RbHost*, RbTxn*, uint64_t), add_convolution(const RbHost*, RbTxn*, uint64_t),
    add_pool(const RbHost*, RbTxn*, uint64_t), add_gather(const RbHost*, RbTxn*, uint64_t),
    add_scatter(const RbHost*, RbTxn*, uint64_t), add_index(const RbHost*, RbTxn*, uint64_t),
    add_random(const RbHost*, RbTxn*, uint64_t), add_optim(const RbHost*, RbTxn*, uint64_t);

/// Kernels for the dtypes of their masks (0: all) that are in `dtypes`, those of the devices.
int32_t add_table(const RbHost* host, RbTxn* txn, const rb::KernelSpec* specs, size_t n,
                  uint64_t dtypes);
template <size_t N>
int32_t add_table(const RbHost* host, RbTxn* txn, const rb::KernelSpec (&specs)[N],
                  uint64_t dtypes) {
  return add_table(host, txn, specs, N, dtypes);
}
/// Throws RB_E_NOTIMPL unless kernels exist for the dtype; for what core's masks do not see.
void check_dtype(const rb::Args& a, int dtype, uint64_t mask = kAll);

}  // namespace rbcl
