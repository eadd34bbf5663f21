// The plugin: registers the backend, and its kernels where there is a driver. Where there is none,
// or no device, the device says so when it is asked for.
#include "device/capture.h"
#include "device/failure.h"
#include "device/timing.h"
#include "ops/families.h"

namespace rbcuda {
namespace {

constexpr int32_t kDlpackCuda = 2;  // kDLCUDA

const RbBackend kBackend = {RB_SIZE(RbBackend, streams),
                            RB_B_FALLS_BACK,
                            kBackendName,
                            kDlpackCuda,
                            0,
                            &kDevices,
                            &kAllocator,
                            &kStreams};

void add_kernels(const RbHost* host, RbTxn* txn) {
  for (auto* add :
       {add_create,    add_elementwise, add_reduce,     add_softmax, add_norm,       add_loss,
        add_optim,     add_pool,        add_conv,       add_matmul,  add_scaled,     add_movement,
        add_index,     add_order,       add_scan,       add_search,  add_random,     add_attention,
        add_recurrent, add_fourier,     add_triangular, add_lu,      add_orthogonal, add_eigen})
    rb::check(add(host, txn));
}

int32_t init(const RbHost* host, RbTxn* txn) {
  rb::host = host;
  explain_failure = explain;
  find_observed_events();
  return rb::guarded([&] {
    rb::check(host->add_backend(txn, &kBackend, &backend_id));
    if (has_driver()) add_kernels(host, txn);
    rb::check(host->publish("cuda." RB_DEVICE_EXT, RB_DEVICE_VERSION, &kDeviceTable));
    rb::check(host->publish("cuda." RB_CAPTURE_EXT, RB_CAPTURE_VERSION, &kCapture));
  });
}

const RbPlugin kPlugin = {
    RB_SIZE(RbPlugin, retire), RB_ABI_MAJOR,         RB_ABI_MINOR, RB_ABI_NEEDED, 0, 0,
    "rabbet-backend-cuda",     RABBET_WHEEL_VERSION, init,         nullptr};

}  // namespace
}  // namespace rbcuda

extern "C" RB_EXPORT const RbPlugin* rabbet_plugin_v0(void) { return &rbcuda::kPlugin; }
