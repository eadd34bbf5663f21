// Core's random words, in the header's names of types.
#define uint32_t UInt32
#define uint64_t UInt64
#include "rabbet/philox.h"
#undef uint32_t
#undef uint64_t
