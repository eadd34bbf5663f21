// libOpenCL, opened at run time: the wheel loads on machines that have none, and says so.
#pragma once
#include <CL/cl.h>

#include <string>

#define RBCL_FUNCTIONS(X)             \
  X(GetPlatformIDs)                   \
  X(GetPlatformInfo)                  \
  X(GetDeviceIDs)                     \
  X(GetDeviceInfo)                    \
  X(CreateContext)                    \
  X(CreateCommandQueueWithProperties) \
  X(CreateProgramWithSource)          \
  X(BuildProgram)                     \
  X(GetProgramBuildInfo)              \
  X(CreateKernel)                     \
  X(SetKernelArg)                     \
  X(SetKernelArgSVMPointer)           \
  X(EnqueueNDRangeKernel)             \
  X(EnqueueSVMMemcpy)                 \
  X(SVMAlloc)                         \
  X(SVMFree)                          \
  X(Flush)                            \
  X(EnqueueMarkerWithWaitList)        \
  X(EnqueueBarrierWithWaitList)       \
  X(WaitForEvents) X(ReleaseEvent) X(GetEventInfo) X(GetEventProfilingInfo)

namespace rbcl {

struct Library {
#define RBCL_MEMBER(name) decltype(&::cl##name) name;
  RBCL_FUNCTIONS(RBCL_MEMBER)
#undef RBCL_MEMBER
};

/// Opens it at the first call; throws RB_E_DEVICE saying what to install.
const Library& cl();
/// "CL_OUT_OF_RESOURCES (-5)".
std::string status_text(cl_int status);

}  // namespace rbcl
