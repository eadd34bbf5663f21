#include "device/copies.h"

#include <cstring>
#include <set>

#include "device/dtypes.h"
#include "device/host_memory.h"
#include "device/segments.h"
#include "device/timing.h"

namespace rbcuda {
namespace {

// A mark in a stream for another one to wait for.
class Mark {
 public:
  Mark(Device& device, CuStream stream) : device_(device) {
    device.enter();
    check_cuda(driver().event_create(&event_, kEventNoTiming), device.index(), "cuEventCreate");
    check_cuda(driver().event_record(event_, stream), device.index(), "cuEventRecord");
  }
  ~Mark() { driver().event_destroy(event_); }  // also while it is waited for
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;

  void hold_back(Device& device, CuStream stream) const {
    device.enter();
    check_cuda(driver().stream_wait(stream, event_, 0), device.index(), "cuStreamWaitEvent");
  }

 private:
  Device& device_;
  CuEvent event_ = nullptr;
};

// Copies then go straight from one to the other. Where it is not possible the driver finds a way.
void enable_peers(Device& device, Device& peer) {
  static std::mutex mutex;
  static auto* tried = new std::set<std::pair<int, int>>;
  std::lock_guard<std::mutex> lock(mutex);
  if (!tried->insert({device.index(), peer.index()}).second) return;
  const Driver& d = driver();
  int can = 0;
  if (!d.can_access_peer || !d.enable_peer ||
      d.can_access_peer(&can, device.handle(), peer.handle()) != kSuccess || !can)
    return;
  peer.enter();
  device.enter();
  d.enable_peer(peer.context(), 0);
  allow_reader(peer, device);
}

// In the order of both streams: behind what wrote the source, before what writes it again.
void between(Device& from, const void* source, Device& to, void* target, size_t nbytes,
             CuStream there) {
  const CuStream here = from.current_stream();
  from.enter();
  to.enter();
  enable_peers(to, from);
  Mark(from, here).hold_back(to, there);
  const Timed timed(to, there, "copy between devices", RB_LAUNCH_COPY);
  check_cuda(need(driver().copy_peer, "cuMemcpyPeerAsync")(
                 address(target), to.context(), address(source), from.context(), nbytes, there),
             to.index(), "cuMemcpyPeerAsync");
  Mark(to, there).hold_back(from, here);
}

void to_host(Device& from, const void* source, void* target, size_t nbytes, CuStream stream,
             bool nonblocking) {
  from.enter();
  {
    const Timed timed(from, stream, kCopyToHost, RB_LAUNCH_COPY);
    check_cuda(driver().copy_out(target, address(source), nbytes, stream), from.index(),
               "cuMemcpyDtoHAsync");
  }
  if (nonblocking && is_pinned(target, nbytes)) return;
  from.synchronize(stream);
}

// As in PyTorch, other streams may use what was copied when it returns, unless `nonblocking` did.
void from_host(Device& to, const void* source, void* target, size_t nbytes, CuStream stream,
               bool nonblocking) {
  to.enter();
  {
    const Timed timed(to, stream, kCopyFromHost, RB_LAUNCH_COPY);
    check_cuda(driver().copy_in(address(target), source, nbytes, stream), to.index(),
               "cuMemcpyHtoDAsync");
  }
  if (nonblocking && is_pinned(source, nbytes)) return;
  to.synchronize(stream);
}

}  // namespace

int32_t copy_tensor(void*, const RbTensor* src, const RbTensor* dst, void* stream,
                    uint32_t nonblocking) {
  return rb::guarded([&] {
    const size_t nbytes = static_cast<size_t>(src->numel) * stored_size(src->dtype_id);
    if (nbytes == 0) return;
    if (is_here(*src) && is_here(*dst)) {
      between(device_of(*src), src->data, device_of(*dst), dst->data, nbytes, as_stream(stream));
    } else if (is_here(*dst)) {
      from_host(device_of(*dst), src->data, dst->data, nbytes, as_stream(stream), nonblocking);
    } else {
      to_host(device_of(*src), src->data, dst->data, nbytes, as_stream(stream), nonblocking);
    }
  });
}

}  // namespace rbcuda
