#include "shadow.h"
namespace cusim {
void shadow_global(const void*, size_t, int) {}
void shadow_shared(const void*, size_t, int) {}
void shadow_block(const char*, size_t, const char*, size_t) {}
void shadow_forget(const void*, size_t) {}
}  // namespace cusim
