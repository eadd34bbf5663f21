// nonzero, whose count the host waits for, and searchsorted; kernels/search.cuh.
#include <algorithm>

#include "launch/jit.h"
#include "launch/temporary.h"
#include "launch/texts.h"
#include "ops/families.h"
#include "rabbet/capture.h"

namespace rbcuda {
namespace {

constexpr int64_t kSegment = 2048;  // twin of RB_FIND_SEGMENT

// Twin of Coordinates in search.cuh.
struct Coordinates {
  int32_t ndim, reserved;
  int64_t shape[RB_MAX_DIMS];
};

int64_t read_count(Device& device, const void* count) {
  int64_t value = 0;
  device.enter();
  const CuStream stream = device.current_stream();
  {
    const Timed timed(device, stream, kCopyToHost, RB_LAUNCH_COPY);
    check_cuda(driver().copy_out(&value, address(count), sizeof value, stream), device.index(),
               "cuMemcpyDtoHAsync");
  }
  device.synchronize(stream);
  return value;
}

void nonzero_kernel(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  Device& device = device_of(x);
  Layout layout = layout_of("nonzero", {&x});
  int64_t segments = (x.numel + kSegment - 1) / kSegment, count = 0, room = segments + 1;
  const Temporary counts(x, RB_I64, 1, &room);
  void *counted = counts.data(), *from = x.data;
  const auto kernel = [&](const char* text) {
    return Kernel{
        "nonzero", {{"A", x.dtype_id}, {"B", RB_BOOL8}, {"T", RB_BOOL8}}, kText_search, text};
  };
  const Grid grid{static_cast<unsigned>(std::min<int64_t>(segments, 1 << 20)), 1, 1, 256};
  if (segments > 0) {
    void* first[] = {&counted, &from, &layout, &segments};
    launch(device, kernel("RB_FIND_COUNT()\n"), grid, first);
    void* second[] = {&counted, &segments};
    launch(device, kernel("RB_FIND_STARTS()\n"), Grid{1, 1, 1, 1024}, second);
    count = read_count(device, static_cast<char*>(counted) + segments * sizeof(int64_t));
  }
  // The indices of a dimension lie side by side, as in PyTorch.
  const int64_t shape[2] = {count, x.ndim}, strides[2] = {1, std::max<int64_t>(count, 1)};
  RbTensor* out = nullptr;
  rb::check(rb::host->tensor_new(x.backend, x.device.id, RB_I64, 2, shape,
                                 x.ndim > 1 ? strides : nullptr, &out));
  a.set_ret(0, out);
  if (count == 0 || x.ndim == 0) return;
  Coordinates coordinates = {x.ndim, 0, {}};
  std::copy(x.shape, x.shape + x.ndim, coordinates.shape);
  void* to = out->data;
  void* third[] = {&to, &from, &layout, &coordinates, &counted, &segments, &count};
  launch(device, kernel("RB_FIND_WRITE()\n"), grid, third);
}

void searchsorted_kernel(const rb::Args& a) {
  const RbTensor &sorted = a.tensor(0), &out = a.ret();
  if (out.numel == 0) return;
  if (sorted.ndim != 1)
    rb::fail(RB_E_ARG, "searchsorted: `sorted_sequence` must have 1 dimension, got %d",
             sorted.ndim);
  const RbTensor* values = a.args[1].tag == RB_TENSOR ? a.args[1].v.t : nullptr;
  Number number = values ? Number{} : number_of(a.args[1]);
  Layout layout = layout_of("searchsorted", {&out, values});
  const int dtype = sorted.dtype_id;
  const Kernel kernel{
      "searchsorted",
      {{"A", dtype}, {"B", values ? +values->dtype_id : dtype}, {"T", computed(dtype)}},
      kText_search,
      a.has(2) && a.boolean(2) ? "RB_SEARCH(true)\n" : "RB_SEARCH(false)\n"};
  void *to = out.data, *from = sorted.data, *wanted = values ? values->data : nullptr;
  int64_t n = sorted.shape[0], step = sorted.strides[0];
  void* arguments[] = {&to, &from, &wanted, &layout, &n, &step, &number};
  launch(device_of(out), kernel, layout.n, arguments);
}

const rb::KernelSpec kKernels[] = {
    {"nonzero", rb::wrap<nonzero_kernel>, RB_K_ALLOCATES | RB_K_NO_CAPTURE, kAll},
    {"searchsorted", rb::wrap<searchsorted_kernel>, 0, kReal},
};

}  // namespace

int32_t add_search(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcuda
