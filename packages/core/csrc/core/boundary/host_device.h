// Core's tables beside RbHost that concern devices.
#pragma once
#include "rabbet/capture.h"
#include "rabbet/device.h"
#include "rabbet/settings.h"

namespace rabbet {

extern const RbMemoryTable kMemoryTable;
extern const RbCaptureRng kCaptureRng;
extern const RbSettings kSettings;

}  // namespace rabbet
