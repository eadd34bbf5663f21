// Where the order of numbers ends, with NaN beyond it.
#pragma once
#include <limits>
#include <type_traits>

namespace rbcpu {

/// What every number but itself beats as the largest (or smallest) one.
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
