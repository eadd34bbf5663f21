// A few blocks per thread, taken best fit.
#include "common/workspace.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>

namespace rbcpu {

#if defined(__SANITIZE_ADDRESS__)

// Blocks of the size that was asked for, which AddressSanitizer then watches.
void* take_workspace(size_t bytes) {
  void* data = nullptr;
  if (posix_memalign(&data, 64, bytes)) throw std::bad_alloc();
  return data;
}
void drop_workspace(void* data) noexcept { std::free(data); }

#else

namespace {

constexpr size_t kHeader = 64;              // holds the block's size, keeps the alignment
constexpr size_t kKept = size_t{64} << 20;  // bytes that a thread keeps at most
constexpr size_t kHuge = size_t{2} << 20;   // from here on whole huge pages
constexpr size_t kStep = size_t{64} << 10;
constexpr int kBlocks = 8;

struct Block {
  char* base;
  size_t size;
};

struct Idle {
  Block blocks[kBlocks] = {};
  size_t total = 0;
  ~Idle() {
    for (const Block& b : blocks) std::free(b.base);
  }
};
Idle& idle() {
  thread_local Idle blocks;
  return blocks;
}

}  // namespace

void* take_workspace(size_t bytes) {
  if (bytes > SIZE_MAX / 2) throw std::bad_alloc();
  const size_t least = bytes + kHeader;
  Idle& have = idle();
  Block* best = nullptr;
  for (Block& b : have.blocks) {
    if (b.base && b.size >= least && (!best || b.size < best->size)) best = &b;
  }
  char* base;
  if (best && best->size / 4 <= least + kStep) {
    base = best->base;
    have.total -= best->size;
    *best = {};
  } else {
    const size_t step = least >= kHuge ? kHuge : kStep, size = (least + step - 1) / step * step;
    base = static_cast<char*>(std::aligned_alloc(step == kHuge ? kHuge : kHeader, size));
    if (!base) throw std::bad_alloc();
#if defined(MADV_HUGEPAGE)
    if (step == kHuge) madvise(base, size, MADV_HUGEPAGE);
#endif
    *reinterpret_cast<size_t*>(base) = size;
  }
  return base + kHeader;
}

void drop_workspace(void* data) noexcept {
  char* base = static_cast<char*>(data) - kHeader;
  const size_t size = *reinterpret_cast<size_t*>(base);
  Idle& have = idle();
  if (have.total + size <= kKept) {
    for (Block& b : have.blocks) {
      if (b.base) continue;
      b = {base, size};
      have.total += size;
      return;
    }
  }
  std::free(base);
}

#endif

}  // namespace rbcpu
