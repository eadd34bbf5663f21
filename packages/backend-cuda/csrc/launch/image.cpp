#include "launch/image.h"

#include "launch/compile.h"
#include "launch/texts.h"

namespace rbcuda {
namespace {

// What kernels/types.cuh calls the dtypes of the header, by id.
const char* const kTypeNames[] = {
    "bool",   "UInt8", "Int8",     "Int16", "int",    "Int64",          "UInt16",         "UInt32",
    "UInt64", "Half",  "BFloat16", "float", "double", "Complex<float>", "Complex<double>"};

}  // namespace

std::string text_of(const Kernel& kernel) {
  std::string text = std::string(kText_types) + kText_block;
  for (const TypeName& type : kernel.types) {
    if (type.dtype() >= RB_DTYPE_COUNT)
      rb::fail(RB_E_NOTIMPL, "cuda: no kernels for dtype number %d", type.dtype());
    text += std::string("typedef ") + kTypeNames[type.dtype()] + " " + type.name() + ";\n";
  }
  text.append(kernel.text).append(kernel.functions);
  return text.append(kernel.behind.data(), kernel.behind.size());
}

std::vector<char> image_of(Device& device, const char* op, const std::string& text) {
  return compile(device, op, text);
}

}  // namespace rbcuda
