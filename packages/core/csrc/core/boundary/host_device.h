// Core's tables beside RbHost that concern devices.
#pragma once
#include "rabbet/capture.h"
#include "rabbet/device.h"

namespace rabbet {

extern const RbMemoryTable kMemoryTable;
extern const RbCaptureRng kCaptureRng;

}  // namespace rabbet
