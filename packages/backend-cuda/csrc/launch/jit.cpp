#include "launch/jit.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "launch/texts.h"

namespace rbcuda {
namespace {

// What kernels/types.cuh calls the dtypes of the header, by id.
const char* const kTypeNames[] = {
    "bool",   "UInt8", "Int8",     "Int16", "int",    "Int64",          "UInt16",         "UInt32",
    "UInt64", "Half",  "BFloat16", "float", "double", "Complex<float>", "Complex<double>"};

std::string text_of(const Kernel& kernel) {
  std::string text = kText_types;
  for (const TypeName& type : kernel.types) {
    if (type.dtype < 0 || type.dtype >= RB_DTYPE_COUNT)
      rb::fail(RB_E_NOTIMPL, "cuda: no kernels for dtype number %d", type.dtype);
    text += std::string("typedef ") + kTypeNames[type.dtype] + " " + type.name + ";\n";
  }
  return text + kernel.text + kernel.behind;
}

std::vector<char> compile(Device& device, const Kernel& kernel) {
  const Nvrtc& n = nvrtc();
  const std::string text = text_of(kernel);
  NvrtcProgram program = nullptr;
  if (int status = n.create(&program, text.c_str(), "rabbet.cu", 0, nullptr, nullptr))
    rb::fail(RB_E_DEVICE, "cuda:%d: nvrtcCreateProgram failed: %d", device.index(), status);
  const std::string architecture = "--gpu-architecture=" + device.architecture();
  // Without contraction: formulas are what the records state, to the bit.
  const char* options[] = {architecture.c_str(), "--std=c++17", "--fmad=false"};
  const int status = n.compile(program, 3, options);
  std::vector<char> result;
  if (status) {
    size_t size = 0;
    n.log_size(program, &size);
    std::string log(size, '\0');
    n.log(program, log.data());
    n.destroy(&program);
    rb::fail(RB_E_DEVICE, "cuda:%d: the kernel of %s does not compile for %s (NVRTC %d):\n%s",
             device.index(), kernel.op, device.architecture().c_str(), status, log.c_str());
  }
  size_t size = 0;
  n.cubin_size(program, &size);
  result.resize(size);
  n.cubin(program, result.data());
  n.destroy(&program);
  return result;
}

CuFunction function(Device& device, const Kernel& kernel) {
  static std::mutex mutex;
  static auto* functions = new std::unordered_map<std::string, CuFunction>;
  std::string key(1, static_cast<char>(device.index()));
  for (const TypeName& type : kernel.types) (key += type.name) += static_cast<char>(type.dtype);
  key.append(reinterpret_cast<const char*>(&kernel.text), sizeof kernel.text) += kernel.behind;
  std::lock_guard<std::mutex> lock(mutex);
  const auto at = functions->find(key);
  if (at != functions->end()) return at->second;
  const std::vector<char> image = compile(device, kernel);
  CuModule module = nullptr;
  CuFunction made = nullptr;
  check_cuda(driver().module_load(&module, image.data()), device.index(), "cuModuleLoadData");
  check_cuda(driver().module_function(&made, module, "rb_kernel"), device.index(),
             "cuModuleGetFunction");
  return (*functions)[key] = made;
}

}  // namespace

Types::Types(std::initializer_list<TypeName> names) : count_(static_cast<int>(names.size())) {
  if (count_ > kMost) rb::fail(RB_E_INTERNAL, "cuda: a kernel of %d dtypes", count_);
  std::copy(names.begin(), names.end(), names_);
}

Number number_of(const RbValue& value) {
  const double real = rb::to_double(value);
  const bool floating = value.tag == RB_FLOAT;
  return {real, floating ? static_cast<int64_t>(real) : rb::to_int(value)};
}

void launch(Device& device, const Kernel& kernel, Grid grid, void** arguments) {
  device.enter();
  const CuFunction f = function(device, kernel);
  const std::string what = std::string("launch of ") + kernel.op;
  check_cuda(driver().launch(f, grid.x, grid.y, grid.z, grid.threads, 1, 1, 0,
                             device.current_stream(), arguments, nullptr),
             device.index(), what.c_str());
}

void launch(Device& device, const Kernel& kernel, int64_t positions, void** arguments) {
  constexpr int64_t kBlock = 256, kMostBlocks = 1 << 20;  // kernels step by the grid beyond that
  const int64_t blocks = std::min((positions + kBlock - 1) / kBlock, kMostBlocks);
  launch(device, kernel, Grid{static_cast<unsigned>(blocks), 1, 1, kBlock}, arguments);
}

}  // namespace rbcuda
