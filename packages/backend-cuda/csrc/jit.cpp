#include "jit.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

namespace rbcuda {
namespace {

std::vector<char> compile(Device& device, const Kernel& kernel) {
  const Nvrtc& n = nvrtc();
  const std::string text = kCommonText + kernel.text;
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
    rb::fail(RB_E_DEVICE, "cuda:%d: the kernel %s of %s does not compile for %s (NVRTC %d):\n%s",
             device.index(), kernel.name.c_str(), kernel.op, device.architecture().c_str(), status,
             log.c_str());
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
  const std::string key = std::to_string(device.index()) + ":" + kernel.text;
  std::lock_guard<std::mutex> lock(mutex);
  const auto at = functions->find(key);
  if (at != functions->end()) return at->second;
  const std::vector<char> image = compile(device, kernel);
  CuModule module = nullptr;
  CuFunction made = nullptr;
  check_cuda(driver().module_load(&module, image.data()), device.index(), "cuModuleLoadData");
  check_cuda(driver().module_function(&made, module, kernel.name.c_str()), device.index(),
             "cuModuleGetFunction");
  return (*functions)[key] = made;
}

}  // namespace

Number number_of(const RbValue& value) {
  const double real = rb::to_double(value);
  const bool floating = value.tag == RB_FLOAT;
  return {real, floating ? static_cast<int64_t>(real) : rb::to_int(value)};
}

std::string type_text(const char* type, int dtype) {
  const char* c = dtype == RB_BOOL8 ? "bool"
                  : dtype == RB_I32 ? "int"
                  : dtype == RB_I64 ? "long long"
                  : dtype == RB_F32 ? "float"
                                    : "double";
  return std::string("typedef ") + c + " " + type + ";\n";
}

void launch(Device& device, const Kernel& kernel, int64_t positions, void** arguments) {
  constexpr int64_t kBlock = 256, kMostBlocks = 1 << 20;  // kernels step by the grid beyond that
  device.enter();
  const CuFunction f = function(device, kernel);
  const int64_t blocks = std::min((positions + kBlock - 1) / kBlock, kMostBlocks);
  const std::string what = std::string("launch of ") + kernel.op;
  check_cuda(driver().launch(f, static_cast<unsigned>(blocks), 1, 1, kBlock, 1, 1, 0,
                             device.current_stream(), arguments, nullptr),
             device.index(), what.c_str());
}

}  // namespace rbcuda
