// Texts of kernels/*.cl after rabbet/philox.h, null-terminated list; written by the build.
#pragma once
namespace rbcl {
extern const char* const kKernelSources[];
}
