// The plugin: registers the backend and the kernels for the dtypes that all devices can hold.
#include "view.h"

namespace rbcl {
namespace {

const RbBackend kBackend = {
    // No host memory, and no cl_mem either, which is what DLPack's OpenCL type means: an extension
    // device.
    RB_SIZE(RbBackend, streams), 0, kBackendName, 12, 0, &kDevices, &kAllocator, &kStreams};

int32_t init(const RbHost* host, RbTxn* txn) {
  rb::host = host;
  return rb::guarded([&] {
    uint64_t dtypes = kAll;
    device(0);  // says what is missing where there is none
    for (int i = 0; i < device_count(); ++i) {
      if (!device(i).has_fp64()) dtypes &= ~(1ull << RB_F64);
    }
    rb::check(host->add_backend(txn, &kBackend, &backend_id));
    for (Family add : {add_copy, add_create, add_elementwise, add_fused, add_reduce, add_along,
                       add_sort, add_matmul, add_convolution, add_pool, add_gather, add_scatter,
                       add_index, add_random, add_optim}) {
      rb::check(add(host, txn, dtypes));
    }
  });
}

const RbPlugin kPlugin = {
    RB_SIZE(RbPlugin, retire), RB_ABI_MAJOR,         RB_ABI_MINOR, RB_ABI_NEEDED, 0, 0,
    "rabbet-backend-opencl",   RABBET_WHEEL_VERSION, init,         nullptr};

}  // namespace
}  // namespace rbcl

extern "C" RB_EXPORT const RbPlugin* rabbet_plugin_v0(void) { return &rbcl::kPlugin; }
