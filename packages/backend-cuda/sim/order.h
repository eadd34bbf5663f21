// Which accesses of one launch come before which others.
#pragma once
#include <cstdint>

namespace cusim {

/// Who accessed some bytes, and when; command 0: nobody.
struct Access {
  uint32_t command;
  uint32_t who;   // the thread's number in the launch
  uint32_t tick;  // of Running
  uint8_t bytes, kind;
};

uint32_t threads_of_block();
/// Whether `before`, of another thread of the running launch, is over as the running thread sees
/// it.
bool ordered_in_launch(const Access& before, const Access& now);
/// The running thread has done an atomic operation there.
void atomic_orders(const void* p);
void begin_block_orders();
void forget_orders();

}  // namespace cusim
