#include "modules.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstring>

namespace cusim {
namespace {

// What the linker writes: the section headers stand at the end.
size_t size_of(const void* image) {
  ElfW(Ehdr) header;
  std::memcpy(&header, image, sizeof header);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return 0;
  return header.e_shoff + size_t{header.e_shnum} * header.e_shentsize;
}

bool write_all(int file, const char* data, size_t n) {
  while (n > 0) {
    const ssize_t written = write(file, data, n);
    if (written <= 0) return false;
    data += written;
    n -= static_cast<size_t>(written);
  }
  return true;
}

int find_range(dl_phdr_info* info, size_t, void* module) {
  Module& m = *static_cast<Module*>(module);
  const char* base = reinterpret_cast<const char*>(info->dlpi_addr);
  const char *begin = nullptr, *end = nullptr;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& part = info->dlpi_phdr[i];
    if (part.p_type != PT_LOAD) continue;
    if (!begin) begin = base + part.p_vaddr;
    end = base + part.p_vaddr + part.p_memsz;
  }
  const char* known = reinterpret_cast<const char*>(m.symbols);
  if (known < begin || known >= end) return 0;
  m.begin = begin;
  m.end = end;
  return 1;
}

}  // namespace

std::unique_ptr<Module> load_module(const void* image) {
  const size_t size = size_of(image);
  if (!size) return nullptr;
  char path[] = "/tmp/cusim_kernel_XXXXXX";  // of its own: dlopen takes equal names for equal files
  const int file = mkstemp(path);
  if (file < 0) return nullptr;
  auto module = std::make_unique<Module>();
  if (write_all(file, static_cast<const char*>(image), size))
    module->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  close(file);
  unlink(path);
  if (!module->library) return nullptr;
  module->symbols = static_cast<CusimModule*>(dlsym(module->library, "cusim_module"));
  if (!module->symbols) return nullptr;
  *module->symbols->runtime = &runtime();
  dl_iterate_phdr(find_range, module.get());
  return module;
}

void unload(Module& module) { dlclose(module.library); }

Function* function_of(Module& module, const char* name) {
  auto& known = module.functions[name];
  if (!known) {
    const auto* kernel = static_cast<const CusimKernel*>(
        dlsym(module.library, (std::string("cusim_kernel_") + name).c_str()));
    if (!kernel) return nullptr;
    known = std::make_unique<Function>(Function{&module, kernel});
  }
  return known.get();
}

}  // namespace cusim
