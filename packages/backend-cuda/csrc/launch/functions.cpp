#include "launch/functions.h"

#include <atomic>

#include "launch/image.h"

namespace rbcuda {
namespace {

// What tells kernels apart, without their text: texts and functions by address.
struct Key {
  const char *text, *functions;
  uint64_t types[6];
  int64_t device;

  bool operator==(const Key& other) const { return !std::memcmp(this, &other, sizeof *this); }
};
static_assert(sizeof(Key) == 9 * sizeof(uint64_t), "no gaps, which would have any value");

uint64_t mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
  return hash ^ hash >> 29;
}
uint64_t hash_of(const Key& key, const Text& behind) {
  uint64_t words[9], hash = behind.size();
  std::memcpy(words, &key, sizeof words);
  for (const uint64_t word : words) hash = mix(hash, word);
  const char* at = behind.data();
  size_t left = behind.size();
  for (uint64_t word; left >= sizeof word; at += sizeof word, left -= sizeof word) {
    std::memcpy(&word, at, sizeof word);
    hash = mix(hash, word);
  }
  uint64_t rest = 0;
  std::memcpy(&rest, at, left);
  return mix(hash, rest);
}

struct Entry {
  Key key;
  std::string behind;
  std::atomic<CuFunction> function{nullptr};
  std::mutex compiling;
  Entry* next = nullptr;
};

// Chains that only grow, at their heads: readers need no lock. Entries live as long as the process.
constexpr size_t kChains = 4096;
std::atomic<Entry*> chains[kChains];

Entry* find(Entry* entry, const Entry* end, const Key& key, const Text& behind) {
  for (; entry != end; entry = entry->next) {
    if (entry->key == key && entry->behind.size() == behind.size() &&
        !std::memcmp(entry->behind.data(), behind.data(), behind.size()))
      return entry;
  }
  return nullptr;
}

__attribute__((noinline)) Entry& add(std::atomic<Entry*>& chain, const Key& key,
                                     const Text& behind) {
  Entry* made = new Entry;
  made->key = key;
  made->behind.assign(behind.data(), behind.size());
  Entry *head = chain.load(std::memory_order_acquire), *seen = nullptr;
  for (;;) {
    if (Entry* other = find(head, seen, key, behind)) {
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
  Key key = {kernel.text, kernel.functions, {}, device.index()};
  uint64_t* type = key.types;
  for (const TypeName& name : kernel.types) *type++ = name.packed;
  std::atomic<Entry*>& chain = chains[hash_of(key, kernel.behind) % kChains];
  Entry* entry = find(chain.load(std::memory_order_acquire), nullptr, key, kernel.behind);
  if (!entry) entry = &add(chain, key, kernel.behind);
  if (CuFunction made = entry->function.load(std::memory_order_acquire)) return made;
  return load(device, kernel, *entry);
}

}  // namespace rbcuda
