#include "streams.h"

#include <chrono>

#include "capture.h"
#include "check.h"
#include "device.h"
#include "memory.h"
#include "schedule.h"

namespace cusim {
namespace {

Clock host;  // what the host has waited for

constexpr int kPatience = 1000;  // questions in vain, after which a stream runs

double milliseconds() {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void run_until(const Point& point);

// The first entry of a stream.
void step(Stream& stream) {
  Entry entry = std::move(stream.entries.front());
  stream.entries.pop_front();
  if (entry.wait.stream) run_until(entry.wait);
  if (entry.run && !stream.device.sticky) entry.run();
  ++stream.done;
  stream.queries = 0;
}

std::vector<Stream*> all_streams() {
  std::vector<Stream*> all;
  for (const auto& device : devices) {
    all.push_back(&device->first);
    for (const auto& stream : device->streams) all.push_back(stream.get());
  }
  return all;
}

// Of some stream that need not wait; false: there is none.
bool step_anywhere() {
  std::vector<Stream*> able;
  for (Stream* stream : all_streams())
    if (!stream->entries.empty() && stream->entries.front().wait.passed()) able.push_back(stream);
  if (able.empty()) return false;
  step(*able[schedule().below(able.size())]);
  return true;
}

void run_until(const Point& point) {
  while (!point.passed()) {
    if (!schedule().random() || !step_anywhere()) step(*point.stream);
  }
}

// Kernels and copies run while devices' memory is open.
class Opened {
 public:
  Opened() {
    if (depth++ == 0) memory().open(true);
  }
  ~Opened() {
    if (--depth == 0) memory().open(!checks().host);
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

 private:
  inline static int depth = 0;
};

void push(Stream& stream, Entry entry) {
  stream.entries.push_back(std::move(entry));
  ++stream.enqueued;
}

void after_call(Stream& stream) {
  if (schedule().eager()) {
    Opened opened;
    run_until({&stream, stream.enqueued});
  } else if (schedule().random()) {
    Opened opened;
    while (schedule().below(3) == 0 && step_anywhere()) {
    }
  }
}

// Work of the null stream comes after that of blocking streams, and they after its.
void order_with_null_stream(Stream& stream) {
  Device& d = stream.device;
  if (&stream == &d.first) {
    for (const auto& other : d.streams)
      if (other->blocking) wait_for(stream, {other.get(), other->enqueued}, other->clock);
  } else if (stream.blocking) {
    wait_for(stream, {&d.first, d.first.enqueued}, d.first.clock);
  }
}

}  // namespace

WaitCounts& wait_counts() {
  static auto* instance = new WaitCounts;
  return *instance;
}

bool Point::passed() const { return !stream || stream->done >= position; }

Stream::Stream(Device& device, bool blocking)
    : device(device), blocking(blocking), id(commands().new_stream()) {}

int enqueue(Stream& stream, const std::string& what, std::function<void(uint32_t)> run) {
  if (stream.device.sticky) return stream.device.sticky;
  if (stream.capture) return capture_work(stream, what, std::move(run));
  order_with_null_stream(stream);
  stream.clock.join(host);
  stream.clock.set(stream.id, ++stream.number);
  const uint32_t command = commands().add({stream.id, stream.number, stream.clock, what});
  push(stream, {[run = std::move(run), command] { run(command); }, {}});
  after_call(stream);
  return stream.device.sticky;
}

void wait_for(Stream& stream, const Point& point, const Clock& clock) {
  stream.clock.join(clock);
  if (point.stream != &stream && !point.passed()) push(stream, {nullptr, point});
}

void record(Event& event, Stream& stream) {
  order_with_null_stream(stream);
  event.recorded = true;
  event.capture = nullptr;
  event.clock = stream.clock;
  event.clock.join(host);
  push(stream, {[&event] { event.time = milliseconds(); }, {}});
  event.point = {&stream, stream.enqueued};
  after_call(stream);
}

void synchronize(const Point& point, const Clock& clock) {
  Opened opened;
  run_until(point);
  host.join(clock);
}
void synchronize(Stream& stream) {
  if (&stream == &stream.device.first) {
    for (const auto& other : stream.device.streams)
      if (other->blocking) synchronize({other.get(), other->enqueued}, other->clock);
  }
  synchronize({&stream, stream.enqueued}, stream.clock);
}
void synchronize(Device& device) {
  synchronize(device.first);
  for (const auto& stream : device.streams) synchronize(*stream);
}

bool query(const Point& point, const Clock& clock) {
  if (point.passed()) {
    host.join(clock);
    return true;
  }
  if (++point.stream->queries > kPatience) synchronize(point, clock);
  return point.passed();
}

}  // namespace cusim
