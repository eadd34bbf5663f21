#include "streams.h"

#include <algorithm>

namespace tape {

void* stream_of(int32_t backend, int32_t device) {
  void* stream = nullptr;  // a core from before streams has none
  if (RB_HAS(host, record_stream)) host->stream_get(backend, device, &stream);
  return stream;
}

void StreamOrder::look(const Device& device) {
  seen_ = device;
  matters_ = matters_ || current(device);
}

int32_t StreamOrder::enter(const Node* n, RbTensor* const* grads) {
  entered_ = device_of(n->out_metas[0]);
  callers_ = current(entered_);
  inside_ = true;
  if (n->kind != NodeKind::kAccumulate && n->stream != callers_) {
    if (int32_t rc = change(n->stream)) return rc;
  }
  for (int i = 0; i < n->nrets; ++i) {
    if (!grads[i]) continue;
    if (int32_t rc = use(&grads[i])) return rc;
  }
  return RB_OK;
}

int32_t StreamOrder::change(void* stream) {
  const bool known = std::any_of(used_.begin(), used_.end(), [&](const Used& u) {
    return u.stream == stream && u.device == entered_;
  });
  if (!known) used_.push_back({entered_, stream});
  return host->stream_set(entered_.backend, entered_.index, stream);
}

int32_t StreamOrder::leave() {
  if (!inside_) return RB_OK;
  inside_ = false;
  if (current(entered_) == callers_) return RB_OK;
  return host->stream_set(entered_.backend, entered_.index, callers_);
}

int32_t StreamOrder::use(RbTensor* const* buffer) {
  RbTensor* grad = *buffer;
  const Device device = device_of(grad);
  void* here = current(device);
  void* there = inside_ && device == entered_ ? callers_ : here;
  const auto found =
      std::find_if(made_.begin(), made_.end(), [&](const Made& m) { return m.buffer == buffer; });
  if (found != made_.end()) {
    there = found->stream;
    made_.erase(found);
  }
  if (here == there) return RB_OK;
  if (int32_t rc = host->stream_wait(device.backend, device.index, here, there)) return rc;
  return host->record_stream(grad, here);
}

void StreamOrder::made(RbTensor* const* buffer) {
  made_.push_back({buffer, current(device_of(*buffer))});
}

int32_t StreamOrder::give(RbTensor* grad) const {
  if (!inside_ || !(device_of(grad) == entered_)) return RB_OK;
  return host->record_stream(grad, callers_);
}

int32_t StreamOrder::finish() const {
  for (const Used& u : used_) {
    void* callers = current(u.device);
    if (int32_t rc = host->stream_wait(u.device.backend, u.device.index, callers, u.stream))
      return rc;
  }
  return RB_OK;
}

}  // namespace tape
