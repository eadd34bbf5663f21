// LAPACK and BLAS of 64-bit integers, from the library of the wheel scipy-openblas64, or from the
// copy of it that NumPy's wheel brings. It is opened when a kernel first needs it.
#pragma once
#include <cstddef>
#include <cstdint>

#include "common/dtype.h"

namespace rbcpu::lapack {

using Int = int64_t;

/// The address of a routine such as "dgetrf"; without a library an error that names the wheel.
void* find(const char* name);

/// While one lives, the library uses no threads of its own: batches are split over our pool. The
/// number of before is set again, as NumPy may use the same library.
class OneThread {
 public:
  OneThread();
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;
};

template <class T>
constexpr char kLetter = std::is_same_v<T, float>    ? 's'
                         : std::is_same_v<T, double> ? 'd'
                         : std::is_same_v<T, c64>    ? 'c'
                                                     : 'z';

/// The routine for elements of type T: routine<float, Getrf<float>>("getrf") is sgetrf.
template <class T, class Signature>
Signature* routine(const char* name) {
  char full[16] = {kLetter<T>};
  for (int i = 0; name[i] && i < 14; ++i) full[i + 1] = name[i];
  return reinterpret_cast<Signature*>(find(full));
}

}  // namespace rbcpu::lapack
