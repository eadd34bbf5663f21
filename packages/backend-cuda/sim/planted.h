// Failures that tests plant into libraries by an environment variable.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>

namespace cusim {

/// The status that `variable` plants at `where`, or 0. It holds a list such as
/// "plan1:3000,execute:5000*2,multiply0:14+1": behind a star stands how many calls fail, behind a
/// plus how many do not before others fail, and without either all fail.
inline int planted(const char* variable, const std::string& where) {
  static std::mutex mutex;
  static auto* calls = new std::map<std::string, int>;
  const char* given = std::getenv(variable);
  const std::string list = given ? "," + std::string(given) : "";
  const size_t at = list.find("," + where + ":");
  if (at == std::string::npos) return 0;
  const std::string entry = list.substr(at + 1, list.find(',', at + 1) - at - 1);
  const int status = std::atoi(entry.c_str() + where.size() + 1);
  const size_t sign = entry.find_first_of("*+");
  if (sign == std::string::npos) return status;
  const std::lock_guard<std::mutex> lock(mutex);
  const bool is_early = (*calls)[entry]++ < std::atoi(entry.c_str() + sign + 1);
  return is_early == (entry[sign] == '*') ? status : 0;
}

/// Adds a line to the file that `variable` names, if it does.
inline void log_line(const char* variable, const std::string& line) {
  const char* path = std::getenv(variable);
  FILE* file = path ? std::fopen(path, "a") : nullptr;
  if (!file) return;
  std::fprintf(file, "%s\n", line.c_str());
  std::fclose(file);
}

}  // namespace cusim
