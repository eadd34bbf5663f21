#include "rules/memo.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "tensor/dtype.h"

namespace rabbet {

namespace {

constexpr int kMaxWords = 64, kEntries = 64;

// A description of arguments, one word after the other.
struct Key {
  int64_t words[kMaxWords];
  int size = 0;
  bool ok = true;

  void put(int64_t word) {
    if (size == kMaxWords) {
      ok = false;
    } else {
      words[size++] = word;
    }
  }
  void put_all(const int64_t* values, uint32_t n) {
    for (uint32_t i = 0; ok && i < n; ++i) put(values[i]);
  }
  void put_tensor(const RbTensor* t) {
    if (!t) return put(-1);
    put(t->dtype_id | static_cast<int64_t>(t->ndim) << 32);
    put_all(t->shape, static_cast<uint32_t>(t->ndim));
  }
  void put_value(const RbValue& v) {
    put(v.tag | static_cast<int64_t>(v.len) << 32);
    switch (v.tag) {
      case RB_NONE:
        return;
      case RB_BOOL:
      case RB_INT:
      case RB_FLOAT:
      case RB_DTYPE:
      case RB_DEVICE:
        return put(v.v.i);
      case RB_STR: {
        for (uint32_t at = 0; ok && at < v.len; at += 8) {
          int64_t word = 0;
          std::memcpy(&word, v.v.s + at, std::min<uint32_t>(8, v.len - at));
          put(word);
        }
        return;
      }
      case RB_TENSOR:
        return put_tensor(v.v.t);
      case RB_TENSORS:
        for (uint32_t i = 0; ok && i < v.len; ++i) put_tensor(v.v.ts[i]);
        return;
      case RB_INTS:
        return put_all(v.v.is, v.len);
      default:
        ok = false;
    }
  }

  uint64_t hash() const {
    uint64_t h = 0;
    for (int i = 0; i < size; ++i) h = (h ^ static_cast<uint64_t>(words[i])) * 0x9e3779b97f4a7c15u;
    return h;
  }
};

struct Entry {
  Key key;
  Facts facts;
};

}  // namespace

Facts* recall(const Op& op, const RbValue* args, int nargs) {
  static thread_local std::unique_ptr<Entry> entries[kEntries];
  Key key;
  key.put(reinterpret_cast<int64_t>(&op));  // operators are never freed
  key.put(default_dtype());
  for (int i = 0; key.ok && i < nargs; ++i) key.put_value(args[i]);
  if (!key.ok) return nullptr;
  std::unique_ptr<Entry>& entry = entries[key.hash() >> 58];
  if (!entry) entry = std::make_unique<Entry>();
  if (entry->key.size != key.size ||
      std::memcmp(entry->key.words, key.words, key.size * sizeof(int64_t)) != 0) {
    std::memcpy(entry->key.words, key.words, key.size * sizeof(int64_t));
    entry->key.size = key.size;
    entry->facts.checked = entry->facts.inferred = false;
  }
  return &entry->facts;
}

}  // namespace rabbet
