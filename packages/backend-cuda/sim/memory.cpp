#include "memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace cusim {
namespace {

constexpr size_t kRange = size_t{1} << 40, kPage = 4096, kAlignment = 512, kPoison = 2 << 20;

size_t rounded(size_t n, size_t to) { return (n + to - 1) / to * to; }

// A file full of 0xff.
int poison_file() {
  const int file = memfd_create("poison", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, kPoison)) return -1;
  void* bytes = mmap(nullptr, kPoison, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (bytes == MAP_FAILED) return -1;
  std::memset(bytes, 0xff, kPoison);
  munmap(bytes, kPoison);
  return file;
}

}  // namespace

Memory::Memory() : poison_(poison_file()) {
  void* base = mmap(nullptr, kRange, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED || poison_ < 0) {
    std::perror("cusim: no range of addresses");
    std::abort();
  }
  begin_ = static_cast<char*>(base);
  end_ = begin_ + kRange;
  next_ = begin_ = reinterpret_cast<char*>(rounded(reinterpret_cast<size_t>(begin_), kPoison));
}

// Pages that are read come from the file, those that are written are copies.
void Memory::fill(char* begin, size_t size) {
  for (size_t at = 0; at < size; at += kPoison)
    mmap(begin + at, rounded(std::min(kPoison, size - at), kPage), PROT_READ | PROT_WRITE,
         MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, poison_, 0);
}

char* Memory::reserve(size_t size, size_t alignment) {
  char* at = reinterpret_cast<char*>(rounded(reinterpret_cast<size_t>(next_), alignment));
  if (size > static_cast<size_t>(end_ - at)) return nullptr;
  next_ = at + rounded(size, kPage) + kPage;  // what lies between belongs to nobody
  return at;
}

Allocation* Memory::allocate(size_t size, Kind kind, int device) {
  char* at = reserve(size, kPage);
  if (!at) return nullptr;
  fill(at, size);
  if (!open_ && kind == Kind::kDevice) mprotect(at, rounded(size, kPage), PROT_NONE);
  return &(given_[at] = {at, size, kind, device, true, -1});
}

Allocation* Memory::map(char* at, size_t size, int device) {
  fill(at, size);
  if (!open_) mprotect(at, rounded(size, kPage), PROT_NONE);
  return &(given_[at] = {at, size, Kind::kMapped, device, false, -1});
}

bool Memory::share(Allocation& a) {
  if (a.shared >= 0) return true;
  const size_t pages = rounded(a.size, kPage);
  const int file = memfd_create("shared", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(pages))) return false;
  void* copy = mmap(nullptr, pages, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (copy == MAP_FAILED) return false;
  std::memcpy(copy, a.begin, a.size);
  munmap(copy, pages);
  mmap(a.begin, pages, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
  a.shared = file;
  return true;
}

Allocation* Memory::open_shared(int file, size_t size, int device) {
  char* at = reserve(size, kPage);
  if (!at) return nullptr;
  mmap(at, rounded(size, kPage), open_ ? PROT_READ | PROT_WRITE : PROT_NONE, MAP_SHARED | MAP_FIXED,
       file, 0);
  return &(given_[at] = {at, size, Kind::kDevice, device, true, file});
}

void Memory::free(Allocation& allocation) {
  if (allocation.shared >= 0) close(allocation.shared);
  unmap(allocation);
}

void Memory::unmap(Allocation& allocation) {
  char* begin = allocation.begin;
  const size_t size = allocation.size;
  mmap(begin, rounded(size, kPage), PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  freed_[begin] = size;
  given_.erase(begin);
}

Allocation* Memory::find(const void* pointer) {
  const char* p = static_cast<const char*>(pointer);
  auto block = given_.upper_bound(p);
  if (block == given_.begin()) return nullptr;
  --block;
  return p < block->second.end() ? &block->second : nullptr;
}

bool Memory::holds(const void* pointer, size_t size) {
  const char *p = static_cast<const char*>(pointer), *end = p + size;
  do {
    const Allocation* here = find(p);
    if (!here) return size == 0 && p > begin_ && find(p - 1);
    p = here->end();
  } while (p < end);
  return true;
}

std::string Memory::describe(const void* pointer) {
  const char* p = static_cast<const char*>(pointer);
  char text[128];
  const auto freed = freed_.upper_bound(p);
  if (freed != freed_.begin() && p < std::prev(freed)->first + std::prev(freed)->second) {
    std::snprintf(text, sizeof text, "in memory that was freed, %zu bytes at %p",
                  std::prev(freed)->second, static_cast<const void*>(std::prev(freed)->first));
    return text;
  }
  const auto block = given_.upper_bound(p);
  if (block == given_.begin()) return "below all memory";
  const Allocation& a = std::prev(block)->second;
  if (p < a.end()) {
    std::snprintf(text, sizeof text, "at byte %zd of the %zu bytes at %p", p - a.begin, a.size,
                  static_cast<void*>(a.begin));
  } else {
    std::snprintf(text, sizeof text, "%zd bytes behind the %zu bytes at %p", p - a.end(), a.size,
                  static_cast<void*>(a.begin));
  }
  return text;
}

void Memory::open(bool accessible) {
  if (accessible == open_) return;
  open_ = accessible;
  for (const auto& [begin, a] : given_) {
    if (a.kind == Kind::kPinned || a.kind == Kind::kManaged) continue;
    mprotect(const_cast<char*>(begin), rounded(a.size, kPage),
             accessible ? PROT_READ | PROT_WRITE : PROT_NONE);
  }
}

Memory& memory() {
  static auto* instance = new Memory;
  return *instance;
}

}  // namespace cusim
