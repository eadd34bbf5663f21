// A stand-in for libcuda: device memory shared between processes, by files without a name.
#include <fcntl.h>
#include <unistd.h>

#include <cstring>

#include "cuda.h"
#include "ipc.h"

namespace cusim {
namespace {

struct Handle {  // CUipcMemHandle
  char bytes[64];
};
struct Content {
  char mark[8];
  int process, file, device;
  size_t size;
};
constexpr char kMark[8] = "cusim-m";

struct Opened {
  Content content;
  int count;
};
std::map<const void*, Opened> opened;  // by address

}  // namespace

bool is_opened(const void* p) { return opened.count(p) != 0; }

}  // namespace cusim

using namespace cusim;

extern "C" {

int cuIpcGetMemHandle(Handle* handle, unsigned long long address) {
  CUSIM_ENTER;
  if (int status = forbid_while_capturing()) return status;
  Allocation* a = memory().find(pointer(address));
  if (!a || a->kind != Kind::kDevice || is_opened(a->begin)) return kInvalid;
  synchronize(*devices[a->device]);
  memory().open(true);
  const bool shared = memory().share(*a);
  memory().open(!checks().host);
  if (!shared) return kOutOfMemory;
  Content content = {{}, getpid(), a->shared, a->device, a->size};
  std::memcpy(content.mark, kMark, sizeof kMark);
  std::memset(handle, 0, sizeof *handle);
  std::memcpy(handle, &content, sizeof content);
  return kOk;
}
int cuIpcOpenMemHandle_v2(unsigned long long* address, Handle handle, unsigned flags) {
  CUSIM_ENTER;
  Content content;
  std::memcpy(&content, &handle, sizeof content);
  if (std::memcmp(content.mark, kMark, sizeof kMark) != 0 || flags > 1) return kInvalid;
  if (content.process == getpid()) return kInvalidContext;  // not in the process that gave it
  if (content.device != current->index) return kInvalidDevice;
  for (auto& [begin, other] : opened) {
    if (std::memcmp(&other.content, &content, sizeof content) != 0) continue;
    ++other.count;
    *address = reinterpret_cast<unsigned long long>(begin);
    return kOk;
  }
  const std::string path =
      "/proc/" + std::to_string(content.process) + "/fd/" + std::to_string(content.file);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return kInvalid;  // the process has ended, or freed it
  const Allocation* made = memory().open_shared(file, content.size, current->index);
  if (!made) return kOutOfMemory;
  opened[made->begin] = {content, 1};
  *address = reinterpret_cast<unsigned long long>(made->begin);
  return kOk;
}
int cuIpcOpenMemHandle(unsigned long long* address, Handle handle, unsigned flags) {
  return cuIpcOpenMemHandle_v2(address, handle, flags);
}
int cuIpcCloseMemHandle(unsigned long long address) {
  CUSIM_ENTER;
  const auto at = opened.find(pointer(address));
  if (at == opened.end()) return kInvalid;
  if (--at->second.count > 0) return kOk;
  synchronize(*current);
  memory().free(*memory().find(pointer(address)));
  opened.erase(at);
  return kOk;
}
}
