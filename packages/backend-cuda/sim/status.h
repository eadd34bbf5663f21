// The driver's results that the simulator gives.
#pragma once

namespace cusim {

enum Status {
  kOk = 0,
  kInvalid = 1,
  kOutOfMemory = 2,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kBadImage = 200,
  kInvalidContext = 201,
  kPeerEnabled = 704,
  kPeerNotEnabled = 705,
  kPeerUnsupported = 217,
  kInvalidHandle = 400,
  kNotFound = 500,
  kNotReady = 600,
  kIllegalAddress = 700,
  kMisaligned = 716,
  kNotPermitted = 800,
  kNotSupported = 801,
  kLaunchFailed = 719,
  kCaptureUnsupported = 900,
  kCaptureInvalidated = 901,
  kCaptureMerge = 902,
  kCaptureUnmatched = 903,
  kCaptureUnjoined = 904,
  kCaptureIsolation = 905,
  kCaptureImplicit = 906,
  kCapturedEvent = 907,
  kCaptureWrongThread = 908,
};

}  // namespace cusim
