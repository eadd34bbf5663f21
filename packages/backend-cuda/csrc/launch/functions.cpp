#include "launch/functions.h"

#include <atomic>
#include <type_traits>

#include "launch/image.h"

namespace rbcuda {
namespace {

// What tells kernels apart: their texts by address.
struct Key {
  uint64_t texts[3], types[Types::kMost], device;

  bool operator==(const Key& other) const { return !std::memcmp(this, &other, sizeof *this); }
};
static_assert(std::has_unique_object_representations_v<Key>);

Key key_of(const Device& device, const Kernel& kernel) {
  const auto word = [](const char* text) { return reinterpret_cast<uint64_t>(text); };
  Key key = {{word(kernel.text), word(kernel.functions.data()), word(kernel.behind.data())},
             {},
             static_cast<uint64_t>(device.index())};
  uint64_t* type = key.types;
  for (const TypeName& name : kernel.types) *type++ = name.packed;
  return key;
}

uint64_t hash_of(const Key& key) {
  uint64_t words[sizeof key / sizeof(uint64_t)], hash = 0;
  std::memcpy(words, &key, sizeof words);
  for (const uint64_t word : words) {
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  }
  return hash;
}

struct Entry {
  Key key;
  std::atomic<CuFunction> function{nullptr};
  std::mutex compiling;
  Entry* next = nullptr;
};

// Chains that only grow, at their heads: readers need no lock. Entries live as long as the process.
constexpr size_t kChains = 4096;
std::atomic<Entry*> chains[kChains];

Entry* find(Entry* entry, const Entry* end, const Key& key) {
  while (entry != end && !(entry->key == key)) entry = entry->next;
  return entry == end ? nullptr : entry;
}

__attribute__((noinline)) Entry& add(std::atomic<Entry*>& chain, const Key& key) {
  Entry* made = new Entry{key};
  Entry *head = chain.load(std::memory_order_acquire), *seen = nullptr;
  for (;;) {
    if (Entry* other = find(head, seen, key)) {
      delete made;
      return *other;
    }
    made->next = seen = head;
    if (chain.compare_exchange_strong(head, made, std::memory_order_acq_rel)) return *made;
  }
}

__attribute__((noinline)) CuFunction load(Device& device, const Kernel& kernel, Entry& entry) {
  std::lock_guard<std::mutex> lock(entry.compiling);
  if (CuFunction made = entry.function.load(std::memory_order_acquire)) return made;
  const RelaxedCapture relaxed;
  const std::string text = text_of(kernel);
  CuModule module = nullptr;
  CuFunction made = nullptr;
  if (driver().module_load(&module, image_of(device, kernel.op, text).data()) != kSuccess)
    check_cuda(
        driver().module_load(&module, image_of(device, kernel.op, text, Source::kCompiler).data()),
        device.index(), "cuModuleLoadData");
  check_cuda(driver().module_function(&made, module, "rb_kernel"), device.index(),
             "cuModuleGetFunction");
  // Not at its first launch, which may be captured.
  if (driver().function_load)
    check_cuda(driver().function_load(made), device.index(), "cuFuncLoad");
  entry.function.store(made, std::memory_order_release);
  return made;
}

}  // namespace

CuFunction function_of(Device& device, const Kernel& kernel) {
  const Key key = key_of(device, kernel);
  std::atomic<Entry*>& chain = chains[hash_of(key) % kChains];
  Entry* entry = find(chain.load(std::memory_order_acquire), nullptr, key);
  if (!entry) entry = &add(chain, key);
  if (CuFunction made = entry->function.load(std::memory_order_acquire)) return made;
  return load(device, kernel, *entry);
}

}  // namespace rbcuda
