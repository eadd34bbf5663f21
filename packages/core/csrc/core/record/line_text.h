// Parts of a line of a record.
#pragma once
#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

namespace rabbet {

inline std::string strip(const std::string& s) {
  size_t a = 0, b = s.size();
  while (a < b && std::isspace(static_cast<unsigned char>(s[a]))) ++a;
  while (b > a && std::isspace(static_cast<unsigned char>(s[b - 1]))) --b;
  return s.substr(a, b - a);
}

// Split at `separator` outside brackets and quotes.
inline std::vector<std::string> split(const std::string& s, char separator) {
  std::vector<std::string> parts;
  int depth = 0;
  char quote = 0;
  std::string part;
  for (char c : s) {
    if (quote) {
      if (c == quote) quote = 0;
    } else if (c == '\'' || c == '"') {
      quote = c;
    } else if (c == '(' || c == '[' || c == '{') {
      ++depth;
    } else if (c == ')' || c == ']' || c == '}') {
      --depth;
    } else if (c == separator && depth == 0) {
      parts.push_back(strip(part));
      part.clear();
      continue;
    }
    part += c;
  }
  if (!strip(part).empty() || !parts.empty()) parts.push_back(strip(part));
  return parts;
}

// The first position of `part` outside brackets and quotes.
inline size_t find_outside(const std::string& s, const std::string& part) {
  int depth = 0;
  char quote = 0;
  for (size_t i = 0; i < s.size(); ++i) {
    if (depth == 0 && !quote && s.compare(i, part.size(), part) == 0) return i;
    const char c = s[i];
    if (quote) {
      if (c == quote) quote = 0;
    } else if (c == '\'' || c == '"') {
      quote = c;
    } else if (c == '(' || c == '[') {
      ++depth;
    } else if (c == ')' || c == ']') {
      --depth;
    }
  }
  return std::string::npos;
}

inline bool is_name(const std::string& s) {
  if (s.empty() || std::isdigit(static_cast<unsigned char>(s[0]))) return false;
  return std::all_of(s.begin(), s.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
  });
}

}  // namespace rabbet
