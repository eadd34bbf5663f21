// Cubic interpolation by Keys' kernel with the parameter -0.75.
#pragma once
#include "common/level.h"

namespace rbcpu {
namespace {

template <class T>
constexpr T kKeys = T(-0.75);

/// The weights of the four neighbours of a point at the distance `t` after the second one.
template <class T>
RB_ALWAYS void cubic_weights(T t, T* weight) {
  constexpr T a = kKeys<T>;
  const T far = t + 1, near = t, after = 1 - t, last = 2 - t;
  weight[0] = ((a * far - 5 * a) * far + 8 * a) * far - 4 * a;
  weight[1] = ((a + 2) * near - (a + 3)) * near * near + 1;
  weight[2] = ((a + 2) * after - (a + 3)) * after * after + 1;
  weight[3] = ((a * last - 5 * a) * last + 8 * a) * last - 4 * a;
}
/// The derivatives of the weights by `t`.
template <class T>
RB_ALWAYS void cubic_slopes(T t, T* slope) {
  constexpr T a = kKeys<T>;
  const T far = t + 1, near = t, after = 1 - t, last = 2 - t;
  slope[0] = (3 * a * far - 10 * a) * far + 8 * a;
  slope[1] = (3 * (a + 2) * near - 2 * (a + 3)) * near;
  slope[2] = -(3 * (a + 2) * after - 2 * (a + 3)) * after;
  slope[3] = -((3 * a * last - 10 * a) * last + 8 * a);
}

}  // namespace
}  // namespace rbcpu
