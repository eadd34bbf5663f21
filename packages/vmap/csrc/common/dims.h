// A list of sizes or dimensions, on the stack: a rule makes several of them for each call.
#pragma once
#include <algorithm>
#include <cstring>
#include <initializer_list>

#include "rabbet/plugin.hpp"

namespace calls {

class Dims {
 public:
  Dims() = default;
  Dims(std::initializer_list<int64_t> all) { insert(end(), all.begin(), all.end()); }
  Dims(const int64_t* first, const int64_t* last) { insert(end(), first, last); }
  Dims(size_t n, int64_t value) { insert(end(), n, value); }
  Dims(const Dims& other) { *this = other; }
  Dims& operator=(const Dims& other) {
    n_ = other.n_;
    std::memmove(at_, other.at_, n_ * sizeof(int64_t));
    return *this;
  }

  size_t size() const { return n_; }
  const int64_t* data() const { return at_; }
  int64_t* begin() { return at_; }
  int64_t* end() { return at_ + n_; }
  const int64_t* begin() const { return at_; }
  const int64_t* end() const { return at_ + n_; }
  int64_t& operator[](size_t i) { return at_[i]; }
  int64_t operator[](size_t i) const { return at_[i]; }

  void push_back(int64_t value) { insert(end(), 1, value); }
  void insert(int64_t* at, int64_t value) { insert(at, 1, value); }
  void insert(int64_t* at, size_t n, int64_t value) { std::fill_n(room(at, n), n, value); }
  /// What is inserted must not be part of this list.
  void insert(int64_t* at, const int64_t* first, const int64_t* last) {
    std::copy(first, last, room(at, last - first));
  }
  void erase(int64_t* at) {
    std::memmove(at, at + 1, (end() - at - 1) * sizeof(int64_t));
    --n_;
  }

  bool operator==(const Dims& other) const {
    return std::equal(begin(), end(), other.begin(), other.end());
  }

 private:
  // An example has at most 32 dimensions, and the lists that users give name as many.
  static constexpr size_t kCapacity = 40;

  int64_t* room(int64_t* at, size_t n) {
    if (n_ + n > kCapacity) rb::fail(RB_E_ARG, "a tensor has at most 32 dimensions");
    std::memmove(at + n, at, (end() - at) * sizeof(int64_t));
    n_ += n;
    return at;
  }

  size_t n_ = 0;
  int64_t at_[kCapacity];
};

}  // namespace calls
