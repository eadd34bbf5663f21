// A stand-in for libcuda: devices whose memory is one range of the host's and whose streams are
// queues that run only when something waits, so that a forgotten wait reads what was there before.
// New memory is filled with 0xff, a NaN. Kernels' loads and stores in the range must lie in memory
// that was given out, else the error is sticky, as on a device: 700 from then on.
//
// CUSIM_DEVICES (1): how many devices. CUSIM_MEMORY (1 GiB): bytes of each.
#include <dlfcn.h>
#include <sys/mman.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace {

constexpr int kInvalid = 1, kOutOfMemory = 2, kInvalidDevice = 101, kBadImage = 200,
              kNotFound = 500, kNotReady = 600, kIllegalAddress = 700, kLaunchFailed = 719;

struct Index {
  unsigned x, y, z;
};
using Bound = std::function<void(Index, Index)>;

struct Stream {
  std::deque<std::function<void()>> commands;
  bool running = false;
};
struct Event {
  Stream* stream = nullptr;
  uint64_t generation = 0, passed = 0;  // recorded so often, and the last record that was reached
  double time = 0;
};
struct Device {
  std::map<char*, size_t> blocks;
  char *begin = nullptr, *end = nullptr, *next = nullptr;
  size_t in_use = 0;
  int sticky = 0;
  Stream first;
  std::vector<std::unique_ptr<Stream>> streams;
};

std::recursive_mutex mutex;
using Lock = std::lock_guard<std::recursive_mutex>;
std::vector<std::unique_ptr<Device>> devices;
size_t memory = size_t{1} << 30;
thread_local Device* current = nullptr;
Device* working = nullptr;  // whose kernel runs

bool inside(const Device& d, const char* p, size_t size) {
  auto block = d.blocks.upper_bound(const_cast<char*>(p));
  if (block == d.blocks.begin()) return false;
  --block;
  return p + size <= block->first + block->second;
}

void access(const void* pointer, size_t size) {
  const char* p = static_cast<const char*>(pointer);
  for (const auto& d : devices) {
    if (p < d->begin || p >= d->end) continue;  // the host's: a kernel's own variables
    if (d.get() != working || !inside(*d, p, size)) working->sticky = kIllegalAddress;
  }
}

// What a kernel did wrong, in words; nullptr: nothing.
const char* found_fault = nullptr;
void fault(const char* what) {
  found_fault = what;
  working->sticky = kLaunchFailed;
}

Stream& stream_of(void* stream) { return stream ? *static_cast<Stream*>(stream) : current->first; }

void run(Stream& stream) {
  if (stream.running) return;  // it waits for itself
  stream.running = true;
  while (!stream.commands.empty()) {
    auto command = std::move(stream.commands.front());
    stream.commands.pop_front();
    if (!current->sticky) command();
  }
  stream.running = false;
}

// Commands of a stream up to an event's record.
void run_until(Event& event, uint64_t generation) {
  while (event.passed < generation && !event.stream->commands.empty() && !current->sticky) {
    auto command = std::move(event.stream->commands.front());
    event.stream->commands.pop_front();
    command();
  }
}

int add(void* stream, std::function<void()> command) {
  if (current->sticky) return current->sticky;
  stream_of(stream).commands.push_back(std::move(command));
  return 0;
}

int copy(void* to, const void* from, size_t n, void* stream) {
  return add(stream, [to, from, n] { std::memmove(to, from, n); });
}

bool given(const void* pointer, size_t n) {
  return inside(*current, static_cast<const char*>(pointer), n);
}

}  // namespace

