// Locks and fork(): the child has only the thread that forked, so a lock that another thread held
// would stay locked in it for ever.
#pragma once

namespace rabbet {

void hold_over_fork(void* lock, void (*take)(void*), void (*leave)(void*));

/// Hold `lock`, which is never destroyed, while the process forks: the child finds it free and
/// what it guards whole. Only for locks under which no other such lock is taken.
template <class L>
void hold_over_fork(L& lock) {
  hold_over_fork(
      &lock, [](void* l) { static_cast<L*>(l)->lock(); },
      [](void* l) { static_cast<L*>(l)->unlock(); });
}

}  // namespace rabbet
