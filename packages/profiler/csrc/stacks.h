// Python stacks by number: a stack is its innermost frame and the number of the stack around it.
#pragma once
#include <Python.h>

#include <cstdint>
#include <vector>

namespace profiler {

struct Frame {
  uint64_t outer;   // the stack around it; 0: none
  PyObject* code;   // a code object, kept alive
  int instruction;  // of the code object: its line is looked up after the recording
};

/// The number of the calling thread's stack; 0 where the thread runs no Python.
uint64_t current_stack();
int line_of(const Frame& frame);
/// Frames of stacks 1, 2, ... of the recording; needs Python's lock.
const std::vector<Frame>& stack_frames();
/// Forget all stacks; needs Python's lock.
void drop_stacks();

}  // namespace profiler
