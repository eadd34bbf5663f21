// The table of functions that plugins get.
#pragma once
#include "rabbet/abi.h"

namespace rabbet {

/// Constant from the first use of `offered_minor` on.
extern RbHost kHost;

}  // namespace rabbet
