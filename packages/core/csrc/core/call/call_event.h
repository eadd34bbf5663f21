// One call as events: its begin, and its end when it has returned.
#pragma once
#include "record/op.h"
#include "thread/events.h"

namespace rabbet {

class CallEvent {
 public:
  CallEvent(const Op& op, const RbValue* args, int32_t nargs);
  ~CallEvent();
  CallEvent(const CallEvent&) = delete;
  CallEvent& operator=(const CallEvent&) = delete;
  int32_t status = RB_OK;  // to be set to what the call returns

 private:
  const Op& op_;
};

}  // namespace rabbet
