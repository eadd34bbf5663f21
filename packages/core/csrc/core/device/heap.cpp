#include "device/heap.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <mutex>
#include <string>

#include "device/backends.h"
#include "device/capture.h"
#include "device/deleters.h"
#include "device/heap_parts.h"
#include "device/streams.h"
#include "thread/error.h"
#include "thread/fork.h"
#include "thread/sanitize.h"
#include "thread/thread_state.h"

namespace rabbet {

namespace {

constexpr uintptr_t kLeastAlignment = 16;  // of the largest elements

constexpr uint64_t kMostKept = 16 * kMiB;  // bytes of blocks that are not joined yet
constexpr int kScan = 32;                  // blocks of a list that are looked at for the best one

int class_of(uint64_t size) {
  const uint64_t units = size / kUnit;
  if (units < 16) return static_cast<int>(units);
  const int bits = 63 - __builtin_clzll(units);
  return (bits - 3) * 8 + static_cast<int>(units >> (bits - 3));
}

uint64_t main_memory() {
  uint64_t bytes = static_cast<uint64_t>(std::max(sysconf(_SC_PHYS_PAGES), 1L)) *
                   static_cast<uint64_t>(std::max(sysconf(_SC_PAGESIZE), 1L));
  if (std::FILE* file = std::fopen("/sys/fs/cgroup/memory.max", "re")) {
    unsigned long long limit = 0;
    if (std::fscanf(file, "%llu", &limit) == 1 && limit) bytes = std::min<uint64_t>(bytes, limit);
    std::fclose(file);
  }
  return bytes;
}

// Host memory of which other programs have use, too, is not kept whole.
uint64_t host_cap() {
  static const uint64_t cap = main_memory() / 4;
  return cap;
}

}  // namespace

Heap::Heap(int backend, int device, MemoryKind kind)
    : backend(backend),
      device(device),
      kind(kind),
      allocator_(allocator_of(backend, kind)),
      host_(kind == MemoryKind::kPinned || has_host_memory(backend)),
      split_(!(host_ && kAddressSanitizer) &&
             !(allocator_.flags & (RB_ALLOC_WHOLE | RB_ALLOC_EXACT))),
      exact_(allocator_.flags & RB_ALLOC_EXACT),
      cap_(has_host_memory(backend) ? host_cap() : UINT64_MAX),
      slack_(has_host_memory(backend) ? kOversize : UINT64_MAX) {
  hold_over_fork(mutex_);
}

inline void Heap::count_taken(const Block* block) {
  count(block->arena->small, [&](BlockStats& s) {
    s.blocks.rise(1);
    s.block_bytes.rise(block->size);
    s.requested_bytes.rise(block->requested);
  });
}

inline void Heap::count_freed(const Block* block) {
  count(block->arena->small, [&](BlockStats& s) {
    s.blocks.fall(1);
    s.block_bytes.fall(block->size);
    s.requested_bytes.fall(block->requested);
  });
}

Arena& Heap::find_arena(void* stream, uint64_t pool, bool small) {
  for (const auto& a : arenas_) {
    if (a->stream == stream && a->pool == pool && a->small == small) return *a;
  }
  arenas_.push_back(std::make_unique<Arena>());
  Arena& made = *arenas_.back();
  made.stream = stream;
  made.pool = pool;
  made.small = small;
  if (small && split_ && kind == MemoryKind::kDevice) {
    // A device's memory is scarcer: what is larger joins at once.
    const uint64_t most = backend_traits[backend].streams ? kSmallLimit / 16 : kSmallLimit;
    made.kept.resize(most / kUnit + 1);
  }
  return made;
}

// ---- lists of free blocks

void Heap::insert(Block* block) {
  Arena& a = *block->arena;
  const int cls = class_of(block->size);
  block->used = false;
  block->list_prev = nullptr;
  block->list_next = a.lists[cls];
  if (block->list_next) block->list_next->list_prev = block;
  a.lists[cls] = block;
  a.occupied[cls / 64] |= uint64_t{1} << cls % 64;
  if (!block->prev && !block->next) return;
  count(a.small, [&](BlockStats& s) {
    s.split_blocks.rise(1);
    s.split_bytes.rise(block->size);
  });
}

void Heap::remove(Block* block) {
  Arena& a = *block->arena;
  const int cls = class_of(block->size);
  if (block->list_next) block->list_next->list_prev = block->list_prev;
  if (block->list_prev) {
    block->list_prev->list_next = block->list_next;
  } else {
    a.lists[cls] = block->list_next;
    if (!block->list_next) a.occupied[cls / 64] &= ~(uint64_t{1} << cls % 64);
  }
  if (!block->prev && !block->next) return;
  count(a.small, [&](BlockStats& s) {
    s.split_blocks.fall(1);
    s.split_bytes.fall(block->size);
  });
}

// The smallest block that fits among the first of each list: those of the size's own class, else of
// the next class that has one.
Block* Heap::find(Arena& a, uint64_t size) const {
  const uint64_t most = slack_ == UINT64_MAX ? UINT64_MAX : size + size / 4 + slack_;
  const auto fits = [&](const Block* b) {
    return b->size >= size && (b->size <= most || b->segment->buffer.nbytes <= kLargeSegment);
  };
  for (int cls = a.next_class(class_of(size)); cls < kClasses; cls = a.next_class(cls + 1)) {
    Block* best = nullptr;
    int seen = 0;
    for (Block* b = a.lists[cls]; b && (seen++ < kScan || !best); b = b->list_next) {
      if (fits(b) && (!best || b->size < best->size)) best = b;
      if (best && best->size == size) break;
    }
    if (best) return best;
  }
  return nullptr;
}

// ---- blocks

Block* Heap::new_block() {
  if (!spare_) return new Block{};
  Block* block = spare_;
  spare_ = block->list_next;
  return block;
}

// A free block becomes one of `owner` in use; what it has too much stays free.
Block* Heap::take(Block* block, Arena& owner, uint64_t size, uint64_t requested) {
  remove(block);
  const uint64_t rest = block->size - size;
  if (split_ && (owner.small ? rest >= kUnit : rest > kSmallLimit)) {
    Block* tail = new_block();
    tail->data = static_cast<char*>(block->data) + size;
    tail->size = rest;
    tail->segment = block->segment;
    tail->arena = block->arena;
    ++tail->arena->parts;
    tail->prev = block;
    tail->next = block->next;
    (tail->next ? tail->next->prev : tail->segment->last) = tail;
    block->next = tail;
    block->size = size;
    insert(tail);
  }
  --block->arena->parts;
  block->arena = &owner;
  ++owner.parts;
  block->used = true;
  block->requested = requested;
  count_taken(block);
  if (host_) {
    mark_used(block->data, requested);
    mark_unused(static_cast<char*>(block->data) + requested, block->size - requested);
  }
  return block;
}

// With its free neighbours of the same arena; the block itself is in no list.
Block* Heap::join(Block* block) {
  const auto absorb = [&](Block* left, Block* right) {
    left->size += right->size;
    left->next = right->next;
    (left->next ? left->next->prev : left->segment->last) = left;
    --right->arena->parts;
    right->list_next = spare_;
    spare_ = right;
  };
  if (Block* left = block->prev; left && !left->used && left->arena == block->arena) {
    remove(left);
    absorb(left, block);
    block = left;
  }
  if (Block* right = block->next; right && !right->used && right->arena == block->arena) {
    remove(right);
    absorb(block, right);
  }
  return block;
}

// ---- blocks that are not joined yet: to the rest of the heap they look used

inline bool Heap::keep(Block* block) {
  Arena& a = *block->arena;
  const uint64_t at = block->size / kUnit;
  if (at >= a.kept.size() || a.closed || kept_bytes_ + block->size > kMostKept) return false;
  Block*& first = a.kept[at];
  block->list_next = first;
  first = block;
  kept_bytes_ += block->size;
  return true;
}

inline Block* Heap::take_kept(Arena& a, uint64_t size, uint64_t requested) {
  if (size / kUnit >= a.kept.size()) return nullptr;
  Block*& first = a.kept[size / kUnit];
  Block* block = first;
  if (!block) return nullptr;
  first = block->list_next;
  kept_bytes_ -= size;
  block->requested = requested;
  count_taken(block);
  return block;
}

// Whether there were any. What asks for free blocks or segments, or counts them, begins with it.
bool Heap::join_kept() {
  if (!kept_bytes_) return false;
  for (const auto& a : arenas_) {
    for (Block*& first : a->kept) {
      while (Block* block = first) {
        first = block->list_next;
        insert(join(block));
      }
    }
  }
  kept_bytes_ = 0;
  return true;
}

// ---- segments

Block* Heap::add_segment(const RbBuffer& buffer, Arena& a) {
  Block* block = new_block();
  auto* segment = new Segment{*this, buffer, &a, block, block, nullptr, segments_};
  if (segments_) segments_->prev = segment;
  segments_ = segment;
  a.grows = segment;
  block->data = buffer.data;
  block->size = buffer.nbytes;
  block->segment = segment;
  block->arena = &a;
  block->prev = block->next = nullptr;
  a.parts += 2;
  count(a.small, [&](BlockStats& s) {
    s.segments.rise(1);
    s.segment_bytes.rise(buffer.nbytes);
  });
  insert(block);
  return block;
}

void Heap::drop_if_empty(Arena& a) {
  if (!a.closed || a.parts) return;
  const auto at = std::find_if(arenas_.begin(), arenas_.end(),
                               [&](const auto& each) { return each.get() == &a; });
  recent_[a.small] = nullptr;
  arenas_.erase(at);
}

// Takes a segment without used blocks out of the heap. Its blocks stay with it until it is given
// back, which says whose streams are to be waited for.
void Heap::detach(Segment* segment, std::vector<Segment*>& detached) {
  for (Block* b = segment->first; b; b = b->next) remove(b);
  if (segment->arena->grows == segment) segment->arena->grows = nullptr;
  if (segment->prev) segment->prev->next = segment->next;
  if (segment->next) segment->next->prev = segment->prev;
  if (segments_ == segment) segments_ = segment->next;
  count(segment->arena->small, [&](BlockStats& s) {
    s.segments.fall(1);
    s.segment_bytes.fall(segment->buffer.nbytes);
  });
  pending_ += segment->buffer.nbytes;  // the backend has it back when it says so
  detached.push_back(segment);
}

std::vector<Segment*> Heap::detach_free(uint64_t pool, bool closing) {
  join_kept();
  std::vector<Segment*> detached;
  for (Segment *s = segments_, *following; s; s = following) {
    following = s->next;
    if (closing ? s->arena->pool != pool : (s->arena->pool && !s->arena->closed)) continue;
    bool free = !s->busy;
    for (Block* b = s->first; b && free; b = b->next) free = !b->used;
    if (free) detach(s, detached);
  }
  return detached;
}

// Without the lock: the backend may wait for the device.
void Heap::give_back(std::vector<Segment*>& detached) {
  if (detached.empty()) return;
  uint64_t bytes = 0;
  for (Segment* segment : detached) {
    void* stream = segment->arena->stream;
    for (Block* b = segment->first; b; b = b->next) {
      if (b->arena->stream == stream) continue;
      void* other = b->arena->stream;
      if (guarded([&] { stream_wait(backend, device, stream, other); }) != RB_OK)
        guarded([&] { synchronize(backend, device); });
    }
    if (host_) mark_used(segment->buffer.data, segment->buffer.nbytes);
    bytes += segment->buffer.nbytes;
    RbBuffer buffer = segment->buffer;
    give_back(buffer, stream);
  }
  std::lock_guard lock(mutex_);
  pending_ -= bytes;
  for (Segment* segment : detached) {
    for (Block *b = segment->first, *following; b; b = following) {
      following = b->next;
      Arena& a = *b->arena;
      --a.parts;
      if (&a != segment->arena) drop_if_empty(a);
      b->list_next = spare_;
      spare_ = b;
    }
    --segment->arena->parts;
    drop_if_empty(*segment->arena);
    delete segment;
  }
}

// ---- allocation

[[gnu::always_inline]] inline Block* Heap::try_cached(uint64_t size, uint64_t requested,
                                                      void* stream, uint64_t pool) {
  std::lock_guard lock(mutex_);
  Arena& mine = arena(stream, pool, size <= kSmallLimit);
  Block* block = take_kept(mine, size, requested);
  return __builtin_expect(block != nullptr, 1) ? block : take_found(mine, size, requested);
}

Block* Heap::take_found(Arena& mine, uint64_t size, uint64_t requested) {
  Block* block = find(mine, size);
  if (!block && join_kept()) block = find(mine, size);
  return block ? take(block, mine, size, requested) : nullptr;
}

Block* Heap::allocate(uint64_t nbytes, void* stream, uint64_t pool) {
  const uint64_t size = round_up(nbytes ? nbytes : 1, kUnit);
  if (__builtin_expect(waits_.load(std::memory_order_relaxed), 0)) reclaim();
  if (Block* block = try_cached(size, nbytes, stream, pool)) return block;
  return grow(size, nbytes, stream, pool);
}

// With the lock.
int32_t Heap::expect(uint64_t nbytes) {
  const uint64_t held = stats_.all.segment_bytes.current() + pending_;
  if (held > limit_ || nbytes > limit_ - held)
    return set_error(RB_E_OOM, "the limit of this process is " + std::to_string(limit_) +
                                   " bytes, of which it holds " + std::to_string(held));
  pending_ += nbytes;
  return RB_OK;
}

void Heap::give_back(RbBuffer& buffer, void* stream) noexcept {
  try {
    allocator_.free(allocator_.self, &buffer, stream);
  } catch (...) {
    log_thrown(backend_function(backend, "free"));
  }
}

// What the allocator says it has given is memory that tensors can lie in; else it gets it back.
int32_t Heap::check_buffer(uint64_t size, void* stream, RbBuffer& out) {
  if (allocator_.flags & RB_ALLOC_WHOLE) return RB_OK;
  std::string wrong;
  if (!out.data) {
    wrong = "`data` is null";
  } else if (reinterpret_cast<uintptr_t>(out.data) % kLeastAlignment) {
    wrong = "`data` must be a multiple of " + std::to_string(kLeastAlignment);
  } else if (out.nbytes && out.nbytes < size) {
    wrong = "`nbytes` is " + std::to_string(out.nbytes) + " where " + std::to_string(size) +
            " were asked for";
  } else {
    return RB_OK;
  }
  if (out.data) give_back(out, stream);
  return set_error(RB_E_PLUGIN,
                   backend_function(backend, "alloc") + " allocated no usable memory: " + wrong);
}

int32_t Heap::ask(uint64_t size, void* stream, RbBuffer& out) {
  {
    std::lock_guard lock(mutex_);
    if (const int32_t rc = expect(size)) return rc;
  }
  out = RbBuffer{};
  out.struct_size = sizeof out;
  int32_t rc = call_backend(backend, "alloc", [&] {
    return allocator_.alloc(allocator_.self, device, size, stream, &out);
  });
  if (rc == RB_OK) rc = check_buffer(size, stream, out);
  out.struct_size = sizeof out;
  out.nbytes = size;
  out.device_index = device;
  if (rc == RB_OK) return RB_OK;
  std::lock_guard lock(mutex_);
  pending_ -= size;
  return rc;
}

// First a segment that others can use, too, then one of the size alone.
Block* Heap::grow(uint64_t size, uint64_t requested, void* stream, uint64_t pool) {
  run_due_deleters();
  if (exact_) size = std::max<uint64_t>(requested, 1);
  const uint64_t wanted = split_ ? segment_size(size) : size;
  RbBuffer buffer;
  Block* extended = nullptr;
  const auto ask_all = [&] {
    int32_t rc = extend(size, requested, stream, pool, extended);
    if (rc != RB_E_NOTIMPL) return rc;
    rc = ask(wanted, stream, buffer);
    return rc != RB_OK && wanted != size ? ask(size, stream, buffer) : rc;
  };
  int32_t rc = ask_all();
  if (rc == RB_E_PLUGIN) check(rc);
  // While the thread captures, the backend could not wait for the segments' streams.
  if (rc != RB_OK && !thread_state().capture) {
    release_cached();
    {
      std::lock_guard lock(mutex_);
      if (rc == RB_E_OOM) ++stats_.retries;
    }
    rc = ask_all();
  }
  if (extended) return extended;
  if (rc != RB_OK) {
    if (rc != RB_E_OOM) check(rc);  // the device is not there, say: no lack of memory
    if (Block* block = try_cached(size, requested, stream, pool)) return block;
    if (Block* block = borrow(size, requested, stream, pool)) return block;
    fail_oom(requested, rc);
  }
  std::lock_guard lock(mutex_);
  pending_ -= buffer.nbytes;
  Arena& mine = arena(stream, pool, size <= kSmallLimit);
  return take(add_segment(buffer, mine), mine, size, requested);
}

// A free block of another stream, whose work comes first.
Block* Heap::borrow(uint64_t size, uint64_t requested, void* stream, uint64_t pool) {
  Block* block = nullptr;
  void* other = nullptr;
  {
    std::lock_guard lock(mutex_);
    join_kept();
    for (const auto& a : arenas_) {
      if (a->pool != pool) continue;
      Block* found = find(*a, size);
      if (found && (!block || found->size < block->size)) block = found;
    }
    if (!block) return nullptr;
    other = block->arena->stream;
    take(block, arena(stream, pool, size <= kSmallLimit), size, requested);
  }
  if (other == stream) return block;
  const int32_t rc = guarded([&] { stream_wait(backend, device, stream, other); });
  if (rc == RB_OK) return block;
  free(block);
  check(rc);
  return nullptr;
}

void Heap::free(Block* block) {
  if (__builtin_expect(!block->used_on.empty(), 0)) return free_used(block);
  put_back(block);
}

[[gnu::noinline]] void Heap::free_used(Block* block) {
  {
    std::lock_guard lock(mutex_);
    count_freed(block);  // as in PyTorch: it is not the program's any more
    waiting_.push_back({block, std::move(block->used_on), {}});
    block->used_on.clear();
    waits_.store(true, std::memory_order_relaxed);
  }
  reclaim();
}

void Heap::put_back(Block* block, bool counted) {
  std::unique_lock lock(mutex_);
  if (host_) mark_unused(block->data, block->size);
  if (!counted) count_freed(block);
  if (__builtin_expect(keep(block), 1)) return;
  std::vector<Segment*> detached;
  block = join(block);
  insert(block);
  const bool whole = !block->prev && !block->next && !block->segment->busy;
  const uint64_t cached = stats_.all.segment_bytes.current() - stats_.all.block_bytes.current();
  const bool useless = exact_ && !block->arena->pool && !thread_state().capture;
  if (__builtin_expect(whole && (cached > cap_ || useless || block->arena->closed), 0))
    detach(block->segment, detached);
  lock.unlock();
  give_back(detached);
}

// Events that are missing are recorded here: a block that was freed during a capture has none. Of a
// stream in `busy` an earlier event has not passed.
bool Heap::has_passed(Waiting& w, std::vector<StreamUse>& busy) {
  for (size_t i = w.events.size(); i < w.uses.size(); ++i) {
    const StreamUse& use = w.uses[i];
    w.events.push_back(event_create(backend, use.device, false));
    event_record(backend, use.device, use.stream, w.events.back());
  }
  for (size_t i = 0; i < w.uses.size(); ++i) {
    const StreamUse& use = w.uses[i];
    if (std::find(busy.begin(), busy.end(), use) != busy.end()) return false;
    if (event_query(backend, use.device, w.events[i])) continue;
    busy.push_back(use);
    return false;
  }
  return true;
}

void Heap::finish(Waiting& w) {
  for (size_t i = 0; i < w.events.size(); ++i)
    guarded([&] { event_destroy(backend, w.uses[i].device, w.events[i]); });
  put_back(w.block, true);
}

// Puts back what streams have done with. Not while anybody captures: an event that is recorded in a
// captured stream never passes, and asking for one invalidates the capture.
void Heap::reclaim() {
  if (captures_under_way()) return;
  std::vector<Waiting> all;
  {
    std::lock_guard lock(mutex_);
    all.swap(waiting_);
    waits_.store(false, std::memory_order_relaxed);
  }
  std::vector<Waiting> left;
  std::vector<StreamUse> busy;
  for (Waiting& w : all) {
    bool done = true;
    const int32_t rc = guarded([&] { done = has_passed(w, busy); });
    if (rc != RB_OK) {  // a backend without streams, or a device that failed
      for (const StreamUse& use : w.uses) guarded([&] { synchronize(backend, use.device); });
    }
    if (!done && rc == RB_OK) {
      left.push_back(std::move(w));
      continue;
    }
    finish(w);
  }
  if (left.empty()) return;
  std::lock_guard lock(mutex_);
  std::move(left.begin(), left.end(), std::back_inserter(waiting_));
  waits_.store(true, std::memory_order_relaxed);
}

// Where memory is short: each block that waits is free at once, and its own stream waits instead.
// Pinned memory has no such stream, the host writes it.
void Heap::wait_on_streams() {
  reclaim();
  if (kind == MemoryKind::kPinned || captures_under_way()) return;
  std::vector<Waiting> all;
  {
    std::lock_guard lock(mutex_);
    all.swap(waiting_);
    waits_.store(false, std::memory_order_relaxed);
  }
  for (Waiting& w : all) {
    void* own = w.block->arena->stream;
    const int32_t rc = guarded([&] {
      for (size_t i = 0; i < w.uses.size(); ++i) {
        if (i < w.events.size()) {
          event_wait(backend, device, own, w.events[i]);
        } else {
          stream_wait(backend, device, own, w.uses[i].stream);
        }
      }
    });
    if (rc != RB_OK) guarded([&] { synchronize(backend, device); });
    finish(w);
  }
}

void Heap::record_stream(Block* block, StreamUse use) {
  std::lock_guard lock(mutex_);
  std::vector<StreamUse>& others = block->used_on;
  const bool own = kind != MemoryKind::kPinned && use.stream == block->arena->stream;
  if (!own && std::find(others.begin(), others.end(), use) == others.end()) others.push_back(use);
}

void Heap::release_cached() {
  wait_on_streams();
  std::vector<Segment*> detached;
  {
    std::lock_guard lock(mutex_);
    detached = detach_free(0, false);
  }
  give_back(detached);
  shrink_segments();
}

void Heap::close_pool(uint64_t pool) {
  std::vector<Segment*> detached;
  {
    std::lock_guard lock(mutex_);
    for (const auto& a : arenas_) {
      if (a->pool == pool) a->closed = true;
    }
    detached = detach_free(pool, true);
    for (size_t i = arenas_.size(); i-- > 0;) drop_if_empty(*arenas_[i]);
  }
  give_back(detached);
}

void Heap::set_limit(uint64_t nbytes) {
  std::lock_guard lock(mutex_);
  limit_ = nbytes;
}

RbBuffer Heap::segment_of(const Block* block) {
  std::lock_guard lock(mutex_);
  return block->segment->buffer;
}

void cached_free(Block* block) { block->segment->heap.free(block); }

Heap& heap_of_block(const Block* block) { return block->segment->heap; }

}  // namespace rabbet
