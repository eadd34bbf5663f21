// rabbet/thread_end.hpp: what a boundary function does with a thread that is being ended.
//
// pthread_exit unwinds the stack of its thread. Python, until 3.13, calls it at exit on every other
// thread that asks for its lock. A boundary function cannot be left so: its caller may be C, and a
// handler that does not throw on aborts the program. The thread is held until the process is gone,
// which is what Python does from 3.14 on.
#pragma once
#include <chrono>
#include <thread>
#ifdef __GLIBCXX__
#include <cxxabi.h>
#endif

namespace rb {

/// What passes through the frames of a thread that is being ended.
#ifdef __GLIBCXX__
using ThreadEnd = abi::__forced_unwind;
#else
struct ThreadEnd {};  // nothing does
#endif

[[noreturn]] inline void hold_thread() {
  for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

}  // namespace rb
