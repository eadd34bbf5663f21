// The plugin: what `rabbet_plugin_v0` hands to core, the host allocator and the one device.
#include <stdlib.h>
#include <sys/mman.h>

#include <cstdlib>

#include "common/kernels.h"
#include "common/level.h"

namespace rbcpu {

int cpu_level() {
  static const int level = [] {
    int best = 2;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("x86-64-v4")) {
      best = 4;
    } else if (__builtin_cpu_supports("x86-64-v3")) {
      best = 3;
    }
#endif
    if (const char* limit = std::getenv("RABBET_CPU_LEVEL")) {
      const int wanted = std::atoi(limit);
      if (wanted >= 2 && wanted < best) best = wanted;
    }
    return best;
  }();
  return level;
}

namespace {

constexpr uint64_t kHuge = uint64_t{2} << 20;

// From 2 MB on whole huge pages: a page fault per 4 KB costs more than filling the memory.
int32_t allocate(void*, int32_t device, uint64_t nbytes, void*, RbBuffer* out) {
  void* data = nullptr;
  out->flags = 0;
  if (nbytes >= kHuge) {
    if (nbytes > (uint64_t{1} << 62))
      return rb::set_error(RB_E_OOM, "cpu: cannot allocate %llu bytes",
                           static_cast<unsigned long long>(nbytes));
    const uint64_t size = (nbytes + kHuge - 1) & ~(kHuge - 1);
    char* base = static_cast<char*>(
        mmap(nullptr, size + kHuge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (base != MAP_FAILED) {
      const uint64_t head =
          (kHuge - (reinterpret_cast<uintptr_t>(base) & (kHuge - 1))) & (kHuge - 1);
      if (head) munmap(base, head);
      if (head != kHuge) munmap(base + head + size, kHuge - head);
      data = base + head;
      madvise(data, size, MADV_HUGEPAGE);
      out->flags = 1;
    }
  } else {
    data = std::aligned_alloc(64, nbytes ? (nbytes + 63) & ~uint64_t{63} : 64);
  }
  if (!data) {
    return rb::set_error(RB_E_OOM, "cpu: cannot allocate %llu bytes",
                         static_cast<unsigned long long>(nbytes));
  }
  out->data = data;
  out->nbytes = nbytes;
  out->ctx = nullptr;
  out->device_index = device;
  return RB_OK;
}

void release(void*, RbBuffer* buffer, void*) {
  if (buffer->nbytes >= kHuge) {
    munmap(buffer->data, (buffer->nbytes + kHuge - 1) & ~(kHuge - 1));
  } else {
    std::free(buffer->data);
  }
}

int32_t count_devices(void*, int32_t* n) {
  *n = 1;
  return RB_OK;
}
int32_t sync_device(void*, int32_t) { return RB_OK; }

const RbDevices kDevices = {
    RB_SIZE(RbDevices, fork_child), 0, nullptr, count_devices, sync_device, nullptr, nullptr};
const RbAllocator kAllocator = {RB_SIZE(RbAllocator, free), 0, nullptr, allocate, release};
const RbBackend kBackend = {RB_SIZE(RbBackend, allocator),
                            RB_B_HOST_MEMORY,
                            kBackendName,
                            1,
                            0,
                            &kDevices,
                            &kAllocator,
                            nullptr};

int32_t init(const RbHost* host, RbTxn* txn) {
  rb::host = host;
  int32_t id = -1;
  if (int32_t code = host->add_backend(txn, &kBackend, &id)) return code;
  static const Family families[] = {
      add_elementwise, add_fused,     add_copy,        add_create,   add_random,      add_reduce,
      add_minmax,      add_moments,   add_vector_norm, add_norm,     add_batch_norm,  add_loss,
      add_softmax,     add_along,     add_sort,        add_movement, add_scatter,     add_index,
      add_embedding,   add_search,    add_matmul,      add_conv,     add_pool,        add_optim,
      add_attention,   add_recurrent, add_triangular,  add_lu,       add_orthogonal,  add_eigen,
      add_singular,    add_symmetric, add_fourier,     add_resample, add_grid_sample, add_distance,
  };
  for (Family add : families) {
    if (int32_t code = add(host, txn)) return code;
  }
  return RB_OK;
}

const RbPlugin kPlugin = {
    RB_SIZE(RbPlugin, retire), RB_ABI_MAJOR,         RB_ABI_MINOR, RB_ABI_NEEDED, 0, 0,
    "rabbet-backend-cpu",      RABBET_WHEEL_VERSION, init,         nullptr};

}  // namespace
}  // namespace rbcpu

extern "C" RB_EXPORT const RbPlugin* rabbet_plugin_v0(void) { return &rbcpu::kPlugin; }
