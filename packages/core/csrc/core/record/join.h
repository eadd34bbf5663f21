// The words of `join` in records, by RB_JOIN_*.
#pragma once

#include "rabbet/abi.h"

namespace rabbet {

constexpr const char* kJoinNames[] = {"", "sum", "mean", "product", "max", "min", "and", "or"};
static_assert(sizeof kJoinNames / sizeof *kJoinNames == RB_JOIN_OR + 1);

}  // namespace rabbet
