// Memory that the driver gives out, and what it knows of an address.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>

namespace cusim {

enum class Kind { kDevice, kManaged, kPinned, kMapped };

/// Memory that was given out.
struct Allocation {
  char* begin;
  size_t size;
  Kind kind;
  int device;
  bool accessible = true;   // of mapped memory: cuMemSetAccess was called
  int shared = -1;          // the file of memory that is shared with other processes
  std::set<int> readers{};  // of mapped memory: other devices that may access it
  const char* end() const { return begin + size; }
};

/// The addresses of all devices' memory and of pinned memory. They are never given out twice, so
/// that use after free is found. New memory is full of 0xff, a NaN.
class Memory {
 public:
  Memory();
  /// Null: no memory.
  Allocation* allocate(size_t size, Kind kind, int device);
  void free(Allocation& allocation);
  /// Move it into a file, which other processes may open; or such a file of another process.
  bool share(Allocation& allocation);
  Allocation* open_shared(int file, size_t size, int device);
  /// The one that holds `p`, or null.
  Allocation* find(const void* p);
  /// Whether [p, p + size) lies in one, or in several that follow one another without gaps.
  bool holds(const void* p, size_t size);
  bool in_range(const void* p) const { return p >= begin_ && p < end_; }
  const char* begin() const { return begin_; }
  size_t size() const { return static_cast<size_t>(end_ - begin_); }
  /// Addresses without memory, and memory for them.
  char* reserve(size_t size, size_t alignment);
  Allocation* map(char* at, size_t size, int device);
  void unmap(Allocation& allocation);
  /// "4 bytes behind the 400 bytes at 0x7f...".
  std::string describe(const void* p);
  /// Whether the host may access devices' memory; kernels and copies run while it may.
  void open(bool accessible);

 private:
  void fill(char* begin, size_t size);

  char *begin_, *end_, *next_;
  int poison_ = -1;
  bool open_ = true;
  std::map<const char*, Allocation> given_;
  std::map<const char*, size_t> freed_;
};

Memory& memory();

}  // namespace cusim
