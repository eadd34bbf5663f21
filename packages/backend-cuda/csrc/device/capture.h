// Work of a stream, recorded and launched again as a whole: the table "cuda.capture".
#pragma once
#include "device/device.h"
#include "rabbet/capture.h"

namespace rbcuda {

extern const RbCapture kCapture;

}  // namespace rbcuda
