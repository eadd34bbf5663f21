// Segments of the heap that change their length in place.
#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

#include "device/backends.h"
#include "device/heap_parts.h"
#include "thread/error.h"

namespace rabbet {

namespace {

// Both members or none. What else is wrong with the table is for those to say who need it.
RbDeviceTable growth_table(int backend) {
  RbDeviceTable table{};
  guarded([&] { table = device_table(backend); });
  return table.segment_shrink ? table : RbDeviceTable{};
}

}  // namespace

// A free block at the end becomes longer, or there is a new one.
void Heap::lengthen(Segment* segment, Arena& owner, uint64_t nbytes) {
  Block* last = segment->last;
  const bool free = !last->used;
  if (free) remove(last);
  if (free && last->arena == &owner) {
    last->size += nbytes;
    return insert(last);
  }
  Block* added = new_block();
  added->data = static_cast<char*>(last->data) + last->size;
  added->size = nbytes;
  added->segment = segment;
  added->arena = &owner;
  ++owner.parts;
  added->prev = last;
  added->next = nullptr;
  last->next = segment->last = added;
  if (free) insert(last);
  insert(added);
}

// Lengthens the segment that the stream got last. RB_E_NOTIMPL: there is none that can grow.
int32_t Heap::extend(uint64_t size, uint64_t requested, void* stream, uint64_t pool, Block*& out) {
  if (kind != MemoryKind::kDevice || !split_ || host_) return RB_E_NOTIMPL;
  const RbDeviceTable table = growth_table(backend);
  if (!table.segment_grow) return RB_E_NOTIMPL;
  RbBuffer buffer;
  Segment* segment;
  uint64_t least, wanted;
  {
    std::lock_guard lock(mutex_);
    Arena& mine = arena(stream, pool, size <= kSmallLimit);
    segment = mine.grows;
    if (!segment || segment->busy) return RB_E_NOTIMPL;
    const Block* last = segment->last;
    const uint64_t there = !last->used && last->arena == &mine ? last->size : 0;
    least = size > there ? size - there : kUnit;
    wanted = segment_size(mine.small ? least : std::max(least, kSmallLimit + kUnit));
    if (const int32_t rc = expect(wanted)) return rc;
    segment->busy = true;
    buffer = segment->buffer;
  }
  const uint64_t before = buffer.nbytes;
  int32_t rc = table.segment_grow(table.self, &buffer, wanted);
  uint64_t asked = wanted;
  if (rc == RB_E_OOM && least != wanted)
    rc = table.segment_grow(table.self, &buffer, asked = least);
  std::lock_guard lock(mutex_);
  pending_ -= wanted;
  segment->busy = false;
  Arena& mine = *segment->arena;
  if (rc == RB_OK && (buffer.nbytes < before + asked || buffer.data != segment->buffer.data)) {
    mine.grows = nullptr;
    return set_error(RB_E_PLUGIN, std::string("segment_grow of the backend '") +
                                      backend_name(backend) + "' did not add " +
                                      std::to_string(asked) + " bytes in place");
  }
  if (rc == RB_E_NOTIMPL) mine.grows = nullptr;
  if (rc != RB_OK) return rc;
  const uint64_t added = buffer.nbytes - before;
  segment->buffer.nbytes = buffer.nbytes;
  count(mine.small, [&](BlockStats& s) { s.segment_bytes.rise(added); });
  lengthen(segment, mine, added);
  // Another thread may have taken a part of it meanwhile: then a new segment serves.
  if (segment->last->size < size) return RB_E_NOTIMPL;
  out = take(segment->last, mine, size, requested);
  return RB_OK;
}

// The block at the end, which is in no list, loses `nbytes`.
void Heap::shorten(Segment* segment, uint64_t nbytes) {
  Block* last = segment->last;
  segment->buffer.nbytes -= nbytes;
  count(segment->arena->small, [&](BlockStats& s) { s.segment_bytes.fall(nbytes); });
  last->size -= nbytes;
  if (last->size) return insert(join(last));
  Block* before = last->prev;
  const bool free = !before->used;
  if (free) remove(before);
  before->next = nullptr;
  segment->last = before;
  --last->arena->parts;
  last->list_next = spare_;
  spare_ = last;
  if (free) insert(before);
}

// Gives the free ends of segments back.
void Heap::shrink_segments() {
  if (kind != MemoryKind::kDevice || !split_ || host_) return;
  const RbDeviceTable table = growth_table(backend);
  if (!table.segment_grow) return;
  std::vector<Segment*> chosen;
  {
    std::lock_guard lock(mutex_);
    for (Segment* s = segments_; s; s = s->next) {
      if (s->busy || s->last->used || !s->last->prev || (s->arena->pool && !s->arena->closed))
        continue;
      remove(s->last);
      s->last->used = true;  // for others
      s->busy = true;
      chosen.push_back(s);
    }
  }
  for (Segment* s : chosen) {
    RbBuffer buffer = s->buffer;
    const uint64_t kept = buffer.nbytes - s->last->size;
    const int32_t rc = table.segment_shrink(table.self, &buffer, kept, s->last->arena->stream);
    const bool right = rc == RB_OK && buffer.nbytes >= kept && buffer.nbytes <= s->buffer.nbytes;
    std::lock_guard lock(mutex_);
    s->busy = false;
    shorten(s, right ? s->buffer.nbytes - buffer.nbytes : 0);
  }
}

}  // namespace rabbet
