// Kernels' libraries.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "launch.h"

namespace cusim {

struct Module {
  void* library = nullptr;
  int device = 0;  // that may run its kernels
  CusimModule* symbols = nullptr;
  const char *begin = nullptr, *end = nullptr;  // its constants and code
  std::map<std::string, std::unique_ptr<Function>> functions;
};

/// From the bytes of a shared library; null: they are none.
std::unique_ptr<Module> load_module(const void* image);
void unload(Module& module);
/// Null: there is none of this name.
Function* function_of(Module& module, const char* name);

}  // namespace cusim
