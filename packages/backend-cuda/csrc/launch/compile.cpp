#include "launch/compile.h"

namespace rbcuda {
namespace {

// A program of NVRTC, destroyed at the end of the scope.
class Program {
 public:
  Program(Device& device, const std::string& text) {
    if (int status = nvrtc().create(&handle_, text.c_str(), "rabbet.cu", 0, nullptr, nullptr))
      rb::fail(RB_E_DEVICE, "cuda:%d: nvrtcCreateProgram failed: %d", device.index(), status);
  }
  ~Program() { nvrtc().destroy(&handle_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  NvrtcProgram handle() const { return handle_; }
  std::string log() const {
    size_t size = 0;
    nvrtc().log_size(handle_, &size);
    std::string text(size, '\0');
    nvrtc().log(handle_, text.data());
    return text;
  }
  std::vector<char> cubin() const {
    size_t size = 0;
    nvrtc().cubin_size(handle_, &size);
    std::vector<char> image(size);
    nvrtc().cubin(handle_, image.data());
    return image;
  }

 private:
  NvrtcProgram handle_ = nullptr;
};

}  // namespace

std::vector<char> compile(Device& device, const char* op, const std::string& text) {
  const Program program(device, text);
  const std::string architecture = "--gpu-architecture=" + device.architecture();
  // Without contraction: formulas are what the records state, to the bit.
  const char* options[] = {architecture.c_str(), "--std=c++17", "--fmad=false"};
  if (const int status = nvrtc().compile(program.handle(), 3, options))
    rb::fail(RB_E_DEVICE, "cuda:%d: the kernel of %s does not compile for %s (NVRTC %d):\n%s",
             device.index(), op, device.architecture().c_str(), status, program.log().c_str());
  return program.cubin();
}

}  // namespace rbcuda
