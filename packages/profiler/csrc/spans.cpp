#include "spans.h"

#include <algorithm>

#include "log.h"
#include "rabbet/trace.h"

namespace profiler {

namespace {

struct Reading {
  int64_t host = 0, devices = 0;
};

// The parts that follow an entry.
struct Parts {
  Reading memory;
  uint64_t stack = 0;
  std::string text;
  std::vector<uint64_t> shapes;

  Parts(const Entry& e, const uint64_t* at) {
    const uint64_t* const end = at + e.words;
    if (e.has & kHasMemory) {
      memory = {static_cast<int64_t>(at[0]), static_cast<int64_t>(at[1])};
      at += 2;
    }
    if (e.has & kHasStack) stack = *at++;
    if (e.has & kHasText) {
      text.assign(reinterpret_cast<const char*>(at + 1), at[0]);
      at += 1 + (at[0] + 7) / 8;
    }
    if (e.has & kHasShapes) shapes.assign(at, end);
  }
};

class Builder {
 public:
  Builder(Recording& out, std::string (*name_of)(const void* op)) : out_(out), name_of_(name_of) {}

  void begin_thread(int64_t number) {
    thread_ = static_cast<int32_t>(out_.threads.size());
    out_.threads.push_back(number);
    open_.clear();
    has_reading_ = false;
  }
  void add(const Entry& e, const uint64_t* words) {
    if (e.kind == Kind::kNode) return note_node(e.id);
    const Parts parts(e, words);
    if (e.kind == Kind::kLaunch) return note_launch(e, parts);
    if (e.has & kHasMemory) note_memory(e, parts.memory);
    if (e.kind == Kind::kCallBegin || e.kind == Kind::kRangeBegin) begin(e, parts);
    if (e.kind == Kind::kCallEnd || e.kind == Kind::kRangeEnd) end(e, parts);
  }
  void end_thread(int64_t time) {
    for (const Open& o : open_) {
      Span& span = out_.spans[o.span];
      span.end = std::max(time, span.begin);
      if (has_reading_) set_memory(span, o.at_begin, last_);
    }
    open_.clear();
  }
  void end_all() {
    std::stable_sort(changes_.begin(), changes_.end(),
                     [](const auto& a, const auto& b) { return a.time < b.time; });
    MemoryPoint total{0, 0, 0};
    for (const MemoryPoint& change : changes_) {
      total = {change.time, total.host_bytes + change.host_bytes,
               total.device_bytes + change.device_bytes};
      out_.memory.push_back(total);
    }
  }

 private:
  struct Open {
    size_t span;
    uint64_t id;  // of a range; of a call the first tensor
    const void* op;
    uint8_t flags;
    Reading at_begin;
  };

  static void set_memory(Span& span, const Reading& begin, const Reading& end) {
    span.host_bytes = end.host - begin.host;
    span.device_bytes = end.devices - begin.devices;
  }

  int32_t name(const std::string& text, bool is_op) {
    const auto [at, is_new] = names_.try_emplace({text, is_op}, out_.names.size());
    if (is_new) {
      out_.names.push_back(text);
      out_.is_op.push_back(is_op);
    }
    return at->second;
  }
  int32_t name_of_op(const void* op) {
    const auto [at, is_new] = ops_.try_emplace(op, 0);
    if (is_new) at->second = name(name_of_(op), true);
    return at->second;
  }
  int64_t signature(const std::vector<uint64_t>& words) {
    const auto [at, is_new] = signatures_.try_emplace(words, out_.signatures.size());
    if (is_new) out_.signatures.push_back(words);
    return at->second;
  }

  // The call that runs was recorded.
  void note_node(uint64_t id) {
    for (auto at = open_.rbegin(); at != open_.rend(); ++at) {
      if (!at->op) continue;
      out_.spans[at->span].node = id;
      return;
    }
  }

  void note_launch(const Entry& e, const Parts& parts) {
    const int64_t span = open_.empty() ? -1 : static_cast<int64_t>(open_.back().span);
    out_.launches.push_back({name(parts.text, false), e.flags, span, thread_,
                             static_cast<int64_t>(e.time), static_cast<int32_t>(parts.shapes[0]),
                             static_cast<int32_t>(parts.shapes[1]), parts.shapes[2], e.id});
  }

