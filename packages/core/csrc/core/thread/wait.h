// Waiting for something that happens elsewhere, without Python's lock.
#pragma once
#include <cstdint>

namespace rabbet {

/// Functions of the Python binding: one releases the interpreter's lock during a wait, the other
/// reports whether the user has interrupted the program.
struct WaitHooks {
  void (*unlocked)(void (*body)(void* ctx), void* ctx);  // run it without the lock
  int32_t (*interrupted)();  // RB_OK, or the code of an error that is recorded
};
/// `hooks` must live as long as the process.
void set_wait_hooks(const WaitHooks* hooks);

/// Ask ready(ctx) until it returns 1, at most `seconds` (negative: without a limit); false: the
/// time ran out. Throws what `ready` recorded when it returned a negative number, and what the user
/// interrupted the wait with.
bool wait_until(int32_t (*ready)(void* ctx), void* ctx, double seconds);

}  // namespace rabbet
