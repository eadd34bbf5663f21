// Working memory of kernels that is kept by the thread between calls: fresh megabytes would be
// faulted in page by page every time.
#pragma once
#include <cstddef>
#include <new>
#include <type_traits>

namespace rbcpu {

/// At least `bytes` bytes, aligned to 64; throws std::bad_alloc.
void* take_workspace(size_t bytes);
/// Give back what take_workspace returned to this thread.
void drop_workspace(void* data) noexcept;

/// Uninitialised elements until the end of scope.
template <class T>
class Workspace {
 public:
  explicit Workspace(size_t n) {
    static_assert(std::is_trivially_destructible_v<T>);
    if (n > (static_cast<size_t>(-1) >> 4) / sizeof(T)) throw std::bad_alloc();
    data_ = static_cast<T*>(take_workspace(n * sizeof(T)));
  }
  ~Workspace() { drop_workspace(data_); }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  T* data() const { return data_; }
  T& operator[](size_t i) const { return data_[i]; }

 private:
  T* data_;
};

}  // namespace rbcpu
