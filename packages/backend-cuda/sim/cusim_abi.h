// What a simulated kernel's library and the simulated driver know of each other. Read by both; it
// includes nothing, since it stands before every kernel's text.
#pragma once

typedef __SIZE_TYPE__ CusimSize;

struct CusimIndex {
  unsigned x, y, z;
};

// How memory is accessed.
enum CusimAccess { kCusimRead = 0, kCusimWrite = 1, kCusimVolatile = 2, kCusimAtomic = 4 };

// Who sees what came before a fence: the block, the device, or the host and other devices, too.
enum CusimScope { kCusimBlock, kCusimDevice, kCusimSystem };
// What a thread waits for at a block's barrier: nothing more, or a count, "any" or "all" of values.
enum CusimBarrier { kCusimPlain, kCusimCount, kCusimAny, kCusimEvery };
// What the lanes of a warp do together.
enum CusimWarp {
  kCusimSync,
  kCusimShuffle,
  kCusimShuffleXor,
  kCusimShuffleDown,
  kCusimShuffleUp,
  kCusimBallot,
  kCusimMatch
};
struct CusimLane {
  CusimWarp what;
  unsigned mask;  // lanes that take part
  unsigned long long value, result;
  int argument, width;  // the other lane or the distance; lanes of a segment
  int line;
};

// A range of addresses that kernels may access without asking; size 0: none.
struct CusimWindow {
  CusimSize begin, size;
};

// What the driver does for a kernel.
struct CusimRuntime {
  // site: the instruction, or null where the access has been counted.
  void (*access)(const void* p, CusimSize size, int kind, int aligned, const void* site);
  int (*barrier)(CusimBarrier what, int value, int line);
  void (*warp)(CusimLane* lane);
  void (*fence)(CusimScope scope);
  void (*fault)(const char* what);
  void* (*dynamic_shared)();
  void (*copy_ahead)(void* shared, const void* from, int bytes);
  void (*end_of_step)();
  void (*wait_for_steps)(int left);
  CusimWindow stacks, shared, memory;
};

// One kernel: its arguments' sizes, and a call with copies of them.
struct CusimKernel {
  const char* name;
  int count;
  const unsigned* sizes;
  void (*call)(void** arguments);
};

// What a kernel's library exports as `cusim_module`.
struct CusimModule {
  const CusimRuntime** runtime;
  CusimIndex *thread, *block, *block_size, *grid_size;
  char *shared_begin, *shared_end;
};
