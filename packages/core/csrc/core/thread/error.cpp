#include "thread/error.h"

#include <cstdio>
#include <new>
#include <vector>

#include "rabbet/plugin.hpp"
#include "rabbet/thread_end.hpp"
#include "thread/plugin_names.h"
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
  if (state.error.foreign && state.foreign_del) {
    try {
      state.foreign_del(state.error.foreign);
    } catch (...) {
      log_thrown("the function of " + plugin_of(state.foreign_del) + " that ends a foreign error");
    }
  }
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
  } catch (const rb::Stored& stored) {
    return stored.code;
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

namespace {

// Of the exception in flight. The code is that of the thread's record where that holds its error.
struct Thrown {
  int32_t code = RB_E_PLUGIN;
  bool recorded = false;
  std::string text;
};
Thrown thrown() {
  Thrown found;
  try {
    throw;
  } catch (const Recorded& recorded) {
    found.code = recorded.code;
    found.recorded = true;
  } catch (const rb::Stored& stored) {
    found.code = stored.code;
    found.recorded = true;
  } catch (const Error& error) {
    found.code = error.code;
    found.text = error.message;
  } catch (const std::bad_alloc&) {
    found.code = RB_E_OOM;
    found.text = "out of memory";
  } catch (const std::exception& error) {
    found.text = error.what();
  } catch (const rb::ThreadEnd&) {
    rb::hold_thread();
  } catch (...) {
    found.text = "one of an unknown type";
  }
  if (found.recorded) found.text = thread_state().message;
  return found;
}

}  // namespace

int32_t store_thrown(const std::string& who) noexcept {
  const Thrown found = thrown();
  if (found.recorded && thread_state().error.code != RB_OK) {
    add_error_frame("while running " + who);
    return thread_state().error.code;
  }
  return set_error(found.code, who + " let an exception through: " + found.text);
}

void log_thrown(const std::string& who) noexcept {
  const std::string text = thrown().text;
  std::fprintf(stderr, "rabbet: error: %s let an exception through: %s\n", who.c_str(),
               text.c_str());
}

int32_t explain(int32_t code, const std::string& who) {
  if (thread_state().error.code == RB_OK)
    set_error(code, who + " returned code " + std::to_string(code) + " and left no message");
  return code;
}

}  // namespace rabbet
