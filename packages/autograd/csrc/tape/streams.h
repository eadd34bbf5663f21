// Streams in a backward run: each node runs on the stream of its forward, and streams wait for each
// other where a gradient passes from one to another. Leaves run on the caller's stream, which waits
// for all others at the end.
#pragma once
#include <vector>

#include "node.h"

namespace tape {

/// The thread's stream of a device.
void* stream_of(int32_t backend, int32_t device);
inline void* stream_of(const RbMeta& m) { return stream_of(m.backend, m.device_index); }

class StreamOrder {
 public:
  StreamOrder() = default;
  ~StreamOrder() { leave(); }
  StreamOrder(const StreamOrder&) = delete;
  StreamOrder& operator=(const StreamOrder&) = delete;

  /// Whether anything but default streams was met; nothing else needs to be called before.
  bool matters() const { return matters_; }
  bool matters(const Node* n) {
    const Device device = device_of(n->out_metas[0]);
    if (__builtin_expect(!(device == seen_), 0)) look(device);
    matters_ = matters_ || n->stream;
    return matters_;
  }

  /// Before what a node does: its gradients are there, in the order of its stream.
  int32_t enter(const Node* n, RbTensor* const* grads);
  /// After it: the thread's stream is the caller's.
  int32_t leave();
  /// The gradient in a buffer is used on the thread's stream, on which it was not made
  /// perhaps.
  int32_t use(RbTensor* const* buffer);
  /// The gradient in a buffer was made on the thread's stream.
  void made(RbTensor* const* buffer);
  /// A gradient goes to the caller, during a node.
  int32_t give(RbTensor* grad) const;
  /// The caller's streams wait for all that were used.
  int32_t finish() const;

 private:
  struct Device {
    int32_t backend, index;
    bool operator==(const Device& o) const { return backend == o.backend && index == o.index; }
  };
  struct Used {
    Device device;
    void* stream;
  };
  struct Made {
    RbTensor* const* buffer;
    void* stream;
  };
  static Device device_of(const RbMeta& m) { return {m.backend, m.device_index}; }
  static Device device_of(const RbTensor* t) { return {t->backend, t->device.id}; }
  static void* current(const Device& d) { return stream_of(d.backend, d.index); }
  void look(const Device& device);
  int32_t change(void* stream);

  bool matters_ = false, inside_ = false;
  Device seen_{-1, -1};
  Device entered_{-1, -1};   // of the node that runs
  void* callers_ = nullptr;  // stream of that device
  std::vector<Used> used_;
  std::vector<Made> made_;  // what is not here was made on the caller's stream
};

}  // namespace tape
