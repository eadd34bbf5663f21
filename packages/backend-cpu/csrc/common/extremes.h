// The ends of the order of numbers, and NaN.
#pragma once
#include <limits>
#include <type_traits>

namespace rbcpu {

/// The smallest value of a type if `max`, else the largest: the identity of that extreme.
template <class C>
constexpr C worst(bool max) {
  if constexpr (std::is_floating_point_v<C>) {
    return max ? -std::numeric_limits<C>::infinity() : std::numeric_limits<C>::infinity();
  } else {
    return max ? std::numeric_limits<C>::lowest() : std::numeric_limits<C>::max();
  }
}
template <class C>
bool is_nan([[maybe_unused]] C x) {
  if constexpr (std::is_floating_point_v<C>) return x != x;
  return false;
}

}  // namespace rbcpu
