#include "jit.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "texts.h"

namespace rbcuda {
namespace {

std::vector<char> compile(Device& device, const Kernel& kernel) {
  const Nvrtc& n = nvrtc();
  const std::string text = kText_types + kernel.dtypes + kernel.text + kernel.behind;
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
  std::string key = std::to_string(device.index()) + ":" + kernel.dtypes;
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

Number number_of(const RbValue& value) {
  const double real = rb::to_double(value);
  const bool floating = value.tag == RB_FLOAT;
  return {real, floating ? static_cast<int64_t>(real) : rb::to_int(value)};
}

std::string type_text(const char* type, int dtype) {
  const char* name = nullptr;
  switch (dtype) {
    case RB_BOOL8:
      name = "bool";
      break;
    case RB_U8:
      name = "UInt8";
      break;
    case RB_I8:
      name = "Int8";
      break;
    case RB_I16:
      name = "Int16";
      break;
    case RB_U16:
      name = "UInt16";
      break;
    case RB_I32:
      name = "int";
      break;
    case RB_U32:
      name = "UInt32";
      break;
    case RB_I64:
      name = "Int64";
      break;
    case RB_U64:
      name = "UInt64";
      break;
    case RB_F16:
      name = "Half";
      break;
    case RB_BF16:
      name = "BFloat16";
      break;
    case RB_F32:
      name = "float";
      break;
    case RB_F64:
      name = "double";
      break;
    case RB_C64:
      name = "Complex<float>";
      break;
    case RB_C128:
      name = "Complex<double>";
      break;
    default:
      rb::fail(RB_E_NOTIMPL, "cuda: no kernels for dtype number %d", dtype);
  }
  return std::string("typedef ") + name + " " + type + ";\n";
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
