#include "thread/source.h"

#include "thread/thread_state.h"

namespace rabbet {

bool (*source_finder)(std::string& text) = nullptr;

const char* call_source() {
  ThreadState& state = thread_state();
  if (!state.source.empty()) return state.source.c_str();
  const bool found = source_finder && source_finder(state.found_source);
  return found ? state.found_source.c_str() : nullptr;
}

void set_call_source(const char* text) { thread_state().source = text ? text : ""; }

}  // namespace rabbet
