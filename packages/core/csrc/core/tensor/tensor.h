// Tensors and storages. A small tensor lives with its storage and data in one cached block.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "device/heap.h"
#include "rabbet/abi.h"

namespace rabbet {

constexpr int kMaxDims = RB_MAX_DIMS;
constexpr int kInlineDims = 5;
constexpr int kSlots = 4;
constexpr int kInlineBytes = 64;

struct Op;
struct Tensor;

struct Storage {
  std::atomic<int32_t> refs;
  std::atomic<uint32_t> version;
  void* data;
  uint64_t nbytes;
  void (*del)(Storage*);  // frees the memory, not this struct; null: nothing to free
  void* ctx;
  Tensor* host;  // the tensor in whose block this struct lies
  int32_t device;
  uint8_t backend;
  uint8_t exposed;  // code outside of core may read or write the memory: adopted, or handed out
};

/// The storage that owns the memory of `s`: another one where `s` only counts writes of its own.
Storage* owner_of(Storage* s);

/// How a view was made out of `parent`: the call, with its values copied. Goes with the tensor.
struct ViewRecord {
  Tensor* parent;  // owned
  const Op* op;
  uint8_t nargs;
  uint8_t depth;    // links above this one, up to where the dtype is another; at most UINT8_MAX
  uint16_t entry;   // of a result that is a list: 1 + the index in it; else 0
  uint32_t bytes;   // of a block of its own; 0: it lies in the tensor
  RbValue args[1];  // args[0] is the place of the parent; lists follow the array
};

struct Tensor : RbTensor {
  std::atomic<int32_t> refs;
  uint8_t tensor_dead;  // the block outlives the tensor while its inline storage is in use, and
                        // vice versa
  uint8_t used_slots;   // a bit each
  Storage* storage;
  ViewRecord* view;
  void* pyobj;
  void* slots[kSlots];
  int64_t dims[2 * kInlineDims];  // shape, then strides, while ndim <= kInlineDims
  Storage inline_storage;
  alignas(64) char inline_data[kInlineBytes];

  /// A view uses neither inline member, except for the count of references to the storage, which
  /// stays 0: its record lies there if it fits. A wrapper's RbWrap lies in the data.
  char* record_space() { return reinterpret_cast<char*>(&inline_storage.data); }
  size_t record_room() {
    char* end = flags & RB_T_WRAPPER ? inline_data : inline_data + kInlineBytes;
    return end - record_space();
  }
};

/// What a tensor without memory of its own is made of: a transform's wrapper or a composite.
constexpr uint32_t kMadeOfParts = RB_T_WRAPPER | RB_T_COMPOSITE;
inline bool is_made_of_parts(const RbTensor* t) { return (t->flags & kMadeOfParts) != 0; }

/// What `ext` of a composite points to, shared by its aliases; parts and blob follow the struct.
struct Body {
  std::atomic<int32_t> refs;
  int32_t layer;  // key bit of the owner
  uint32_t nparts;
  uint32_t generation;  // that of the storage when the body was made: see is_outdated
  uint64_t nbytes;      // of the blob

