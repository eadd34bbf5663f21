#include "queue.h"

#include "rabbet/plugin.hpp"

namespace rbcl {

void check_cl(cl_int status, int device, const char* what) {
  if (__builtin_expect(status == CL_SUCCESS, 1)) return;
  rb::fail(status == CL_MEM_OBJECT_ALLOCATION_FAILURE ? RB_E_OOM : RB_E_DEVICE,
           "opencl:%d: %s failed: %s", device, what, status_text(status).c_str());
}

bool passed(const Mark& mark, int device) {
  if (!mark) return true;
  cl_int status = CL_COMPLETE;
  check_cl(cl().GetEventInfo(mark.get(), CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status,
                             nullptr),
           device, "clGetEventInfo");
  if (status < 0) check_cl(status, device, "a command of the stream");
  return status == CL_COMPLETE;
}

void wait(const Mark& mark, int device) {
  if (!mark) return;
  cl_event event = mark.get();
  check_cl(cl().WaitForEvents(1, &event), device, "clWaitForEvents");
}

cl_ulong end_of(const Mark& mark, int device) {
  cl_ulong time = 0;
  check_cl(
      cl().GetEventProfilingInfo(mark.get(), CL_PROFILING_COMMAND_END, sizeof time, &time, nullptr),
      device, "clGetEventProfilingInfo");
  return time;
}

Queue::Queue(cl_context context, cl_device_id id, int device) {
  // Times of events come from the profile, which every device offers.
  const cl_queue_properties properties[] = {CL_QUEUE_PROPERTIES, CL_QUEUE_PROFILING_ENABLE, 0};
  cl_int status;
  queue_ = cl().CreateCommandQueueWithProperties(context, id, properties, &status);
  check_cl(status, device, "clCreateCommandQueueWithProperties");
}

}  // namespace rbcl
