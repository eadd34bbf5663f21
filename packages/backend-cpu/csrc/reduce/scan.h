// Running sums and products along a contiguous run, per instruction-set level (scan_simd.cpp).
#pragma once
#include <stdint.h>

namespace rbcpu {

template <class T>
struct Scans {
  /// r[i] = carry op x[0] op ... op x[i] in double; returns the last. Without r only that. r may be
  /// x.
  double (*cumsum)(const T* x, T* r, int64_t n, double carry);
  double (*cumprod)(const T* x, T* r, int64_t n, double carry);
};
struct ScanTable {
  Scans<float> f32;
  Scans<double> f64;
};
extern const ScanTable scan_table_v2, scan_table_v3, scan_table_v4;
const ScanTable& scan_table();

}  // namespace rbcpu