  RbTensor** parts() { return reinterpret_cast<RbTensor**>(this + 1); }
  RbTensor* const* parts() const { return reinterpret_cast<RbTensor* const*>(this + 1); }
  void* blob() { return parts() + nparts; }
  const void* blob() const { return parts() + nparts; }
};
inline const Body& body_of(const RbTensor* composite) {
  return *static_cast<const Body*>(composite->ext);
}

/// The versions of a composite's parts, added up.
uint32_t version_of_parts(const RbTensor* composite);

inline Tensor* impl(RbTensor* t) { return static_cast<Tensor*>(t); }
inline const Tensor* impl(const RbTensor* t) { return static_cast<const Tensor*>(t); }

void tensor_destroy(Tensor* t);
inline void retain(RbTensor* t) { impl(t)->refs.fetch_add(1, std::memory_order_relaxed); }
inline void release(RbTensor* t) {
  Tensor* p = impl(t);
  // A sole owner needs no locked instruction.
  if (p->refs.load(std::memory_order_acquire) == 1 ||
      p->refs.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    tensor_destroy(p);
  }
}

/// Owning pointer.
class TensorRef {
 public:
  TensorRef() = default;
  explicit TensorRef(RbTensor* owned) : t_(impl(owned)) {}  // takes ownership
  static TensorRef share(RbTensor* t) {
    if (t) retain(t);
    return TensorRef(t);
  }
  TensorRef(TensorRef&& o) noexcept : t_(o.t_) { o.t_ = nullptr; }
  TensorRef(const TensorRef& o) : t_(o.t_) {
    if (t_) retain(t_);
  }
  TensorRef& operator=(TensorRef o) noexcept {
    Tensor* swap = t_;
    t_ = o.t_;
    o.t_ = swap;
    return *this;
  }
  ~TensorRef() {
    if (t_) rabbet::release(t_);
  }
  Tensor* get() const { return t_; }
  Tensor* operator->() const { return t_; }
  explicit operator bool() const { return t_ != nullptr; }
  Tensor* release_ownership() {
    Tensor* t = t_;
    t_ = nullptr;
    return t;
  }

