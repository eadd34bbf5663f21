#include "library.h"

#include <dlfcn.h>

#include <mutex>

#include "rabbet/plugin.hpp"

namespace rbcl {
namespace {

void open(Library& library) {
  void* handle = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    rb::fail(RB_E_DEVICE,
             "opencl: %s: install an OpenCL loader and a driver (Debian and Ubuntu: apt install "
             "ocl-icd-libopencl1, and pocl-opencl-icd for the CPU)",
             dlerror());
  }
#define RBCL_LOAD(name)                                                               \
  library.name = reinterpret_cast<decltype(library.name)>(dlsym(handle, "cl" #name)); \
  if (!library.name)                                                                  \
    rb::fail(RB_E_DEVICE, "opencl: libOpenCL.so.1 has no cl" #name ": OpenCL 2.0 is needed");
  RBCL_FUNCTIONS(RBCL_LOAD)
#undef RBCL_LOAD
}

struct Status {
  cl_int code;
  const char* name;
};
#define RBCL_STATUS(name) {name, #name}
const Status kStatuses[] = {
    RBCL_STATUS(CL_DEVICE_NOT_FOUND),
    RBCL_STATUS(CL_DEVICE_NOT_AVAILABLE),
    RBCL_STATUS(CL_COMPILER_NOT_AVAILABLE),
    RBCL_STATUS(CL_MEM_OBJECT_ALLOCATION_FAILURE),
    RBCL_STATUS(CL_OUT_OF_RESOURCES),
    RBCL_STATUS(CL_OUT_OF_HOST_MEMORY),
    RBCL_STATUS(CL_BUILD_PROGRAM_FAILURE),
    RBCL_STATUS(CL_INVALID_VALUE),
    RBCL_STATUS(CL_INVALID_KERNEL_NAME),
    RBCL_STATUS(CL_INVALID_KERNEL_ARGS),
    RBCL_STATUS(CL_INVALID_ARG_INDEX),
    RBCL_STATUS(CL_INVALID_ARG_VALUE),
    RBCL_STATUS(CL_INVALID_ARG_SIZE),
    RBCL_STATUS(CL_INVALID_WORK_GROUP_SIZE),
    RBCL_STATUS(CL_INVALID_COMMAND_QUEUE),
    RBCL_STATUS(CL_INVALID_OPERATION),
    RBCL_STATUS(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST),
    RBCL_STATUS(CL_PROFILING_INFO_NOT_AVAILABLE),
};

}  // namespace

const Library& cl() {
  static std::mutex mutex;
  static Library library;
  static bool ready = false;
  std::lock_guard<std::mutex> lock(mutex);
  if (!ready) open(library);
  ready = true;
  return library;
}

std::string status_text(cl_int status) {
  for (const Status& s : kStatuses) {
    if (s.code == status) return std::string(s.name) + " (" + std::to_string(status) + ")";
  }
  return "status " + std::to_string(status);
}

}  // namespace rbcl
