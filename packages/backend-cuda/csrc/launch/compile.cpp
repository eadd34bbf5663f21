#include "launch/compile.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace rbcuda {
namespace {

// A program of NVRTC, destroyed at the end of the scope.
class Program {
 public:
  Program(const std::string& name, const std::string& text) {
    if (int status =
            nvrtc().create(&handle_, text.c_str(), (name + ".cu").c_str(), 0, nullptr, nullptr))
      rb::fail(RB_E_DEVICE, "cuda: nvrtcCreateProgram failed: %d", status);
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
    return text.c_str();
  }
  std::vector<char> image(bool ptx) const {
    size_t size = 0;
    (ptx ? nvrtc().ptx_size : nvrtc().cubin_size)(handle_, &size);
    std::vector<char> image(size);
    (ptx ? nvrtc().ptx : nvrtc().cubin)(handle_, image.data());
    return image;
  }

 private:
  NvrtcProgram handle_ = nullptr;
};

// 80, 86, 90, ...; empty where NVRTC does not say.
std::vector<int> supported() {
  int count = 0;
  if (!nvrtc().architecture_count || nvrtc().architecture_count(&count) || count <= 0) return {};
  std::vector<int> all(static_cast<size_t>(count));
  if (nvrtc().architectures(all.data())) return {};
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace

std::string target_of(const Device& device) {
  const std::vector<int> all = supported();
  const int wanted = std::stoi(device.architecture().substr(3));
  const auto above = std::upper_bound(all.begin(), all.end(), wanted);
  if (above == all.begin()) return device.architecture();  // NVRTC will say what it supports
  const int best = above[-1], first = wanted / 10 * 10;
  if (best == wanted) return "sm_" + std::to_string(best);
  // Devices run what was made for the first one of their generation; others may be of an embedded
  // system.
  if (std::binary_search(all.begin(), all.end(), first)) return "sm_" + std::to_string(first);
  return "compute_" + std::to_string(best);
}

std::vector<std::string> options_of(const std::string& text, const std::string& target) {
  const bool contracts = text.find("\n#define RB_CONTRACTED") != std::string::npos;
  std::vector<std::string> options = {"--gpu-architecture=" + target, "--std=c++17",
                                      contracts ? "--fmad=true" : "--fmad=false",
                                      "--device-as-default-execution-space"};
  const char* lines = std::getenv("RABBET_CUDA_LINEINFO");
  if (lines && *lines && std::strcmp(lines, "0") != 0) options.push_back("--generate-line-info");
  return options;
}

std::string compiler_name() {
  int major = 0, minor = 0;
  nvrtc().version(&major, &minor);
  return "NVRTC " + std::to_string(major) + "." + std::to_string(minor);
}

Compiled compile(const char* op, const std::string& text, const std::string& target) {
  const Program program(op, text);
  const std::vector<std::string> options = options_of(text, target);
  std::vector<const char*> words;
  for (const std::string& option : options) words.push_back(option.c_str());
  const int status =
      nvrtc().compile(program.handle(), static_cast<int>(words.size()), words.data());
  if (status) return {{}, status, program.log()};
  return {program.image(target.rfind("compute_", 0) == 0), 0, ""};
}

}  // namespace rbcuda
