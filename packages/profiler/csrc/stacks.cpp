#include "stacks.h"

#include <unordered_map>

#include "rabbet/python.hpp"

namespace profiler {

namespace {

struct Key {
  uint64_t outer;
  const void* code;
  int at;
  bool operator==(const Key& k) const { return outer == k.outer && code == k.code && at == k.at; }
};
struct Hash {
  size_t operator()(const Key& k) const {
    uint64_t h = k.outer * 0x9E3779B97F4A7C15ull + reinterpret_cast<uintptr_t>(k.code);
    h = (h ^ h >> 29) * 0xBF58476D1CE4E5B9ull + static_cast<uint64_t>(k.at);
    return h ^ h >> 32;
  }
};

// Guarded by Python's lock.
std::vector<Frame> frames;
std::unordered_map<Key, uint64_t, Hash>& numbers() {
  static auto& table = *new std::unordered_map<Key, uint64_t, Hash>;
  return table;
}

uint64_t number_of(uint64_t outer, PyObject* code, int instruction) {
  const auto [at, is_new] = numbers().try_emplace(Key{outer, code, instruction}, frames.size() + 1);
  if (is_new) {
    Py_INCREF(code);
    frames.push_back({outer, code, instruction});
  }
  return at->second;
}

uint64_t walk() {
  struct Seen {
    PyCodeObject* code;
    int instruction;
  };
  std::vector<Seen> seen;  // innermost first
  seen.reserve(64);
  PyFrameObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
  while (frame) {
    seen.push_back({PyFrame_GetCode(frame), PyFrame_GetLasti(frame)});
    PyFrameObject* const back = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = back;
  }
  uint64_t stack = 0;
  for (auto at = seen.rbegin(); at != seen.rend(); ++at) {
    stack = number_of(stack, reinterpret_cast<PyObject*>(at->code), at->instruction);
    Py_DECREF(at->code);
  }
  return stack;
}

}  // namespace

uint64_t current_stack() {
  if (!rb::interpreter_alive() || !PyGILState_GetThisThreadState()) return 0;
  if (PyGILState_Check()) return walk();
  const rb::WithGil gil;
  return walk();
}

int line_of(const Frame& frame) {
  return PyCode_Addr2Line(reinterpret_cast<PyCodeObject*>(frame.code), frame.instruction);
}

const std::vector<Frame>& stack_frames() { return frames; }

void drop_stacks() {
  std::vector<Frame> old;
  old.swap(frames);
  numbers().clear();
  for (const Frame& f : old) Py_DECREF(f.code);
}

}  // namespace profiler
