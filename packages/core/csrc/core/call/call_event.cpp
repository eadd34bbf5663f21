#include "call/call_event.h"

#include <cstdio>

#include "tensor/dtype.h"

namespace rabbet {

namespace {

thread_local int32_t depth = 0;

// Appends to a text of fixed size; what has no room is cut.
class Writer {
 public:
  Writer(char* text, size_t size) : begin_(text), at_(text), end_(text + size - 1) {}
  void add(const char* text) {
    while (*text && at_ < end_) *at_++ = *text++;
  }
  void add(int64_t number) {
    char digits[24];
    std::snprintf(digits, sizeof digits, "%lld", static_cast<long long>(number));
    add(digits);
  }
  void add(const RbTensor* t) {
    if (at_ != begin_) add(", ");
    add(kDTypes[t->dtype_id].name);
    add("(");
    for (int d = 0; d < t->ndim; ++d) {
      if (d) add(", ");
      add(t->shape[d]);
    }
    add(")");
  }

 private:
  char *begin_, *at_, *end_;
};

}  // namespace

RbObserved CallEvent::observed(uint32_t kind) const {
  RbObserved seen = observed_event(kind);
  seen.op = handle(&op_);
  seen.flags = flags_;
  return seen;
}

CallEvent::CallEvent(const Op& op, const RbValue* args, int32_t nargs, const RbValue* rets,
                     int32_t nrets, uint32_t flags)
    : op_(op), rets_(rets), nrets_(nrets), flags_(flags) {
  if (is_among(RB_EVENT_OP_BEGIN, read_kinds)) {
    RbEvent event{};
    event.kind = RB_EVENT_OP_BEGIN;
    event.op = handle(&op);
    event.depth = depth;
    Writer text(event.text, sizeof event.text);
    for (int32_t i = 0; i < nargs; ++i) {
      if (args[i].tag == RB_TENSOR) text.add(args[i].v.t);
      for (uint32_t j = 0; args[i].tag == RB_TENSORS && j < args[i].len; ++j) {
        if (args[i].v.ts[j]) text.add(args[i].v.ts[j]);
      }
    }
    record_event(event);
  }
  ++depth;
  if (is_among(RB_EVENT_OP_BEGIN, observed_kinds)) {  // last: the call's time excludes it
    RbObserved seen = observed(RB_EVENT_OP_BEGIN);
    seen.values = args;
    seen.nvalues = nargs;
    notify(seen);
  }
}

CallEvent::~CallEvent() {
  if (is_among(RB_EVENT_OP_END, observed_kinds)) {
    RbObserved seen = observed(RB_EVENT_OP_END);
    seen.status = status;
    if (status == RB_OK) {
      seen.values = rets_;
      seen.nvalues = nrets_;
    }
    notify(seen);
  }
  --depth;
  if (!is_among(RB_EVENT_OP_END, read_kinds)) return;
  RbEvent event{};
  event.kind = RB_EVENT_OP_END;
  event.op = handle(&op_);
  event.depth = depth;
  event.status = status;
  record_event(event);
}

}  // namespace rabbet
