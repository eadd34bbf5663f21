// Texts of kernels/*.cl after rabbet/philox.h, up to one without a name; written by the build.
#pragma once
namespace rbcl {
struct KernelSource {
  const char *name, *text;
};
extern const KernelSource kKernelSources[];
}  // namespace rbcl
