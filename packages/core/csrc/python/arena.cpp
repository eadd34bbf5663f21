#include "arena.h"

#include <cstdlib>
#include <new>

namespace rabbet::python {

void* Arena::take_more(size_t bytes) {
  auto* chunk = static_cast<Chunk*>(std::malloc(sizeof(Chunk) + 8 + bytes));
  if (!chunk) throw std::bad_alloc();
  chunk->next = more_;
  more_ = chunk;
  return reinterpret_cast<char*>(chunk) + sizeof(Chunk) + 8;  // 16-byte aligned
}

void Arena::hold(PyObject* o) {
  auto* h = take<Held>(1);
  *h = {Py_NewRef(o), nullptr, held_};
  held_ = h;
}

void Arena::hold(TensorRef t) {
  auto* h = take<Held>(1);
  *h = {nullptr, t.release_ownership(), held_};
  held_ = h;
}

void Arena::clear() {
  for (Held* h = held_; h; h = h->next) {
    Py_XDECREF(h->object);
    if (h->tensor) release(h->tensor);
  }
  while (more_) {
    Chunk* next = more_->next;
    std::free(more_);
    more_ = next;
  }
}

}  // namespace rabbet::python
