// One launch of a kernel: its blocks one after another, the threads of a block as fibers.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "cusim_abi.h"

namespace cusim {

struct Module;

/// A kernel of a loaded module.
struct Function {
  Module* module;
  const CusimKernel* kernel;
  bool loaded = false;  // by cuFuncLoad, or its first launch
};

struct Launch {
  const Function* function;
  CusimIndex grid, block;
  size_t dynamic_shared = 0;
  std::vector<char> bytes;  // the arguments
  int device = 0;
};

/// What a kernel did wrong, in words; status 0: nothing.
struct Fault {
  int status = 0;
  std::string words;
};

/// Run all blocks, or up to the first fault. `command`: see clocks.h.
Fault run(const Launch& launch, uint32_t command);

constexpr uint32_t kNoThread = ~0u;
/// When lanes of a warp were last synchronized: all of them, and some.
struct WarpTick {
  uint32_t whole, part, lanes;
};
/// What the running kernel is doing, for the checkers.
struct Running {
  const Launch* launch = nullptr;
  uint32_t command = 0;
  uint32_t block = 0, thread = 0;  // by number
  uint32_t tick = 0;               // counts barriers, votes, fences and atomic operations
  uint32_t block_tick = 0;         // of the block's last barrier
  WarpTick warps[32] = {};
  uint32_t fence_ticks[1024] = {};  // of each thread's last fence
  bool told_host[1024] = {};        // each thread has written pinned memory behind its last fence
                                    // of the system
};
extern Running running;
/// In a random order other threads may go on before the running one.
void give_way();
/// The fault ends the launch: never returns.
[[noreturn]] void stop(int status, const std::string& words);
/// "thread (0, 0, 0) of block (0, 0, 0)".
std::string place_of(uint32_t block, uint32_t thread);
/// The table that kernels' libraries get.
CusimRuntime& runtime();
/// Dynamic shared memory of the running launch.
char* dynamic_shared();

}  // namespace cusim