  void note_memory(const Entry& e, const Reading& now) {
    if (has_reading_ && (now.host != last_.host || now.devices != last_.devices)) {
      const MemoryPoint change{static_cast<int64_t>(e.time), now.host - last_.host,
                               now.devices - last_.devices};
      changes_.push_back(change);
      if (open_.empty()) {
        Span span = new_span(SpanKind::kMemory, e);
        span.name = name("[memory]", false);
        span.end = span.begin;
        span.host_bytes = change.host_bytes;
        span.device_bytes = change.device_bytes;
        out_.spans.push_back(span);
      }
    }
    has_reading_ = true;
    last_ = now;
  }

  Span new_span(SpanKind kind, const Entry& e) const {
    const auto time = static_cast<int64_t>(e.time);
    const int64_t parent = open_.empty() ? -1 : static_cast<int64_t>(open_.back().span);
    return Span{kind, false, false, 0, thread_, time, time, parent, 0, -1, -1, 0, 0, 0};
  }

  void begin(const Entry& e, const Parts& parts) {
    const bool is_call = e.kind == Kind::kCallBegin;
    Span span = new_span(is_call ? SpanKind::kCall : kind_of_range(e.flags), e);
    span.name = is_call ? name_of_op(e.op) : name(parts.text, false);
    if (!is_call && e.flags >= RB_RANGE_NODE) span.node = e.id;
    span.stack = parts.stack;
    if (e.has & kHasShapes) span.inputs = signature(parts.shapes);
    open_.push_back({out_.spans.size(), e.id, e.op, e.flags, parts.memory});
    out_.spans.push_back(span);
  }

  static SpanKind kind_of_range(uint8_t flags) {
    switch (flags) {
      case RB_RANGE_FRAMEWORK:
        return SpanKind::kFramework;
      case RB_RANGE_NODE:
        return SpanKind::kNode;
      case RB_RANGE_DERIVATIVE:
        return SpanKind::kDerivative;
      default:
        return SpanKind::kUser;
    }
  }

  // Ends the innermost open span that fits. A call ends what is left open inside of it; ranges may
  // overlap each other. None fits: it began before the recording.
  void end(const Entry& e, const Parts& parts) {
    const bool is_call = e.kind == Kind::kCallEnd;
    auto at = open_.rbegin();
    while (at != open_.rend() && (is_call ? at->op != e.op : at->op || at->id != e.id)) ++at;
    if (at == open_.rend()) return;
    const auto found = at.base() - 1;
    close(*found, e, parts);
    if (is_call) {
      for (auto inner = found + 1; inner != open_.end(); ++inner) close(*inner, e, parts);
      open_.erase(found, open_.end());
    } else {
      open_.erase(found);
    }
  }
  void close(const Open& o, const Entry& e, const Parts& parts) {
    Span& span = out_.spans[o.span];
    span.end = static_cast<int64_t>(e.time);
    if (e.has & kHasMemory) set_memory(span, o.at_begin, parts.memory);
    if (o.op != e.op) return;
    span.failed = e.failed;
    span.in_place = (e.flags & RB_CALL_OUT) && e.kind == Kind::kCallEnd && e.id && e.id == o.id;
    if (e.has & kHasShapes) span.outputs = signature(parts.shapes);
  }

  Recording& out_;
  std::string (*const name_of_)(const void* op);
  std::map<std::pair<std::string, bool>, int32_t> names_;
  std::unordered_map<const void*, int32_t> ops_;
  std::map<std::vector<uint64_t>, int64_t> signatures_;
  std::vector<MemoryPoint> changes_;
  std::vector<Open> open_;
  int32_t thread_ = 0;
  bool has_reading_ = false;
  Reading last_;
};

}  // namespace

Recording collect(uint64_t session, int64_t end, std::string (*name_of)(const void* op)) {
  Recording out;
  Builder builder(out, name_of);
  for (Log* log : logs_of(session)) {
    builder.begin_thread(log->thread);
    log->each([&](const Entry& e, const uint64_t* words) { builder.add(e, words); });
    builder.end_thread(end);
  }
  builder.end_all();
  return out;
}

}  // namespace profiler
