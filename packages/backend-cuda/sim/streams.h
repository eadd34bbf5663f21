// Streams are queues. When what is in them runs, and what of it first, is the schedule's choice
// (schedule.h) as far as waits leave one.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "clocks.h"

namespace cusim {

struct Device;
struct Stream;
struct Capture;

/// A place in a stream: behind `position` entries.
struct Point {
  Stream* stream = nullptr;
  uint64_t position = 0;
  bool passed() const;
};

/// What a stream does next: run something, or wait for another stream.
struct Entry {
  std::function<void()> run;
  Point wait;
};

struct Stream {
  Stream(Device& device, bool blocking);
  Device& device;
  const bool blocking;  // in order with the null stream
  int priority = 0;
  uint32_t id;  // in clocks
  std::deque<Entry> entries;
  uint64_t enqueued = 0, done = 0;
  uint32_t number = 0;  // of the last command
  Clock clock;
  int queries = 0;  // since it last ran something
  std::shared_ptr<Capture> capture;
};

struct Event {
  bool timing = true;
  bool interprocess = false;
  Point point;
  Clock clock;
  double time = 0;
  std::shared_ptr<Capture> capture;  // it was recorded in one, behind `nodes`
  std::vector<size_t> nodes;
  bool recorded = false;
};

/// How often streams were told to wait for events, and how often the host waited for a device. As
/// the driver may do it, a copy between pageable memory and a device counts, too.
struct WaitCounts {
  uint64_t streams = 0, host = 0;
};
WaitCounts& wait_counts();

/// Work for the stream: `run` gets the command's number. Gives a status.
int enqueue(Stream& stream, const std::string& what, std::function<void(uint32_t)> run);
/// The stream waits for another.
void wait_for(Stream& stream, const Point& point, const Clock& clock);
void record(Event& event, Stream& stream);
/// Run entries until the point is passed; the host knows of it from then on.
void synchronize(const Point& point, const Clock& clock);
void synchronize(Stream& stream);
void synchronize(Device& device);
/// Whether the point is passed; after many questions in vain the stream runs.
bool query(const Point& point, const Clock& clock);

}  // namespace cusim
