// TOML 1.0, which manifests are written in: all of it but dates and times.
#pragma once
#include <cstdint>
#include <list>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace rabbet::toml {

struct Value;
using Array = std::vector<Value>;
/// In the order of the file. A list, so that addresses of values stay valid while it grows.
using Table = std::list<std::pair<std::string, Value>>;
struct Value {
  std::variant<std::string, int64_t, double, bool, Array, Table> data;
  /// Of a table or array, what may still be added to it; only the parser reads it.
  enum { kClosed, kImplicit, kHeader, kDotted, kTables } state = kClosed;

  template <class T>
  const T* get() const {
    return std::get_if<T>(&data);
  }
};

/// Throws RB_E_PLUGIN with the line and what is wrong there.
Table parse(const std::string& text);
/// Null: there is no such key.
const Value* find(const Table& table, const std::string& key);
/// The value as Python prints it, for messages; "None" for null.
std::string repr(const Value* value);

}  // namespace rabbet::toml
