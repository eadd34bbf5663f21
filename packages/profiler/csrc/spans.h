// Spans: the pairs of begin and end in the logs, as a tree for each thread.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

namespace profiler {

enum class SpanKind : uint8_t {
  kCall,
  kUser,
  kFramework,
  kNode,
  kDerivative,
  kMemory  // memory that changed outside of all spans
};

struct Span {
  SpanKind kind;
  bool in_place, failed;
  int32_t name;    // of Recording.names
  int32_t thread;  // of Recording.threads
  int64_t begin, end;
  int64_t parent;           // a span; -1: none
  uint64_t node;            // what autograd numbers the call's node with, or this node; 0: none
  int64_t inputs, outputs;  // of Recording.signatures; -1: none
  uint64_t stack;           // see stacks.h; 0: none
  int64_t host_bytes, device_bytes;  // made less freed inside
};

/// Work that was given to a device, as its backend announced it.
struct Launch {
  int32_t name;
  uint32_t kind;   // RB_LAUNCH_*
  int64_t span;    // the call or range around it; -1: none
  int32_t thread;  // of Recording.threads
  int64_t time;    // of the launch, on the host
  int32_t backend, device;
  uint64_t stream, id;
};

struct MemoryPoint {
  int64_t time, host_bytes, device_bytes;  // since the recording began, of all threads
};

struct Recording {
  std::vector<Span> spans;  // those of a thread follow each other, by begin
  std::vector<std::string> names;
  std::vector<bool> is_op;  // of a name
  std::vector<std::vector<uint64_t>> signatures;
  std::vector<int64_t> threads;  // the system's numbers
  std::vector<MemoryPoint> memory;
  std::vector<Launch> launches;
};

/// The spans in the logs of a recording; spans that are still open end at `end`.
Recording collect(uint64_t session, int64_t end, std::string (*name_of)(const void* op));

}  // namespace profiler
