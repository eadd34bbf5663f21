// One call as events: its begin, and its end with its results when it has returned.
#pragma once
#include "record/op.h"
#include "thread/events.h"

namespace rabbet {

class CallEvent {
 public:
  CallEvent(const Op& op, const RbValue* args, int32_t nargs, const RbValue* rets, int32_t nrets,
            uint32_t flags);
  ~CallEvent();
  CallEvent(const CallEvent&) = delete;
  CallEvent& operator=(const CallEvent&) = delete;
  int32_t status = RB_OK;  // to be set to what the call returns

 private:
  RbObserved observed(uint32_t kind) const;

  const Op& op_;
  const RbValue* const rets_;
  const int32_t nrets_;
  const uint32_t flags_;
};

}  // namespace rabbet
