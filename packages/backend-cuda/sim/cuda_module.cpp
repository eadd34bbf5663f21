// A stand-in for libcuda: modules, kernels and launches.
#include <algorithm>
#include <cstring>

#include "cuda.h"

namespace cusim {
namespace {

constexpr size_t kMostParameters = 4096;
constexpr size_t kShared = 48 << 10, kMostShared = 227 << 10;
std::map<const Function*, int> allowed;  // dynamic shared memory beyond 48 KB

std::vector<char> copied(const CusimKernel& kernel, void** arguments) {
  std::vector<char> bytes;
  for (int i = 0; i < kernel.count; ++i) {
    const char* from = static_cast<const char*>(arguments[i]);
    bytes.insert(bytes.end(), from, from + kernel.sizes[i]);
    bytes.resize((bytes.size() + 15) / 16 * 16);
  }
  return bytes;
}

// Bytes, as a device lays them out.
size_t parameters_of(const CusimKernel& kernel) {
  size_t bytes = 0;
  for (int i = 0; i < kernel.count; ++i) {
    const size_t align = std::min<size_t>(kernel.sizes[i] & -kernel.sizes[i], 8);
    bytes = (bytes + align - 1) / align * align + kernel.sizes[i];
  }
  return bytes;
}

}  // namespace
}  // namespace cusim

using namespace cusim;

extern "C" {

int cuModuleLoadData(void** module, const void* image) {
  CUSIM_ENTER;
  if (int status = forbid_while_capturing()) return status;
  auto loaded = load_module(image);
  if (!loaded) return kBadImage;
  loaded->device = current->index;
  *module = loaded.get();
  current->modules.push_back(std::move(loaded));
  return kOk;
}
int cuModuleUnload(void* module) {
  CUSIM_ENTER;
  auto& all = current->modules;
  const auto at =
      std::find_if(all.begin(), all.end(), [&](const auto& m) { return m.get() == module; });
  if (at == all.end()) return kInvalidHandle;
  synchronize(*current);
  unload(**at);
  all.erase(at);
  return kOk;
}
int cuModuleGetFunction(void** function, void* module, const char* name) {
  CUSIM_ENTER;
  *function = function_of(*static_cast<Module*>(module), name);
  return *function ? kOk : kNotFound;
}
// Otherwise its first launch does it, as with CUDA_MODULE_LOADING=LAZY.
int cuFuncLoad(void* function) {
  CUSIM_ENTER;
  if (int status = forbid_while_capturing()) return status;
  static_cast<Function*>(function)->loaded = true;
  return kOk;
}
// 0: threads of a block, 1: static shared memory, 3: local memory, 4: registers, 8: dynamic shared.
int cuFuncGetAttribute(int* value, int attribute, void* function) {
  CUSIM_ENTER;
  const auto& f = *static_cast<Function*>(function);
  const CusimModule& symbols = *f.module->symbols;
  const int fixed = static_cast<int>(symbols.shared_end - symbols.shared_begin);
  const auto at = allowed.find(&f);
  *value = attribute == 0   ? 1024
           : attribute == 1 ? fixed
           : attribute == 4 ? 32
           : attribute == 8 ? (at == allowed.end() ? static_cast<int>(kShared) - fixed : at->second)
                            : 0;
  return attribute < 0 || attribute > 15 ? kInvalid : kOk;
}
int cuFuncSetAttribute(void* function, int attribute, int value) {
  CUSIM_ENTER;
  if (attribute == 9) return kOk;  // how much of the cache is shared memory
  if (attribute != 8 || value < 0) return kInvalid;
  const auto& f = *static_cast<Function*>(function);
  const CusimModule& symbols = *f.module->symbols;
  if (static_cast<size_t>(value + (symbols.shared_end - symbols.shared_begin)) > kMostShared)
    return kInvalid;
  allowed[&f] = value;
  return kOk;
}
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void*, int threads, size_t shared) {
  if (threads < 1 || threads > 1024) return kInvalid;
  const int by_threads = 2048 / ((threads + 31) / 32 * 32);
  const int by_shared = static_cast<int>((228 << 10) / (shared + 1024));
  *blocks = std::min({32, by_threads, by_shared});
  return kOk;
}
int cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, void* stream, void** arguments, void** extra) {
  CUSIM_ENTER;
  if (!function) return kInvalidHandle;
  auto& f = *static_cast<Function*>(function);
  if (f.module->device != current->index) return kInvalidHandle;
  if (parameters_of(*f.kernel) > kMostParameters) return kInvalid;
  if (!gx || !gy || !gz || gx > 2147483647u || gy > 65535 || gz > 65535 || !bx || !by || !bz ||
      bx > 1024 || by > 1024 || bz > 64 || bx * by * bz > 1024 || extra)
    return kInvalid;
  int most = 0;
  cuFuncGetAttribute(&most, 8, function);
  if (shared > 0 && static_cast<int>(shared) > most) return kInvalid;
  auto launch = std::make_shared<Launch>();
  launch->function = &f;
  launch->grid = {gx, gy, gz};
  launch->block = {bx, by, bz};
  launch->dynamic_shared = shared;
  launch->bytes = copied(*f.kernel, arguments);  // before the call returns
  CUSIM_STREAM(s, stream);
  launch->device = s.device.index;
  if (!f.loaded) {
    if (int status = forbid_while_capturing()) return status;
    f.loaded = true;
  }
  return enqueue_on(stream, f.kernel->name, [launch](uint32_t command) {
    const Fault fault = run(*launch, command);
    if (fault.status)
      report(*devices[launch->device], fault.status,
             std::string(launch->function->kernel->name) + ": " + fault.words);
  });
}
}
