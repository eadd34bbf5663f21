#include "run/plan.h"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <unordered_map>

namespace compile {

namespace {

constexpr size_t kMostPlans = 512;
constexpr size_t kMostShells = 8;  // kept by a plan

int dims_of(Extent extent, bool rows) {
  switch (extent) {
    case Extent::kOne:
      return 0;
    case Extent::kRow:
      return 1;
    case Extent::kColumn:
      return 2;
    case Extent::kFull:
      return rows ? 2 : 1;
  }
  return 0;
}

// The nodes on which results depend that are still wanted.
std::vector<bool> needed_nodes(const Recording& r) {
  std::vector<bool> needed(r.nodes());
  for (int i = r.nodes() - 1; i >= 0; --i) {
    const Node& node = r.node(i);
    if (is_stored(r.value(node.result))) needed[i] = true;
    if (!needed[i]) continue;
    for (int a = 0; a < node.nargs; ++a) {
      if (node.args[a].value >= 0 && r.value(node.args[a].value).node >= 0)
        needed[r.value(node.args[a].value).node] = true;
    }
  }
  return needed;
}

using Key = std::vector<uint64_t>;

struct KeyHash {
  size_t operator()(const Key& key) const {
    uint64_t hash = 0x9e3779b97f4a7c15ull;
    for (uint64_t word : key) {
      hash = (hash ^ word) * 0x9fb21c651e98df25ull;
      hash ^= hash >> 29;
    }
    return hash;
  }
};

Key key_of(const Recording& r, const std::vector<bool>& needed) {
  Key key{r.cols() != 0};
  for (int i = 0; i < r.values(); ++i) {
    const Value& v = r.value(i);
    key.push_back(static_cast<uint64_t>(v.dtype) << 16 | static_cast<uint64_t>(v.extent) << 8 |
                  (v.held != nullptr) << 2 | v.current << 1 | v.made);
  }
  for (int i = 0; i < r.nodes(); ++i) {
    if (!needed[i]) continue;
    const Node& node = r.node(i);
    key.push_back(reinterpret_cast<uintptr_t>(node.op));
    key.push_back(static_cast<uint64_t>(node.result) << 16 | static_cast<uint64_t>(i));
    for (int a = 0; a < node.nargs; ++a) {
      const Node::Argument& arg = node.args[a];
      key.push_back(arg.value >= 0 ? static_cast<uint64_t>(arg.value)
                                   : uint64_t{1} << 32 | arg.literal.tag);
      // The branches that a formula takes, and whether its kernel declines, may depend on its
      // numbers.
      if (arg.value < 0 && node.kernel.all)
        key.push_back(arg.literal.tag == RB_NONE ? 0 : arg.literal.v.u);
    }
  }
  return key;
}

// Of the process, never destroyed. Under the lock of the region.
std::unordered_map<Key, std::shared_ptr<Plan>, KeyHash>& cache() {
  static auto* const plans = new std::unordered_map<Key, std::shared_ptr<Plan>, KeyHash>;
  return *plans;
}

}  // namespace

Shells::Shells(const Recording& r, const std::vector<Place>& places, int slots) : slots_(slots) {
  static char nowhere[16];
  static const int64_t ones[2] = {1, 1};
  shells_.resize(places.size());
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i].kind == Place::kUnused) continue;
    const Value& v = r.value(static_cast<int>(i));
    rb::check(host->tensor_adopt(nowhere, cpu, 0, v.dtype, dims_of(v.extent, r.cols() != 0), ones,
                                 nullptr, 0, nullptr, nullptr, &shells_[i]));
  }
}

Shells::~Shells() {
  for (RbTensor* t : shells_) {
    if (t) host->release(t);
  }
  std::free(scratch_);
}

void Shells::reserve(uint64_t bytes) {
  bytes = (bytes + 63) / 64 * 64;
  if (bytes <= slot_bytes_ || !slots_) return;
  std::free(scratch_);
  scratch_ = static_cast<char*>(std::aligned_alloc(64, bytes * static_cast<uint64_t>(slots_)));
  slot_bytes_ = scratch_ ? bytes : 0;
  if (!scratch_) throw std::bad_alloc();
}

Plan::Plan(const Recording& r, const std::vector<bool>& needed) : places(r.values()) {
  std::vector<int> last_use(r.values(), -1);
  for (int i = 0; i < r.nodes(); ++i) {
    if (!needed[i]) continue;
    nodes.push_back(static_cast<int16_t>(i));
    const Node& node = r.node(i);
    for (int a = 0; a < node.nargs; ++a) {
      const int v = node.args[a].value;
      if (v < 0) continue;
      last_use[v] = i;
      if (r.value(v).node < 0) places[v].kind = Place::kMemory;
    }
  }
  std::vector<int16_t> free;
  for (const int16_t i : nodes) {
    const Node& node = r.node(i);
    const Value& result = r.value(node.result);
    // A kernel may write where it reads if the elements have one size.
    const auto release = [&](bool same_size) {
      for (int a = 0; a < node.nargs; ++a) {
        const int v = node.args[a].value;
        if (v < 0 || last_use[v] != i || places[v].kind != Place::kSlot) continue;
        if ((r.value(v).itemsize == result.itemsize) != same_size) continue;
        free.push_back(places[v].slot);
        last_use[v] = -1;
      }
    };
    release(true);
    Place& place = places[node.result];
    largest_item = std::max<int>(largest_item, result.itemsize);
    if (is_stored(result)) {
      place.kind = Place::kMemory;
      ++stored;
      stored_values.push_back(node.result);
      overwrites = overwrites || !result.made;
    } else {
      place.kind = Place::kSlot;
      if (free.empty()) free.push_back(static_cast<int16_t>(slots++));
      place.slot = free.back();
      free.pop_back();
      if (last_use[node.result] < 0) free.push_back(place.slot);
    }
    release(false);
  }
}

std::unique_ptr<Shells> Plan::take(const Recording& r) {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      auto shells = std::move(free_.back());
      free_.pop_back();
      return shells;
    }
  }
  return std::make_unique<Shells>(r, places, slots + stored);
}

void Plan::give(std::unique_ptr<Shells> shells) {
  const std::lock_guard lock(mutex_);
  if (free_.size() < kMostShells) free_.push_back(std::move(shells));
}

std::shared_ptr<Plan> plan_of(const Recording& r) {
  const std::vector<bool> needed = needed_nodes(r);
  Key key = key_of(r, needed);
  auto& plans = cache();
  if (const auto found = plans.find(key); found != plans.end()) return found->second;
  auto plan = std::make_shared<Plan>(r, needed);
  if (plan->nodes.empty()) return nullptr;
  if (plans.size() >= kMostPlans) plans.clear();
  plans.emplace(std::move(key), plan);
  return plan;
}

int64_t plan_count() { return static_cast<int64_t>(cache().size()); }
void forget_plans() { cache().clear(); }

}  // namespace compile
