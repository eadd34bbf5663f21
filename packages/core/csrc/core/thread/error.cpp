#include "thread/error.h"

#include <cstdio>
#include <new>
#include <vector>

#include "rabbet/thread_end.hpp"
#include "thread/thread_state.h"

namespace rabbet {

void fail(int32_t code, const char* format, ...) {
  va_list args;
  va_start(args, format);
  va_list again;
  va_copy(again, args);
  const int length = std::vsnprintf(nullptr, 0, format, args);
  va_end(args);
  std::string message(length > 0 ? length : 0, '\0');
  std::vsnprintf(message.data(), message.size() + 1, format, again);
  va_end(again);
  throw Error{code, std::move(message)};
}

namespace {
void drop_foreign(ThreadState& state) {
  if (state.error.foreign && state.foreign_del) state.foreign_del(state.error.foreign);
  state.error.foreign = nullptr;
  state.error.foreign_tag = nullptr;
  state.foreign_del = nullptr;
}
}  // namespace

int32_t set_error(int32_t code, const std::string& message) {
  ThreadState& state = thread_state();
  drop_foreign(state);
  state.message = message;
  state.op.clear();
  state.frames.clear();
  state.error.code = code;
  state.error.message = state.message.c_str();
  state.error.op = nullptr;
  state.error.frames = state.frames.c_str();
  return code;
}

void add_error_frame(const std::string& line) {
  ThreadState& state = thread_state();
  const std::string& before = state.frames;
  const size_t last = before.rfind('\n') == std::string::npos ? 0 : before.rfind('\n') + 1;
  if (!before.empty() && before.compare(last, std::string::npos, line) == 0) return;
  if (!state.frames.empty()) state.frames += '\n';
  state.frames += line;
  state.error.frames = state.frames.c_str();
}

namespace {
struct Recorded {  // thrown by rethrow: the record is already set
  int32_t code;
};
}  // namespace

void rethrow(int32_t code) { throw Recorded{code}; }

bool is_recorded() noexcept {
  try {
    throw;
  } catch (const Recorded&) {
    return true;
  } catch (...) {
    return false;
  }
}

int32_t store_current_exception() noexcept {
  try {
    throw;
  } catch (const Recorded& recorded) {
    return recorded.code;
  } catch (const Error& error) {
    return set_error(error.code, error.message);
  } catch (const std::bad_alloc&) {
    return set_error(RB_E_OOM, "out of memory");
  } catch (const std::exception& error) {
    return set_error(RB_E_INTERNAL, std::string("internal error: ") + error.what());
  } catch (const rb::ThreadEnd&) {
    rb::hold_thread();
  } catch (...) {
    return set_error(RB_E_INTERNAL, "internal error: unknown exception");
  }
}

}  // namespace rabbet
