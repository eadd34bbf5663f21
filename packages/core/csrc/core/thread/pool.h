// The thread pool.
#pragma once
#include <cstdint>

namespace rabbet {

/// RB_OK, or the code of an exception that `f` let through on whichever thread, which is stored.
int32_t parallel_for(int64_t n, int64_t grain, void (*f)(int64_t, int64_t, void*), void* ctx);
int num_threads();
void set_num_threads(int n);

}  // namespace rabbet
