// Work of a stream, recorded and launched again as a whole: the table "cuda.capture".
#pragma once
#include <memory>

#include "device/device.h"
#include "rabbet/capture.h"

namespace rbcuda {

extern const RbCapture kCapture;

/// Keeps `object` alive as long as the graphs that are being captured on the device.
void keep_for_captures(int device, const std::shared_ptr<void>& object);

}  // namespace rbcuda