 private:
  Tensor* t_ = nullptr;
};

/// Uninitialised; `strides` null: row-major. Throws on a negative or overflowing size and without
/// memory.
Tensor* tensor_new(int backend, int device, int dtype, int ndim, const int64_t* shape,
                   const int64_t* strides);
/// Row-major, in memory of a kind of the device. Pinned memory makes a tensor of the CPU.
Tensor* tensor_in(MemoryKind kind, int backend, int device, int dtype, int ndim,
                  const int64_t* shape);
bool is_in_memory(const Tensor* t, MemoryKind kind);
/// The allocator's block in which the tensor lies, or null.
const Block* block_of(const Tensor* t);
/// As tensor_new with the shape and device of `like`, which is contiguous and no wrapper.
Tensor* tensor_like(const RbTensor* like, int dtype);
/// The tensor's memory is used on `stream` too: when it is freed, its own stream waits for that
/// one.
void record_stream(Tensor* t, void* stream);
/// Shares the storage of `base`; `data` is the first element's address. No view record is made.
Tensor* tensor_share(const RbTensor* base, int ndim, const int64_t* shape, const int64_t* strides,
                     void* data);
/// What a composite is: where it is, what it shows, and what it is made of.
struct Composition {
  int32_t layer, backend, device, dtype, ndim;
  const int64_t *shape, *strides;  // strides null: row-major
  RbTensor* const* parts;          // borrowed
  uint32_t nparts;
  const void* blob;
  uint64_t nbytes;
  const RbTensor* base;  // whose storage, and so version counter, it shares; null: it has its own
  int32_t layout = RB_STRIDED;
};
/// A composite; its parts are shared. Throws where the number of elements overflows.
Tensor* tensor_compose(const Composition& what);
/// Give a composite the parts and the blob of `what`; nothing else of that is read.
void replace_body(Tensor* t, const Composition& what);
/// Whether the parts of a composite with the same storage (a view, its base, an alias) were
/// replaced since this one was made.
bool is_outdated(const RbTensor* composite);
/// A tensor on `meta` that shows a shape, of up to INT64_MAX elements.
Tensor* tensor_shown(int dtype, int ndim, const int64_t* shape, const int64_t* strides);
/// Another tensor with the body, geometry and storage of a composite.
Tensor* composite_alias(const RbTensor* t);
/// A tensor over foreign memory; del(ctx) when the last user is gone.
Tensor* tensor_adopt(void* data, int backend, int device, int dtype, int ndim, const int64_t* shape,
                     const int64_t* strides, uint32_t flags, void* ctx, void (*del)(void*));
/// `t` with a version counter of its own: writes through it are no in-place writes to `t`.
Tensor* tensor_apart(const RbTensor* t);
/// Note that code outside of core gets the address of the tensor's memory.
inline void expose_memory(const RbTensor* t) { owner_of(impl(t)->storage)->exposed = 1; }
/// Whether two tensors show the same storage.
bool same_memory(const RbTensor* a, const RbTensor* b);
/// Make `t` refer to the memory, shape, dtype and device of `src`; its identity and slots stay.
void tensor_set_data(Tensor* t, const RbTensor* src);
/// The first element's place in the storage, in elements.
int64_t offset_in_storage(const RbTensor& t);
/// The number of writes to the tensor so far: to its storage, and to the parts of a composite.
inline uint32_t version_of(const RbTensor* t) {
  const uint32_t own = impl(t)->storage->version.load(std::memory_order_relaxed);
  return __builtin_expect(t->flags & RB_T_COMPOSITE, 0) ? own + version_of_parts(t) : own;
}
/// Make `t`, a composite, share the version counter and the protection of `base`, another one.
void share_version(Tensor* t, const RbTensor* base);
/// Attach the record that `t` is the result of `op(args)` out of args[0]; `entry`: see ViewRecord.
void set_view_record(Tensor* t, const Op* op, const RbValue* args, int nargs, int entry = 0);
/// The same in place of the record that it has.
void replace_view_record(Tensor* t, const Op* op, const RbValue* args, int nargs);

/// Drop what an owned value holds, and make it RB_NONE.
void value_release(RbValue* v);
RbTensor** tensors_new(uint32_t n);

int64_t count_elements(int ndim, const int64_t* shape);  // throws on overflow
/// The same of tensors without memory, whose bytes need not be counted: up to INT64_MAX.
int64_t count_shown(int ndim, const int64_t* shape);
bool is_contiguous(int ndim, const int64_t* shape, const int64_t* strides);

/// Called with the PyObject that a dying tensor owns: one whose lowest bit is set in Tensor::pyobj
/// (an object that Python dropped while the tensor lived on). Set by the binding.
extern void (*release_pyobj)(void*);
/// What runs for a slot's pointer when its tensor dies. It throws nothing.
extern void (*slot_deleters[kSlots])(void*);

/// Live tensors, storages and their bytes on a backend, for reports and leak tests.
struct MemoryCounts {
  int64_t tensors, storages, bytes;
};
MemoryCounts memory_counts(int backend);
/// Live tensors on which a layer keeps something.
int64_t tensors_with_slot(int slot);

inline RbValue value_none() {
  RbValue v;
  v.tag = RB_NONE;
  v.len = 0;
  v.v.i = 0;
  return v;
}
inline RbValue value_int(int64_t i) {
  RbValue v;
  v.tag = RB_INT;
  v.len = 0;
  v.v.i = i;
  return v;
}
inline RbValue value_bool(bool b) {
  RbValue v;
  v.tag = RB_BOOL;
  v.len = 0;
  v.v.i = b;
  return v;
}
inline RbValue value_float(double f) {
  RbValue v;
  v.tag = RB_FLOAT;
  v.len = 0;
  v.v.f = f;
  return v;
}
inline RbValue value_tensor(RbTensor* t) {
  RbValue v;
  v.tag = RB_TENSOR;
  v.len = 0;
  v.v.t = t;
  return v;
}
/// Borrows the list.
inline RbValue value_tensors(RbTensor* const* tensors, uint32_t n) {
  RbValue v;
  v.tag = RB_TENSORS;
  v.len = n;
  v.v.ts = tensors;
  return v;
}
/// Borrows the numbers.
inline RbValue value_ints(const int64_t* values, int n) {
  RbValue v;
  v.tag = RB_INTS;
  v.len = static_cast<uint32_t>(n);
  v.v.is = values;
  return v;
}

}  // namespace rabbet
