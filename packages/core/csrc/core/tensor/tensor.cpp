#include "tensor/tensor.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "device/backends.h"
#include "device/deleters.h"
#include "device/memory.h"
#include "device/streams.h"
#include "tensor/dtype.h"
#include "tensor/sticky.h"
#include "thread/error.h"
#include "thread/events.h"
#include "thread/keys.h"
#include "thread/thread_state.h"

namespace rabbet {

void (*release_pyobj)(void*) = nullptr;
void (*slot_deleters[kSlots])(void*) = {};

namespace {

static_assert(kBackendIds == kMaxBackends && kSlotIds == kSlots);

void free_cached(Storage* s) {
  record_memory(RB_EVENT_FREE, s->backend, s->device, s->data, s->nbytes);
  cached_free(static_cast<Block*>(s->ctx));
}
void free_block(Storage* s) { block_free(s->data, s->nbytes); }

struct Adopted {
  void* ctx;
  void (*del)(void*);
  void* stream;  // of the thread that adopted it
};
// On a device that may still use the memory, when its stream has come so far.
void free_adopted(Storage* s) {
  auto* adopted = static_cast<Adopted*>(s->ctx);
  if (adopted->del) {
    if (has_host_memory(s->backend)) {
      run_deleter(adopted->del, adopted->ctx);
    } else {
      delete_behind(s->backend, s->device, adopted->stream, adopted->del, adopted->ctx);
    }
  }
  delete adopted;
}

// ---- blocks: free ones keep what new tensors have in common (the private members but the count of
// references and the storage; `shape`, `view_size`, and zeros in `byte_offset`, `keys[1]`, `owner`)

[[gnu::noinline]] Tensor* new_block() {
  auto* t = static_cast<Tensor*>(block_alloc_slow(sizeof(Tensor)));
  char* const begin = reinterpret_cast<char*>(t);
  std::memset(begin, 0, t->inline_data - begin);
  t->shape = t->dims;
  t->view_size = sizeof(RbTensor);
  return t;
}

inline Tensor* take_block(ThreadState& state) {
  FreeBlock* block = state.free_tensors;
  if (__builtin_expect(!block, 0)) return new_block();
  state.free_tensors = block->next;
  --state.free_tensor_count;
  return reinterpret_cast<Tensor*>(block);
}

inline void give_block(Tensor* t, ThreadState& state) {
  if (__builtin_expect(state.free_tensor_count >= kFreeBlocks || kAddressSanitizer, 0))
    return block_free_slow(t, sizeof(Tensor));
  auto* block = reinterpret_cast<FreeBlock*>(t);
  block->next = state.free_tensors;
  state.free_tensors = block;
  ++state.free_tensor_count;
}

inline void storage_release(Storage* s, ThreadState& state) {
  if (s->refs.load(std::memory_order_acquire) == 1) {
    s->refs.store(0, std::memory_order_relaxed);
  } else if (s->refs.fetch_sub(1, std::memory_order_acq_rel) != 1) {
    return;
  }
  LiveCounts::OfBackend& live = state.live->of[s->backend];
  bump(live.bytes, -static_cast<int64_t>(s->nbytes));
  bump(live.storages, -1);
  if (s->del) s->del(s);
  if (s->host->tensor_dead) {
    s->host->tensor_dead = 0;
    give_block(s->host, state);
  }
}

// Set everything but sizes, strides, storage and memory, and count the tensor.
inline void set_plain(Tensor* t, int backend, int device, int dtype, int ndim,
                      LiveCounts::OfBackend& live) {
  t->device.type = backend_traits[backend].dlpack_type;
  t->device.id = device;
  t->ndim = ndim;
  t->dtype = kDTypes[dtype].dlpack;
  t->dtype_id = static_cast<uint16_t>(dtype);
  t->backend = static_cast<uint8_t>(backend);
  t->layout = 0;
  t->keys[0] = 1ull << backend;
  t->level = 0;
  t->ext = nullptr;
  t->refs.store(1, std::memory_order_relaxed);
  bump(live.tensors, 1);
}

// A block with everything but storage and memory set.
inline Tensor* tensor_block(int backend, int device, int dtype, int ndim, const int64_t* shape,
                            const int64_t* strides, ThreadState& state) {
  if (__builtin_expect(ndim > kMaxDims, 0)) {
    fail(RB_E_ARG, "a tensor has at most %d dimensions, got %d", kMaxDims, ndim);
  }
  Tensor* t = take_block(state);
  int64_t* dims = t->dims;
  if (__builtin_expect(ndim > kInlineDims, 0)) {
    dims = static_cast<int64_t*>(block_alloc(2 * ndim * sizeof(int64_t)));
    t->shape = dims;
  }
  t->strides = dims + ndim;
  int64_t numel = 1, dense = 1;
  bool contiguous = true;
  if (strides) {
    for (int i = ndim - 1; i >= 0; --i) {
      dims[i] = shape[i];
      dims[ndim + i] = strides[i];
      if (shape[i] != 1 && strides[i] != dense) contiguous = false;
      dense *= shape[i];
    }
    numel = dense;
    contiguous = contiguous || numel == 0;
  } else {
    for (int i = ndim - 1; i >= 0; --i) {
      dims[i] = shape[i];
      dims[ndim + i] = numel;
      numel *= shape[i] ? shape[i] : 1;  // strides of empty tensors stay positive
      dense *= shape[i];
    }
    numel = dense;
  }
  set_plain(t, backend, device, dtype, ndim, state.live->of[backend]);
  t->numel = numel;
  t->flags = (contiguous ? static_cast<uint32_t>(RB_T_CONTIGUOUS) : 0u) | state.tensor_flags;
  return t;
}

// The storage in the tensor's own block, which is not counted yet.
inline void set_storage(Tensor* t, void* data, uint64_t nbytes, void (*del)(Storage*), void* ctx,
                        int backend, int device, bool exposed = false) {
  Storage& s = t->inline_storage;
  s.refs.store(1, std::memory_order_relaxed);
  s.version.store(0, std::memory_order_relaxed);
  s.data = data;
  s.nbytes = nbytes;
  s.del = del;
  s.ctx = ctx;
  s.host = t;
  s.device = device;
  s.backend = static_cast<uint8_t>(backend);
  s.exposed = exposed;
  t->storage = &s;
  t->data = data;
}
inline void count_storage(LiveCounts::OfBackend& live, uint64_t nbytes) {
  bump(live.bytes, static_cast<int64_t>(nbytes));
  bump(live.storages, 1);
}
inline void init_storage(Tensor* t, void* data, uint64_t nbytes, void (*del)(Storage*), void* ctx,
                         ThreadState& state, bool exposed = false) {
  set_storage(t, data, nbytes, del, ctx, t->backend, t->device.id, exposed);
  count_storage(state.live->of[t->backend], nbytes);
}

// Memory of the allocator.
inline void init_block_storage(Tensor* t, Block* block, uint64_t nbytes, ThreadState& state) {
  record_memory(RB_EVENT_ALLOC, t->backend, t->device.id, block->data, nbytes);
  init_storage(t, block->data, nbytes, free_cached, block, state);
}

// Data of at most kInlineBytes, which lie in the tensor itself.
inline void init_inline_storage(Tensor* t, uint64_t nbytes, ThreadState& state) {
  mark_unused(t->inline_data + nbytes, kInlineBytes - nbytes);
  init_storage(t, t->inline_data, nbytes, nullptr, nullptr, state);
}

void free_dims(Tensor* t, ThreadState& state) {  // that lie outside of the block
  block_free(t->shape, 2 * t->ndim * sizeof(int64_t), state);
  t->shape = t->dims;
}

void discard_block(Tensor* t, ThreadState& state) {  // before a storage exists
  if (t->shape != t->dims) free_dims(t, state);
  bump(state.live->of[t->backend].tensors, -1);
  give_block(t, state);
}

// Apart, as the frame of tensor_new is small without it.
[[gnu::noinline]] void init_cached_storage(Tensor* t, uint64_t nbytes, ThreadState& state) {
  const int backend = t->backend, device = t->device.id;
  try {
    Block* block = cached_alloc(backend, device, nbytes ? nbytes : 1,
                                current_stream(state, backend, device), state);
    init_block_storage(t, block, nbytes, state);
  } catch (...) {
    discard_block(t, state);
    throw;
  }
}

}  // namespace

namespace {
// Sizes are small as a rule: no overflow is possible then, and one pass is enough.
inline int64_t count_quickly(int ndim, const int64_t* shape) {
  int64_t n = 1;
  for (int i = 0; i < ndim; ++i) {
    if (__builtin_expect(static_cast<uint64_t>(shape[i]) >= 1ull << 16 || n >= 1ll << 40, 0)) {
      return count_elements(ndim, shape);
    }
    n *= shape[i];
  }
  return n;
}
}  // namespace

namespace {
int64_t count_up_to(int64_t most, int ndim, const int64_t* shape) {
  int64_t n = 1;
  for (int i = 0; i < ndim; ++i) {
    if (shape[i] < 0) {
      fail(RB_E_ARG,
           "Trying to create tensor with negative dimension %lld: a tensor's size must not be "
           "negative, got %lld for dimension %d",
           (long long)shape[i], (long long)shape[i], i);
    }
    if (__builtin_mul_overflow(n, shape[i] ? shape[i] : 1, &n) || n > most) {
      fail(RB_E_OOM, "a tensor of this shape is too large: its number of elements overflows");
    }
  }
  for (int i = 0; i < ndim; ++i) {
    if (shape[i] == 0) return 0;
  }
  return n;
}
}  // namespace

int64_t count_elements(int ndim, const int64_t* shape) {
  return count_up_to(int64_t{1} << 58, ndim, shape);
}
int64_t count_shown(int ndim, const int64_t* shape) { return count_up_to(INT64_MAX, ndim, shape); }

bool is_contiguous(int ndim, const int64_t* shape, const int64_t* strides) {
  int64_t dense = 1;
  bool contiguous = true;
  for (int i = ndim - 1; i >= 0; --i) {
    if (shape[i] == 0) return true;
    if (shape[i] != 1 && strides[i] != dense) contiguous = false;
    dense *= shape[i];
  }
  return contiguous;
}

int64_t offset_in_storage(const RbTensor& t) {
  if (!t.data) return 0;
  return (static_cast<char*>(t.data) - static_cast<char*>(impl(&t)->storage->data)) /
         kDTypes[t.dtype_id].itemsize;
}

namespace {
// Over how many elements of memory a tensor reaches, from its first one on.
int64_t reach(int ndim, const int64_t* shape, const int64_t* strides) {
  int64_t n = 1;
  for (int d = 0; d < ndim; ++d) {
    int64_t far = 0;
    if (shape[d] == 0) return 0;
    if (__builtin_mul_overflow(shape[d] - 1, strides[d], &far) ||
        __builtin_add_overflow(n, far, &n) || n > (1ll << 58))
      fail(RB_E_OOM, "a tensor of these strides is too large: its memory overflows");
  }
  return n;
}
}  // namespace

namespace {
// `extent`: bytes from the first element to the last one.
inline void init_new_storage(Tensor* t, uint64_t nbytes, uint64_t extent, ThreadState& state) {
  if (has_host_memory(t->backend)) {
    if (nbytes <= kInlineBytes) return init_inline_storage(t, nbytes, state);
    if (nbytes <= 4096)
      return init_storage(t, block_alloc(nbytes, state), nbytes, free_block, nullptr, state);
  } else if (t->backend == kMeta) {
    return init_storage(t, nullptr, extent, nullptr, nullptr, state);
  }
  init_cached_storage(t, nbytes, state);
}
}  // namespace

namespace {
// Of any sizes and strides.
[[gnu::noinline]] Tensor* tensor_new_of_any(int backend, int device, int dtype, int ndim,
                                            const int64_t* shape, const int64_t* strides) {
  const int64_t numel = count_quickly(ndim, shape);
  check_device(backend, device);
  const int64_t extent =
      __builtin_expect(backend == kMeta && strides, 0) ? reach(ndim, shape, strides) : numel;
  ThreadState& state = thread_state();
  Tensor* t = tensor_block(backend, device, dtype, ndim, shape, strides, state);
  const uint64_t itemsize = kDTypes[dtype].itemsize;
  init_new_storage(t, static_cast<uint64_t>(numel) * itemsize,
                   static_cast<uint64_t>(extent) * itemsize, state);
  return t;
}

// Storage outside of the tensor. A function that is not inlined and that its callers call last, so
// that making a small tensor needs no stack frame.
[[gnu::noinline]] Tensor* with_storage(Tensor* t, uint64_t nbytes, ThreadState& state) {
  init_new_storage(t, nbytes, nbytes, state);
  return t;
}

// The last step of making a dense tensor.
[[gnu::always_inline]] inline Tensor* with_dense_storage(Tensor* t, uint64_t nbytes, int backend,
                                                         int device, LiveCounts::OfBackend& live,
                                                         ThreadState& state) {
  if (__builtin_expect(!has_host_memory(backend) || nbytes > kInlineBytes, 0))
    return with_storage(t, nbytes, state);
  mark_unused(t->inline_data + nbytes, kInlineBytes - nbytes);
  set_storage(t, t->inline_data, nbytes, nullptr, nullptr, backend, device);
  count_storage(live, nbytes);
  return t;
}
}  // namespace

Tensor* tensor_new(int backend, int device, int dtype, int ndim, const int64_t* shape,
                   const int64_t* strides) {
  constexpr int kSizeBits = 12;
  static_assert(kInlineDims * kSizeBits < 63);  // products of such sizes do not overflow
  ThreadState* const own = thread_state_;
  const bool usual = !strides && ndim <= kInlineDims && is_known_device(backend, device) && own &&
                     own->free_tensors;
  if (__builtin_expect(!usual, 0))
    return tensor_new_of_any(backend, device, dtype, ndim, shape, strides);
  ThreadState& state = *own;
  Tensor* t = reinterpret_cast<Tensor*>(state.free_tensors);
  uint64_t numel = 1, dense = 1, sizes = 0;  // unsigned: larger sizes may overflow before the check
  int64_t* const own_strides = t->dims + ndim;
  for (int i = ndim - 1; i >= 0; --i) {
    const auto size = static_cast<uint64_t>(shape[i]);
    t->dims[i] = shape[i];
    own_strides[i] = static_cast<int64_t>(dense);
    sizes |= size;
    numel *= size;
    dense *= size ? size : 1;  // strides of empty tensors stay positive
  }
  if (__builtin_expect(sizes >> kSizeBits, 0))
    return tensor_new_of_any(backend, device, dtype, ndim, shape, strides);
  take_block(state);
  t->strides = own_strides;
  LiveCounts::OfBackend& live = state.live->of[backend];
  set_plain(t, backend, device, dtype, ndim, live);
  t->numel = static_cast<int64_t>(numel);
  t->flags = uint32_t{RB_T_CONTIGUOUS} | state.tensor_flags;
  return with_dense_storage(t, numel * kDTypes[dtype].itemsize, backend, device, live, state);
}

Tensor* tensor_in(MemoryKind kind, int backend, int device, int dtype, int ndim,
                  const int64_t* shape) {
  if (kind == MemoryKind::kDevice) return tensor_new(backend, device, dtype, ndim, shape, nullptr);
  const uint64_t nbytes =
      static_cast<uint64_t>(count_elements(ndim, shape)) * kDTypes[dtype].itemsize;
  check_device(backend, device);
  ThreadState& state = thread_state();
  const bool pinned = kind == MemoryKind::kPinned;
  void* stream = pinned ? nullptr : current_stream(state, backend, device);
  Tensor* t = tensor_block(pinned ? default_backend() : backend, pinned ? 0 : device, dtype, ndim,
                           shape, nullptr, state);
  try {
    Block* block = heap_of(backend, device, kind).allocate(nbytes ? nbytes : 1, stream, 0);
    init_block_storage(t, block, nbytes, state);
  } catch (...) {
    discard_block(t, state);
    throw;
  }
  return t;
}

namespace {
// Counts nothing: the memory is counted with its owner.
void free_apart(Storage* s) {
  ThreadState& state = thread_state();
  LiveCounts::OfBackend& live = state.live->of[s->backend];
  bump(live.bytes, static_cast<int64_t>(s->nbytes));
  bump(live.storages, 1);
  storage_release(static_cast<Storage*>(s->ctx), state);
}
}  // namespace

Storage* owner_of(Storage* s) {
  return s && s->del == free_apart ? static_cast<Storage*>(s->ctx) : s;
}

bool same_memory(const RbTensor* a, const RbTensor* b) {
  return owner_of(impl(a)->storage) == owner_of(impl(b)->storage);
}

Tensor* tensor_apart(const RbTensor* base) {
  Tensor* t = tensor_share(base, base->ndim, base->shape, base->strides, base->data);
  Storage* shared = t->storage;
  Storage* owner = owner_of(shared);
  if (owner != shared) {
    owner->refs.fetch_add(1, std::memory_order_relaxed);
    storage_release(shared, thread_state());
  }
  Storage& s = t->inline_storage;
  s.refs.store(1, std::memory_order_relaxed);
  s.version.store(0, std::memory_order_relaxed);
  s.data = owner->data;
  s.nbytes = owner->nbytes;
  s.del = free_apart;
  s.ctx = owner;
  s.host = t;
  s.device = owner->device;
  s.backend = owner->backend;
  s.exposed = owner->exposed;
  t->storage = &s;
  return t;
}

const Block* block_of(const Tensor* t) {
  const Storage* s = owner_of(t->storage);
  return s && s->del == free_cached ? static_cast<const Block*>(s->ctx) : nullptr;
}

bool is_in_memory(const Tensor* t, MemoryKind kind) {
  const Block* block = block_of(t);
  return kind == (block ? heap_of_block(block).kind : MemoryKind::kDevice);
}

void record_stream(Tensor* t, void* stream) {
  const Storage* s = owner_of(t->storage);
  if (!s || s->del != free_cached) return;  // foreign memory is its owner's
  record_stream(static_cast<Block*>(s->ctx), stream);
}

Tensor* tensor_like(const RbTensor* like, int dtype) {
  const uint64_t nbytes = static_cast<uint64_t>(like->numel) * kDTypes[dtype].itemsize;
  const int ndim = like->ndim, backend = like->backend, device = like->device.id;
  ThreadState* const own = thread_state_;
  const bool usual =
      ndim <= kInlineDims && is_known_device(backend, device) && own && own->free_tensors;
  if (__builtin_expect(!usual, 0))
    return tensor_new(backend, device, dtype, ndim, like->shape, nullptr);
  ThreadState& state = *own;
  Tensor* t = take_block(state);
  static_cast<RbTensor&>(*t) = *like;
  if (__builtin_expect(dtype != like->dtype_id, 0)) {
    t->dtype = kDTypes[dtype].dlpack;
    t->dtype_id = static_cast<uint16_t>(dtype);
  }
  t->shape = t->dims;
  t->strides = t->dims + ndim;
  int64_t dense = 1;
  for (int64_t i = ndim - 1; i >= 0; --i) {
    const int64_t size = like->shape[i];
    t->dims[i] = size;
    t->strides[i] = dense;
    dense *= size ? size : 1;
  }
  t->keys[0] = 1ull << backend;
  t->flags = uint32_t{RB_T_CONTIGUOUS} | state.tensor_flags;
  t->refs.store(1, std::memory_order_relaxed);
  LiveCounts::OfBackend& live = state.live->of[backend];
  bump(live.tensors, 1);
  return with_dense_storage(t, nbytes, backend, device, live, state);
}

std::atomic<uint64_t> sticky_keys{0};

Tensor* tensor_share(const RbTensor* base, int ndim, const int64_t* shape, const int64_t* strides,
                     void* data) {
  Tensor* t = tensor_block(base->backend, base->device.id, base->dtype_id, ndim, shape, strides,
                           thread_state());
  Storage* s = impl(base)->storage;
  s->refs.fetch_add(1, std::memory_order_relaxed);
  t->storage = s;
  t->data = data;
  t->flags = (t->flags & RB_T_CONTIGUOUS) | (base->flags & (RB_T_READONLY | RB_T_INFERENCE));
  t->keys[0] |= base->keys[0] & sticky_keys.load(std::memory_order_relaxed);
  return t;
}

namespace {

Body* make_body(const Composition& what) {
  const uint64_t size = sizeof(Body) + what.nparts * sizeof(RbTensor*) + what.nbytes;
  auto* body = new (block_alloc(size)) Body;
  body->refs.store(1, std::memory_order_relaxed);
  body->layer = what.layer;
  body->nparts = what.nparts;
  body->generation = 0;
  body->nbytes = what.nbytes;
  for (uint32_t i = 0; i < what.nparts; ++i) {
    body->parts()[i] = what.parts[i];
    if (what.parts[i]) retain(what.parts[i]);
  }
  if (what.nbytes) std::memcpy(body->blob(), what.blob, what.nbytes);
  return body;
}

void drop_body(Body* body) {
  if (body->refs.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  for (uint32_t i = 0; i < body->nparts; ++i) {
    if (body->parts()[i]) release(body->parts()[i]);
  }
  block_free(body, sizeof(Body) + body->nparts * sizeof(RbTensor*) + body->nbytes);
}

}  // namespace

uint32_t version_of_parts(const RbTensor* composite) {
  const Body& body = body_of(composite);
  uint32_t sum = 0;
  for (uint32_t i = 0; i < body.nparts; ++i) {
    if (body.parts()[i]) sum += version_of(body.parts()[i]);
  }
  return sum;
}

namespace {

uint64_t composite_keys(int layer) { return uint64_t{1} << layer | uint64_t{1} << kCompositeSlot; }

void set_body(Tensor* t, Body* body) {
  t->ext = body;
  t->flags |= RB_T_COMPOSITE;
  t->keys[0] |= composite_keys(body->layer);
}

// How often parts of composites with the storage were replaced: kept where foreign memory has its
// deleter's context. Storages that free memory belong to plain tensors.
uint32_t generation_of(const Storage* s) {
  return s->del ? 0 : static_cast<uint32_t>(reinterpret_cast<uintptr_t>(s->ctx));
}

// Takes over `body`.
Tensor* tensor_of_body(Body* body, const Composition& shown) {
  ThreadState& state = thread_state();
  const RbTensor* base = shown.base;
  Tensor* t = tensor_block(shown.backend, shown.device, shown.dtype, shown.ndim, shown.shape,
                           shown.strides, state);
  if (base) {
    t->storage = impl(base)->storage;
    t->storage->refs.fetch_add(1, std::memory_order_relaxed);
    t->data = nullptr;
    t->flags = (t->flags & RB_T_CONTIGUOUS) | (base->flags & (RB_T_READONLY | RB_T_INFERENCE));
  } else {
    init_storage(t, nullptr, 0, nullptr, nullptr, state);
  }
  t->layout = static_cast<uint8_t>(shown.layout);
  if (shown.layout != RB_STRIDED && shown.layout != RB_JAGGED) t->flags &= ~RB_T_CONTIGUOUS;
  set_body(t, body);
  return t;
}

}  // namespace

Tensor* tensor_compose(const Composition& what) {
  check_device(what.backend, what.device);
  count_shown(what.ndim, what.shape);
  if (what.ndim > kMaxDims)
    fail(RB_E_ARG, "a tensor has at most %d dimensions, got %d", kMaxDims, what.ndim);
  Body* body = make_body(what);
  if (what.base) body->generation = generation_of(impl(what.base)->storage);
  return tensor_of_body(body, what);
}

bool is_outdated(const RbTensor* composite) {
  return body_of(composite).generation != generation_of(impl(composite)->storage);
}

void replace_body(Tensor* t, const Composition& what) {
  Storage* s = t->storage;
  const uint32_t before = version_of_parts(t);
  Body* body = make_body(what);
  body->generation = generation_of(s) + 1;
  drop_body(static_cast<Body*>(const_cast<void*>(std::exchange(t->ext, body))));
  if (!s->del) s->ctx = reinterpret_cast<void*>(uintptr_t{body->generation});
  // The version, which counts writes to the parts, rises by one.
  s->version.fetch_add(before + 1 - version_of_parts(t), std::memory_order_relaxed);
}

Tensor* tensor_shown(int dtype, int ndim, const int64_t* shape, const int64_t* strides) {
  const int64_t numel = count_shown(ndim, shape);
  ThreadState& state = thread_state();
  Tensor* t = tensor_block(kMeta, 0, dtype, ndim, shape, strides, state);
  init_storage(t, nullptr, static_cast<uint64_t>(numel) * kDTypes[dtype].itemsize, nullptr, nullptr,
               state);
  return t;
}

Tensor* composite_alias(const RbTensor* t) {
  auto* body = const_cast<Body*>(&body_of(t));
  body->refs.fetch_add(1, std::memory_order_relaxed);
  return tensor_of_body(body, {body->layer, t->backend, t->device.id, t->dtype_id, t->ndim,
                               t->shape, t->strides, nullptr, 0, nullptr, 0, t, t->layout});
}

Tensor* tensor_adopt(void* data, int backend, int device, int dtype, int ndim, const int64_t* shape,
                     const int64_t* strides, uint32_t flags, void* ctx, void (*del)(void*)) {
  const int64_t numel = count_elements(ndim, shape);
  ThreadState& state = thread_state();
  Tensor* t = tensor_block(backend, device, dtype, ndim, shape, strides, state);
  int64_t low = 0, high = 0;  // reach of the strides, for the storage's extent
  for (int i = 0; i < ndim; ++i) {
    const int64_t reach = (shape[i] - 1) * t->strides[i];
    (reach < 0 ? low : high) += reach;
  }
  const int64_t item = kDTypes[dtype].itemsize;
  char* first = static_cast<char*>(data);
  const uint64_t nbytes = numel ? static_cast<uint64_t>((high - low + 1) * item) : 0;
  init_storage(t, numel ? first + low * item : first, nbytes, free_adopted,
               new Adopted{ctx, del, current_stream(state, backend, device)}, state, true);
  t->data = data;
  t->flags |= flags & RB_T_READONLY;
  return t;
}

void tensor_set_data(Tensor* t, const RbTensor* src) {
  if (t == src) return;
  if ((t->flags | src->flags) & RB_T_WRAPPER) {
    fail(RB_E_STATE,
         "inside a transform a tensor cannot be given other memory (by assigning to .data, or by "
         "out= of another size); copy_() the values, or use another tensor");
  }
  Storage* old = t->storage;
  Storage* fresh = owner_of(impl(src)->storage);
  fresh->refs.fetch_add(1, std::memory_order_relaxed);
  if (t->shape != t->dims) block_free(t->shape, 2 * t->ndim * sizeof(int64_t));
  int64_t* dims = t->dims;
  if (src->ndim > kInlineDims)
    dims = static_cast<int64_t*>(block_alloc(2 * src->ndim * sizeof(int64_t)));
  std::memmove(dims, src->shape, src->ndim * sizeof(int64_t));
  std::memmove(dims + src->ndim, src->strides, src->ndim * sizeof(int64_t));
  t->shape = dims;
  t->strides = dims + src->ndim;
  t->ndim = src->ndim;
  t->data = src->data;
  t->device = src->device;
  t->dtype = src->dtype;
  t->dtype_id = src->dtype_id;
  t->layout = src->layout;
  if (t->flags & RB_T_COMPOSITE) {
    t->keys[0] &= ~composite_keys(body_of(t).layer);
    drop_body(static_cast<Body*>(const_cast<void*>(t->ext)));
  }
  t->ext = nullptr;
  t->keys[0] = (t->keys[0] & ~(1ull << t->backend)) | 1ull << src->backend;
  ThreadState& state = thread_state();
  bump(state.live->of[t->backend].tensors, -1);
  bump(state.live->of[src->backend].tensors, 1);
  t->backend = src->backend;
  t->numel = src->numel;
  t->flags = (src->flags & ~uint32_t{RB_T_VIEW}) | (t->flags & RB_T_VIEW);
  if (src->flags & RB_T_COMPOSITE) {
    auto* body = const_cast<Body*>(&body_of(src));
    body->refs.fetch_add(1, std::memory_order_relaxed);
    set_body(t, body);
  }
  t->storage = fresh;
  storage_release(old, state);
}

void share_version(Tensor* t, const RbTensor* base) {
  Storage* old = t->storage;
  t->storage = impl(base)->storage;
  t->storage->refs.fetch_add(1, std::memory_order_relaxed);
  t->flags |= base->flags & (RB_T_READONLY | RB_T_INFERENCE);
  const uint32_t generation = generation_of(t->storage);
  auto* body = static_cast<Body*>(const_cast<void*>(t->ext));
  if (body->generation != generation) {
    if (body->refs.load(std::memory_order_acquire) > 1) {  // others have it under another storage
      Composition same{};
      same.layer = body->layer;
      same.parts = body->parts();
      same.nparts = body->nparts;
      same.blob = body->blob();
      same.nbytes = body->nbytes;
      Body* own = make_body(same);
      drop_body(body);
      t->ext = body = own;
    }
    body->generation = generation;
  }
  storage_release(old, thread_state());
}

void set_view_record(Tensor* t, const Op* op, const RbValue* args, int nargs, int entry) {
  size_t lists = 0;
  for (int i = 1; i < nargs; ++i) {
    if (args[i].tag == RB_INTS) lists += args[i].len * sizeof(int64_t);
  }
  const size_t head = offsetof(ViewRecord, args) + nargs * sizeof(RbValue);
  const bool fits = head + lists <= t->record_room();
  auto* record =
      reinterpret_cast<ViewRecord*>(fits ? t->record_space() : block_alloc(head + lists));
  record->parent = impl(args[0].v.t);
  retain(record->parent);
  record->op = op;
  record->nargs = static_cast<uint8_t>(nargs);
  record->entry = static_cast<uint16_t>(entry);
  const bool same_dtype = record->parent->dtype_id == t->dtype_id;
  const int above = record->parent->view ? record->parent->view->depth : 0;
  record->depth = same_dtype ? static_cast<uint8_t>(std::min(above + 1, UINT8_MAX)) : 0;
  record->bytes = fits ? 0 : static_cast<uint32_t>(head + lists);
  auto* ints = reinterpret_cast<int64_t*>(reinterpret_cast<char*>(record) + head);
  record->args[0] = value_none();
  for (int i = 1; i < nargs; ++i) {
    record->args[i] = args[i];
    if (args[i].tag == RB_INTS) {
      record->args[i].v.is = ints;
      for (uint32_t k = 0; k < args[i].len; ++k) *ints++ = args[i].v.is[k];
    }
  }
  t->view = record;
  t->flags |= RB_T_VIEW;
}

namespace {

// Returns the parent, a reference that is now the caller's.
Tensor* drop_view_record(Tensor* t, ThreadState& state) {
  ViewRecord* record = t->view;
  if (!record) return nullptr;
  t->view = nullptr;
  Tensor* parent = record->parent;
  if (record->bytes) block_free(record, record->bytes, state);
  return parent;
}

}  // namespace

void replace_view_record(Tensor* t, const Op* op, const RbValue* args, int nargs) {
  Tensor* parent = drop_view_record(t, thread_state());
  set_view_record(t, op, args, nargs);
  release(parent);
}

namespace {
void drop_parts(Tensor* t) {
  if (t->flags & RB_T_COMPOSITE) return drop_body(static_cast<Body*>(const_cast<void*>(t->ext)));
  auto* wrap = static_cast<RbWrap*>(const_cast<void*>(t->ext));
  release(wrap->inner);
  if (wrap->second) release(wrap->second);
}
inline void drop_slots(Tensor* t, ThreadState& state) {
  for (unsigned rest = t->used_slots; rest; rest &= rest - 1) {
    const int slot = __builtin_ctz(rest);
    void* p = t->slots[slot];
    t->slots[slot] = nullptr;
    if (!p) continue;
    bump(state.live->slots[slot], -1);
    slot_deleters[slot](p);
  }
  t->used_slots = 0;
}

// What few tensors have. Returns the parent of a view, a reference that is now the caller's.
[[gnu::noinline]] Tensor* drop_rare(Tensor* t, ThreadState& state) {
  if (const auto pyobj = reinterpret_cast<uintptr_t>(t->pyobj)) {
    t->pyobj = nullptr;
    if (pyobj & 1) release_pyobj(reinterpret_cast<void*>(pyobj & ~uintptr_t{1}));
  }
  if (is_made_of_parts(t)) drop_parts(t);
  if (t->shape != t->dims) free_dims(t, state);
  return drop_view_record(t, state);
}

[[gnu::noinline]] void destroy_any(Tensor* t, ThreadState& state) {
  // A loop, not recursion: a view holds its parent, and chains of views can be long.
  while (t) {
    if (t->used_slots) drop_slots(t, state);
    const bool rare = t->pyobj || t->shape != t->dims || is_made_of_parts(t);
    Tensor* const parent = rare ? drop_rare(t, state) : drop_view_record(t, state);
    Storage* s = t->storage;
    bump(state.live->of[t->backend].tensors, -1);
    // The block outlives the tensor while its own storage is used by others.
    t->tensor_dead = 1;
    if (s != &t->inline_storage && t->inline_storage.refs.load(std::memory_order_acquire) == 0) {
      t->tensor_dead = 0;
      give_block(t, state);
    }
    storage_release(s, state);
    t = parent && parent->refs.fetch_sub(1, std::memory_order_acq_rel) == 1 ? parent : nullptr;
  }
}

// Most tensors have only a storage of their own, which nothing else shares.
[[gnu::always_inline]] inline void destroy_without_slots(Tensor* t, ThreadState& state) {
  Storage& s = t->inline_storage;
  const bool plain = !t->pyobj && !t->view && t->shape == t->dims && !is_made_of_parts(t) &&
                     t->storage == &s && !s.del && s.refs.load(std::memory_order_acquire) == 1;
  if (__builtin_expect(!plain, 0)) return destroy_any(t, state);
  s.refs.store(0, std::memory_order_relaxed);
  LiveCounts::OfBackend& live = state.live->of[t->backend];
  bump(live.tensors, -1);
  bump(live.storages, -1);
  bump(live.bytes, -static_cast<int64_t>(s.nbytes));
  give_block(t, state);
}

[[gnu::noinline]] void destroy_with_slots(Tensor* t, ThreadState& state) {
  drop_slots(t, state);
  destroy_without_slots(t, state);
}
}  // namespace

void tensor_destroy(Tensor* t) {
  ThreadState& state = thread_state();
  if (t->used_slots) return destroy_with_slots(t, state);
  destroy_without_slots(t, state);
}

RbTensor** tensors_new(uint32_t n) {
  auto* array = static_cast<RbTensor**>(std::calloc(n ? n : 1, sizeof(RbTensor*)));
  if (!array) fail(RB_E_OOM, "out of host memory for a list of %u tensors", n);
  return array;
}

void value_release(RbValue* v) {
  if (v->tag == RB_TENSOR) {
    if (v->v.t) release(v->v.t);
  } else if (v->tag == RB_TENSORS) {
    for (uint32_t i = 0; v->v.ts && i < v->len; ++i) {
      if (v->v.ts[i]) release(v->v.ts[i]);
    }
    std::free(const_cast<RbTensor**>(v->v.ts));
  }
  *v = value_none();
}

MemoryCounts memory_counts(int backend) {
  MemoryCounts total{};
  for (LiveCounts* c = live_counts(); c; c = c->next) {
    const LiveCounts::OfBackend& part = c->of[backend];
    total.tensors += part.tensors.load(std::memory_order_relaxed);
    total.storages += part.storages.load(std::memory_order_relaxed);
    total.bytes += part.bytes.load(std::memory_order_relaxed);
  }
  if (backend == kMeta) total.bytes = 0;  // that much its tensors would have
  return total;
}

int64_t tensors_with_slot(int slot) {
  int64_t total = 0;
  for (LiveCounts* c = live_counts(); c; c = c->next)
    total += c->slots[slot].load(std::memory_order_relaxed);
  return total;
}

}  // namespace rabbet