extern "C" {

int cuInit(unsigned) {
  Lock lock(mutex);
  if (!devices.empty()) return 0;
  if (const char* bytes = std::getenv("CUSIM_MEMORY")) memory = std::strtoull(bytes, nullptr, 10);
  const char* count = std::getenv("CUSIM_DEVICES");
  for (int i = 0; i < (count ? std::atoi(count) : 1); ++i) {
    auto d = std::make_unique<Device>();
    // Addresses are never given out twice, so that use after free is found.
    const size_t range = size_t{1} << 40;
    void* base = mmap(nullptr, range, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return kOutOfMemory;
    d->begin = d->next = static_cast<char*>(base);
    d->end = d->begin + range;
    devices.push_back(std::move(d));
  }
  return devices.empty() ? 100 : 0;
}
int cuDriverGetVersion(int* version) {
  const char* given = std::getenv("CUSIM_VERSION");
  *version = given ? std::atoi(given) : 13000;
  return 0;
}
int cuDeviceGetCount(int* count) {
  *count = static_cast<int>(devices.size());
  return 0;
}
int cuDeviceGet(int* device, int index) {
  if (index < 0 || index >= static_cast<int>(devices.size())) return kInvalidDevice;
  *device = index;
  return 0;
}
int cuDeviceGetName(char* name, int size, int) {
  std::strncpy(name, "simulated device", size);
  return 0;
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  *value = attribute == 75 ? 9 : 0;
  return 0;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = devices.at(device).get();
  return 0;
}
int cuCtxSetCurrent(void* context) {
  current = static_cast<Device*>(context);
  return 0;
}
int cuCtxSynchronize() {
  Lock lock(mutex);
  run(current->first);
  for (const auto& stream : current->streams) run(*stream);
  return current->sticky;
}
int cuMemAlloc_v2(unsigned long long* pointer, size_t size) {
  Lock lock(mutex);
  if (current->sticky) return current->sticky;
  if (size == 0) return kInvalid;
  if (current->in_use + size > memory) return kOutOfMemory;
  char* data = current->next;
  current->next += (size + 511) / 512 * 512 + 4096;  // what lies between belongs to nobody
  std::memset(data, 0xff, size);
  current->blocks[data] = size;
  current->in_use += size;
  *pointer = reinterpret_cast<unsigned long long>(data);
  return 0;
}
int cuMemFree_v2(unsigned long long pointer) {
  Lock lock(mutex);
  cuCtxSynchronize();
  const auto block = current->blocks.find(reinterpret_cast<char*>(pointer));
  if (block == current->blocks.end()) return kInvalid;
  const size_t pages = block->second / 4096 * 4096;
  char* first = reinterpret_cast<char*>((pointer + 4095) / 4096 * 4096);
  if (pages > 4096) madvise(first, pages - 4096, MADV_DONTNEED);
  current->in_use -= block->second;
  current->blocks.erase(block);
  return current->sticky;
}
int cuMemGetInfo_v2(size_t* free, size_t* total) {
  Lock lock(mutex);
  *total = memory;
  *free = memory - current->in_use;
  return 0;
}
int cuMemcpyHtoDAsync_v2(unsigned long long to, const void* from, size_t n, void* stream) {
  Lock lock(mutex);
  void* target = reinterpret_cast<void*>(to);
  if (!given(target, n)) return kInvalid;
  // Pageable memory is read before the call returns.
  auto bytes = std::make_shared<std::vector<char>>(static_cast<const char*>(from),
                                                   static_cast<const char*>(from) + n);
  return add(stream, [bytes, target, n] { std::memcpy(target, bytes->data(), n); });
}
int cuMemcpyDtoHAsync_v2(void* to, unsigned long long from, size_t n, void* stream) {
  Lock lock(mutex);
  const void* source = reinterpret_cast<const void*>(from);
  return given(source, n) ? copy(to, source, n, stream) : kInvalid;
}
int cuMemcpyDtoDAsync_v2(unsigned long long to, unsigned long long from, size_t n, void* stream) {
  Lock lock(mutex);
  void* target = reinterpret_cast<void*>(to);
  const void* source = reinterpret_cast<const void*>(from);
  return given(target, n) && given(source, n) ? copy(target, source, n, stream) : kInvalid;
}
int cuStreamCreate(void** stream, unsigned) {
  Lock lock(mutex);
  current->streams.push_back(std::make_unique<Stream>());
  *stream = current->streams.back().get();
  return 0;
}
int cuStreamSynchronize(void* stream) {
  Lock lock(mutex);
  run(stream_of(stream));
  return current->sticky;
}
int cuStreamQuery(void* stream) {
  Lock lock(mutex);
  if (current->sticky) return current->sticky;
  return stream_of(stream).commands.empty() ? 0 : kNotReady;
}
int cuStreamWaitEvent(void* stream, void* event, unsigned) {
  Lock lock(mutex);
  Event& e = *static_cast<Event*>(event);
  return add(stream, [&e, generation = e.generation] { run_until(e, generation); });
}
int cuEventCreate(void** event, unsigned) {
  *event = new Event;
  return 0;
}
int cuEventDestroy_v2(void*) { return 0; }  // commands may refer to it still
int cuEventRecord(void* event, void* stream) {
  Lock lock(mutex);
  Event& e = *static_cast<Event*>(event);
  e.stream = &stream_of(stream);
  return add(stream, [&e, generation = ++e.generation] {
    e.passed = generation;
    e.time = std::chrono::duration<double, std::milli>(
                 std::chrono::steady_clock::now().time_since_epoch())
                 .count();
  });
}
int cuEventSynchronize(void* event) {
  Lock lock(mutex);
  Event& e = *static_cast<Event*>(event);
  run_until(e, e.generation);
  return current->sticky;
}
int cuEventQuery(void* event) {
  Lock lock(mutex);
  const Event& e = *static_cast<Event*>(event);
  return current->sticky ? current->sticky : e.passed < e.generation ? kNotReady : 0;
}
int cuEventElapsedTime(float* time, void* start, void* end) {
  Lock lock(mutex);
  const Event &from = *static_cast<Event*>(start), &to = *static_cast<Event*>(end);
  if (from.passed < from.generation || to.passed < to.generation) return kNotReady;
  *time = static_cast<float>(to.time - from.time);
  return 0;
}
int cuModuleLoadData(void** module, const void* image) {
  void* library = dlopen(static_cast<const char*>(image), RTLD_NOW | RTLD_LOCAL);
  if (!library) return kBadImage;
  *static_cast<void (**)(const void*, size_t)>(dlsym(library, "cusim_access")) = access;
  *static_cast<void (**)(const char*)>(dlsym(library, "cusim_fault")) = fault;
  *module = library;
  return 0;
}
int cuModuleGetFunction(void** function, void* module, const char* name) {
  *function = dlsym(module, (std::string("cusim_bind_") + name).c_str());
  return *function ? 0 : kNotFound;
}
int cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned, void* stream, void** arguments, void**) {
  Lock lock(mutex);
  if (gx == 0 || gy == 0 || gz == 0 || bx * by * bz == 0 || bx * by * bz > 1024) return kInvalid;
  // Arguments are read before the call returns.
  std::shared_ptr<Bound> bound(
      static_cast<Bound*>(reinterpret_cast<void* (*)(void**)>(function)(arguments)));
  return add(stream, [bound, gx, gy, gz, bx, by, bz] {
    working = current;
    (*bound)({gx, gy, gz}, {bx, by, bz});
  });
}
int cuGetErrorName(int status, const char** name) {
  *name = status == kOutOfMemory      ? "CUDA_ERROR_OUT_OF_MEMORY"
          : status == kIllegalAddress ? "CUDA_ERROR_ILLEGAL_ADDRESS"
          : status == kLaunchFailed   ? "CUDA_ERROR_LAUNCH_FAILED"
                                      : "CUDA_ERROR";
  return 0;
}
int cuGetErrorString(int status, const char** text) {
  *text = status == kIllegalAddress ? "an illegal memory access was encountered"
          : status == kLaunchFailed ? found_fault
                                    : "an error";
  return 0;
}
}
