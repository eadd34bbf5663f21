// Memory of other processes.
#pragma once

namespace cusim {

/// Whether the memory that begins there is another process's.
bool is_opened(const void* p);

}  // namespace cusim
