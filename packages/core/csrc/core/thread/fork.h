// Locks and fork(): the child has only the thread that forked, so a lock that another thread held
// would stay locked in it for ever.
#pragma once
#include <mutex>

namespace rabbet {

/// Hold `mutex`, which is never destroyed, while the process forks: the child finds it free and
/// what it guards whole. Only for locks under which no other such lock is taken.
void hold_over_fork(std::mutex& mutex);

}  // namespace rabbet
