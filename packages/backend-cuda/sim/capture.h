// Streams that record their work as a graph instead of doing it.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "streams.h"

namespace cusim {

struct Node {
  std::string what;
  std::function<void(uint32_t)> run;
  std::vector<size_t> after;
  size_t lane;  // nodes of one stream follow one another
};

enum CaptureMode { kGlobal, kThreadLocal, kRelaxed };

struct Capture {
  uint64_t id;
  Stream* origin;
  CaptureMode mode;
  std::thread::id thread;
  bool invalid = false;
  std::vector<Node> nodes;
  std::map<Stream*, std::vector<size_t>> tails;  // the last nodes of each stream that takes part
};

using Graph = std::vector<Node>;
/// A graph that can run; its streams in clocks.
struct GraphExec {
  Graph graph;
  std::map<size_t, uint32_t> lanes, numbers;
  Point last{};  // behind its last launch, for which the next one waits on any stream
  Clock clock{};
};

int begin_capture(Stream& stream, CaptureMode mode);
/// `graph` is set unless the capture has failed.
int end_capture(Stream& stream, std::unique_ptr<Graph>& graph);
int capture_work(Stream& stream, const std::string& what, std::function<void(uint32_t)> run);
void capture_record(Event& event, Stream& stream);
/// A stream that takes part, or does so from now on, waits for an event of a capture.
int capture_wait(Stream& stream, const Event& event);
/// What a capture forbids: of this stream, or, as a call that may wait or give out memory, of any
/// that the calling thread may disturb. Such captures fail. 0 or the error.
int forbid_in_capture(Stream& stream);
int forbid_while_capturing();
int exchange_mode(int* mode);
int launch_graph(GraphExec& exec, Stream& stream);

}  // namespace cusim
