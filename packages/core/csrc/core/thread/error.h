// Errors inside core: thrown as rabbet::Error, turned into a status code at every boundary.
#pragma once
#include <cstdarg>
#include <string>

#include "rabbet/abi.h"

namespace rabbet {

struct Error {
  int32_t code;
  std::string message;
};

/// Throw Error{code, printf-formatted message}.
[[noreturn]] void fail(int32_t code, const char* format, ...) __attribute__((format(printf, 2, 3)));

/// Store the error in the thread's record; returns its code.
int32_t set_error(int32_t code, const std::string& message);
/// Append a "while running ..." line to the thread's record.
void add_error_frame(const std::string& line);
/// Whether the exception in flight is one that `rethrow` threw: the thread's record holds its
/// error. Ask in a `catch (...)` block only.
bool is_recorded() noexcept;
/// Rethrow the thread's record after a call returned `code` != RB_OK (the record stays in place).
[[noreturn]] void rethrow(int32_t code);
inline void check(int32_t code) {
  if (__builtin_expect(code != RB_OK, 0)) rethrow(code);
}

/// Run `body`, which may throw, as a boundary function: status code instead of exception.
template <class Body>
int32_t guarded(Body&& body) noexcept;

int32_t store_current_exception() noexcept;
/// In a `catch` block: store what `who`, a function of a plugin, let through; returns its code.
int32_t store_thrown(const std::string& who) noexcept;
/// Where `who`, a function of a plugin, returned `code` != RB_OK and left no message, store one
/// that names it; returns the code.
int32_t explain(int32_t code, const std::string& who);
/// In a `catch` block: log what `who`, a function of a plugin that cannot return an error, let
/// through.
void log_thrown(const std::string& who) noexcept;

template <class Body>
int32_t guarded(Body&& body) noexcept {
  try {
    body();
    return RB_OK;
  } catch (...) {
    return store_current_exception();
  }
}

}  // namespace rabbet
