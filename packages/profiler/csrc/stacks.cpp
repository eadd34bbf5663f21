#include "stacks.h"

#include <algorithm>
#include <cstddef>
#include <unordered_map>

#include "frames.h"
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

// The stack that a thread recorded last. The frames around its present one are mostly the same, and
// need not be looked up again.
struct Last {
  std::vector<ProfilerFrame> frames;  // innermost first
  std::vector<uint64_t> numbers;      // of the stack from each of them outwards
  uint64_t recording = 0;
};
uint64_t recording = 1;

uint64_t walk(PyThreadState* thread) {
  static thread_local Last last;
  static thread_local std::vector<ProfilerFrame> now(64);
  size_t count = profiler_frames(thread, now.data(), static_cast<int>(now.size()));
  if (count > now.size()) {
    now.resize(2 * count);
    count = profiler_frames(thread, now.data(), static_cast<int>(now.size()));
  }
  size_t known = last.recording == recording ? std::min(count, last.frames.size()) : 0;
  size_t same = 0;  // counted from the outermost on
  while (same < known) {
    const ProfilerFrame &a = now[count - 1 - same], &b = last.frames[last.frames.size() - 1 - same];
    if (a.code != b.code || a.instruction != b.instruction) break;
    ++same;
  }
  if (same == count && count == last.frames.size()) return count ? last.numbers.front() : 0;
  std::vector<uint64_t> numbers(count);
  for (size_t i = 0; i < same; ++i)
    numbers[count - 1 - i] = last.numbers[last.numbers.size() - 1 - i];
  for (size_t i = same; i < count; ++i) {
    const size_t at = count - 1 - i;
    const uint64_t outer = i ? numbers[at + 1] : 0;
    numbers[at] = number_of(outer, reinterpret_cast<PyObject*>(now[at].code), now[at].instruction);
  }
  last.frames.assign(now.begin(), now.begin() + static_cast<std::ptrdiff_t>(count));
  last.numbers.swap(numbers);
  last.recording = recording;
  return count ? last.numbers.front() : 0;
}

}  // namespace

uint64_t current_stack() {
  if (!rb::interpreter_alive()) return 0;
  PyThreadState* const thread = PyGILState_GetThisThreadState();
  if (!thread) return 0;
  if (PyGILState_Check()) return walk(thread);
  const rb::WithGil gil;
  return walk(PyThreadState_Get());
}

int line_of(const Frame& frame) {
  return PyCode_Addr2Line(reinterpret_cast<PyCodeObject*>(frame.code), frame.instruction);
}

const std::vector<Frame>& stack_frames() { return frames; }

void drop_stacks() {
  std::vector<Frame> old;
  old.swap(frames);
  numbers().clear();
  ++recording;
  for (const Frame& f : old) Py_DECREF(f.code);
}

}  // namespace profiler
