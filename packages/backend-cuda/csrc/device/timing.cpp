#include "device/timing.h"

#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

namespace rbcuda {
namespace {

const uint32_t kNone = 0;
constexpr size_t kManyAhead = 1024;           // pieces of work after which passed ones are read
constexpr uint64_t kAnchorAge = 500'000'000;  // ns; the driver gives milliseconds as float

uint64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// An event that has passed, and when it did by the host's clock: what others are measured from.
struct Anchor {
  CuEvent event = nullptr;
  uint64_t time = 0;
  ~Anchor() {
    if (event && !forked()) driver().event_destroy(event);
  }
};

// In a stream of its own, which has nothing else to do, so that the event passes at once.
std::shared_ptr<Anchor> new_anchor(Device& device, CuStream& stream) {
  const Driver& d = driver();
  auto made = std::make_shared<Anchor>();
  if (!stream && d.stream_create(&stream, kStreamNonBlocking)) return nullptr;
  if (d.event_create(&made->event, 0) || d.event_record(made->event, stream) ||
      d.event_synchronize(made->event))
    return nullptr;
  made->time = now();
  return made;
}

}  // namespace

const uint32_t* observed_events = &kNone;

struct Timed::Work {
  Device* device;
  CuStream stream;
  uint64_t id;
  CuEvent begin = nullptr, end = nullptr;
  std::shared_ptr<Anchor> anchor;
};

class Timings {
 public:
  static Timings& instance() {
    static auto* made = new Timings;
    return *made;
  }

  // Null: the driver does not give the events; the work then has no times.
  std::unique_ptr<Timed::Work> begin(Device& device, CuStream stream) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto work = std::make_unique<Timed::Work>();
    work->device = &device;
    work->stream = stream;
    work->id = ++last_id_;
    OfDevice& of = device_at(device.index());
    if (!of.anchor || now() - of.anchor->time > kAnchorAge) of.anchor = new_anchor(device, of.own);
    work->anchor = of.anchor;
    work->begin = take(of);
    work->end = take(of);
    if (work->anchor && work->begin && work->end &&
        driver().event_record(work->begin, stream) == kSuccess)
      return work;
    give(of, *work);
    return nullptr;
  }

  void end(std::unique_ptr<Timed::Work> work) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (driver().event_record(work->end, work->stream) != kSuccess)
      return give(device_at(work->device->index()), *work);
    ahead_.push_back(std::move(work));
    if (ahead_.size() >= kManyAhead) read_passed();
  }

  std::vector<RbWorkTime> collect() {
    std::lock_guard<std::mutex> lock(mutex_);
    for (; !ahead_.empty(); ahead_.pop_front()) {
      Timed::Work& work = *ahead_.front();
      work.device->enter();
      if (driver().event_synchronize(work.end) == kSuccess) read(work);
      give(device_at(work.device->index()), work);
    }
    for (OfDevice& of : devices_) of.anchor = nullptr;
    std::vector<RbWorkTime> found;
    found.swap(times_);
    return found;
  }

 private:
  struct OfDevice {
    std::vector<CuEvent> spare;
    std::shared_ptr<Anchor> anchor;
    CuStream own = nullptr;
  };

  OfDevice& device_at(int index) {
    if (devices_.size() <= static_cast<size_t>(index)) devices_.resize(index + 1);
    return devices_[index];
  }
  static CuEvent take(OfDevice& of) {
    CuEvent event = nullptr;
    if (!of.spare.empty()) {
      event = of.spare.back();
      of.spare.pop_back();
    } else if (driver().event_create(&event, 0) != kSuccess) {
      return nullptr;
    }
    return event;
  }
  static void give(OfDevice& of, Timed::Work& work) {
    for (CuEvent event : {work.begin, work.end})
      if (event) of.spare.push_back(event);
  }
  // Those at the front; another stream's work may hold up what has passed behind it.
  void read_passed() {
    while (!ahead_.empty()) {
      Timed::Work& work = *ahead_.front();
      work.device->enter();
      if (driver().event_query(work.end) != kSuccess) return;
      read(work);
      give(device_at(work.device->index()), work);
      ahead_.pop_front();
    }
  }
  void read(const Timed::Work& work) {
    float begin = 0, end = 0;
    if (driver().event_elapsed(&begin, work.anchor->event, work.begin) ||
        driver().event_elapsed(&end, work.anchor->event, work.end))
      return;
    const auto time = [&](float ms) {
      return work.anchor->time + static_cast<uint64_t>(static_cast<double>(ms) * 1e6);
    };
    times_.push_back({sizeof(RbWorkTime), work.device->index(), work.id, time(begin), time(end)});
  }

  std::mutex mutex_;
  uint64_t last_id_ = 0;
  std::vector<OfDevice> devices_;
  std::deque<std::unique_ptr<Timed::Work>> ahead_;
  std::vector<RbWorkTime> times_;
};

namespace {
const RbTrace* trace = nullptr;
}

void find_observed_events() {
  trace = static_cast<const RbTrace*>(rb::host->get_ext(RB_TRACE_EXT, RB_TRACE_VERSION));
  if (trace && RB_HAS(trace, observed)) observed_events = trace->observed;
}

void Timed::begin(Device& device, CuStream stream, const char* what, uint32_t kind) {
  if (is_capturing(stream)) return;
  std::unique_ptr<Work> work = Timings::instance().begin(device, stream);
  if (!work) return;
  RbObserved event = {};
  event.struct_size = sizeof event;
  event.kind = RB_EVENT_LAUNCH;
  event.flags = kind;
  event.text = what;
  event.id = work->id;
  event.backend = backend_id;
  event.device = device.index();
  event.data = stream;
  trace->emit(&event);
  work_ = work.release();
}

void Timed::end() { Timings::instance().end(std::unique_ptr<Work>(work_)); }

int32_t work_times(void*, void* ctx, int32_t (*add)(void* ctx, const RbWorkTime*)) {
  return rb::guarded([&] {
    if (forked()) return;
    for (const RbWorkTime& time : Timings::instance().collect()) rb::check(add(ctx, &time));
  });
}

}  // namespace rbcuda
