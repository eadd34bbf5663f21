#include "launch/image.h"

#include <unistd.h>

#include <cstdlib>

#include "launch/compile.h"
#include "launch/disk_cache.h"
#include "launch/seed_pack.h"
#include "launch/sha256.h"
#include "launch/texts.h"

namespace rbcuda {
namespace {

// The same as in tools/make_seed_pack.py.
std::string key_of(const std::string& text, const std::string& target,
                   const std::string& compiler) {
  std::string all = text + '\0';
  for (const std::string& option : options_of(text, target)) all += option + ' ';
  return sha256(all + compiler);
}

// Made for the device's architecture, or an older one of its generation.
std::vector<char> seed_for(const Device& device, const std::string& text) {
  const int architecture = std::stoi(device.architecture().substr(3));
  for (int minor = architecture % 10; minor >= 0; --minor) {
    const std::string target = "sm_" + std::to_string(architecture / 10 * 10 + minor);
    std::vector<char> image = read_seed(key_of(text, target, ""));
    if (!image.empty()) return image;
  }
  return {};
}

void keep_source(const char* op, const std::string& text) {
  const char* folder = std::getenv("RABBET_CUDA_KEEP_SOURCES");
  if (!folder || !*folder) return;
  const std::string path =
      std::string(folder) + "/" + op + "-" + sha256(text).substr(0, 16) + ".cu";
  if (access(path.c_str(), F_OK) != 0) write_file(path, text);
}

[[noreturn]] void fail_compiling(const Device& device, const char* op, const std::string& text,
                                 const std::string& target, const Compiled& compiled) {
  const std::string folder =
      cache_folder().empty() ? "/tmp/rabbet-cuda-" + std::to_string(getuid()) : cache_folder();
  const std::string stem = folder + "/failed/" + sha256(text).substr(0, 16);
  const bool kept = write_file(stem + ".cu", text) && write_file(stem + ".log", compiled.log);
  rb::fail(RB_E_DEVICE, "cuda:%d: the kernel of %s does not compile for %s (%s, status %d)%s%s\n%s",
           device.index(), op, target.c_str(), compiler_name().c_str(), compiled.status,
           kept ? "; text and log: " : "", kept ? (stem + ".{cu,log}").c_str() : "",
           compiled.log.c_str());
}

}  // namespace

std::string text_of(const Kernel& kernel) {
  std::string text = std::string(kText_types) + kText_block, names;
  bool of_8_bits = false;
  for (const TypeName& type : kernel.types) {
    of_8_bits = of_8_bits || float8_dtypes().has(type.dtype());
    names += std::string("typedef ") + type_name(type.dtype()) + " " + type.name() + ";\n";
  }
  if (of_8_bits) text += kText_float8;
  text.append(names).append(kernel.text).append(kernel.functions.data());
  return text.append(kernel.behind.data());
}

std::vector<char> image_of(Device& device, const char* op, const std::string& text, Source source) {
  keep_source(op, text);
  const bool any = source == Source::kAny;
  if (std::vector<char> image = any ? seed_for(device, text) : std::vector<char>(); !image.empty())
    return image;
  const std::string target = target_of(device), key = key_of(text, target, compiler_name());
  if (std::vector<char> image = any ? read_cached(key) : std::vector<char>(); !image.empty())
    return image;
  Compiled compiled = compile(op, text, target);
  if (compiled.status) fail_compiling(device, op, text, target, compiled);
  write_cached(key, compiled.image);
  return compiled.image;
}

}  // namespace rbcuda
