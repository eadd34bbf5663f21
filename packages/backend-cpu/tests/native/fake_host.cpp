// The smallest host that can run the plugin: no core, no Python. It collects the kernels that the
// plugin registers, and runs them on memory that the test owns. That it links and loads at all
// shows that the library needs only rabbet/abi.h.
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "rabbet/abi.h"

namespace {

constexpr int kItemSize[RB_DTYPE_COUNT] = {1, 1, 1, 2, 4, 8, 2, 4, 8, 2, 2, 4, 8, 8, 16};

struct FakeOp {
  std::string name;
  RbOpInfo info;
};
struct State {
  RbHost host;
  std::map<std::string, RbKernel> kernels;
  std::map<std::string, std::unique_ptr<FakeOp>> ops;
  RbBackend backend;
  int threads = 1;
  uint64_t seed = 0, counter = 0;
};
State state;
thread_local std::string message;

int32_t err_set(int32_t code, const char* text) {
  message = text;
  return code;
}
int32_t add_kernel(RbTxn*, const RbKernel* kernel) {
  state.kernels[kernel->op] = *kernel;
  return RB_OK;
}
// The kernel of a decomposition is that of its operator.
int32_t add_formula_kernel(RbTxn*, const RbFormulaKernel* formula) {
  if (formula->argument >= 0) return RB_OK;
  RbKernel kernel{};
  kernel.flags = formula->flags;
  kernel.fn = formula->fn;
  kernel.self = formula->self;
  kernel.dtype_mask = formula->dtype_mask;
  state.kernels.emplace(formula->op, kernel);
  return RB_OK;
}
const uint8_t kKinds[RB_MAX_DTYPES] = {0, 2, 1, 1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 4, 4};
int32_t add_backend(RbTxn*, const RbBackend* backend, int32_t* id) {
  state.backend = *backend;
  *id = 1;
  return RB_OK;
}
const RbOpInfo* op_info(const RbOp* op) { return &reinterpret_cast<const FakeOp*>(op)->info; }

// As many ranges as threads, each on a thread of its own.
int32_t parallel_for(int64_t n, int64_t grain, void (*f)(int64_t, int64_t, void*), void* ctx) {
  const int64_t parts = std::min<int64_t>(state.threads, (n + grain - 1) / grain);
  if (parts <= 1) return f(0, n, ctx), RB_OK;
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < parts; ++i)
    threads.emplace_back([=] { f(n * i / parts, n * (i + 1) / parts, ctx); });
  for (std::thread& t : threads) t.join();
  return RB_OK;
}
int32_t num_threads() { return state.threads; }
// Not rounded up: AddressSanitizer sees the end.
void* block_alloc(uint64_t n) {
  void* p = nullptr;
  return posix_memalign(&p, 64, n) ? nullptr : p;
}
void block_free(void* p, uint64_t) { std::free(p); }
int32_t rng_reserve(RbGenerator*, int32_t, int32_t, uint64_t n, RbRngSlice* slice) {
  slice->seed = state.seed;
  slice->offset = state.counter;
  state.counter += n;
  return RB_OK;
}
// Results of kernels that allocate; freed by `free_tensor`.
int32_t tensor_new(int32_t backend, int32_t, int32_t dtype, int32_t ndim, const int64_t* shape,
                   const int64_t* strides, RbTensor** out) {
  auto* t = static_cast<RbTensor*>(std::calloc(1, sizeof(RbTensor)));
  t->shape = static_cast<int64_t*>(std::calloc(2 * ndim + 2, sizeof(int64_t)));
  t->strides = t->shape + ndim + 1;
  t->ndim = ndim;
  t->numel = 1;
  for (int d = ndim - 1; d >= 0; --d) {
    t->shape[d] = shape[d];
    t->strides[d] = strides ? strides[d] : t->numel;  // given ones are dense
    t->numel *= shape[d];
  }
  t->dtype_id = static_cast<uint16_t>(dtype);
  t->backend = static_cast<uint8_t>(backend);
  t->flags = strides ? 0 : RB_T_CONTIGUOUS;
  t->data = std::calloc(t->numel + 1, kItemSize[dtype]);
  *out = t;
  return RB_OK;
}

}  // namespace

extern "C" {

int load(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) return err_set(RB_E_PLUGIN, dlerror());
  auto entry = reinterpret_cast<RbPluginEntry>(dlsym(library, RB_PLUGIN_SYMBOL));
  if (!entry) return err_set(RB_E_PLUGIN, "no entry point");
  const RbPlugin* plugin = entry();
  if (plugin->abi_major != RB_ABI_MAJOR || plugin->abi_built != RB_ABI_MINOR)
    return err_set(RB_E_PLUGIN, "another ABI");
  RbHost& h = state.host;
  std::memset(&h, 0, sizeof h);
  h.struct_size = sizeof h;
  h.major = RB_ABI_MAJOR;
  h.minor = RB_ABI_MINOR;
  h.err_set = err_set;
  h.add_kernel = add_kernel;
  h.add_formula_kernel = add_formula_kernel;
  h.dtype_kinds = kKinds;
  h.add_backend = add_backend;
  h.op_info = op_info;
  h.parallel_for = parallel_for;
  h.num_threads = num_threads;
  h.block_alloc = block_alloc;
  h.block_free = block_free;
  h.rng_reserve = rng_reserve;
  h.tensor_new = tensor_new;
  return plugin->init(&h, nullptr);
}
void set_threads(int n) { state.threads = n; }
void seed(uint64_t value) {
  state.seed = value;
  state.counter = 0;
}
const char* last_message() { return message.c_str(); }
int kernel_count() { return static_cast<int>(state.kernels.size()); }
const char* kernel_name(int i) { return std::next(state.kernels.begin(), i)->first.c_str(); }
uint64_t kernel_mask(const char* op) { return state.kernels.at(op).dtype_mask; }

int run(const char* name, const RbValue* args, int nargs, RbValue* rets, int nrets) {
  auto it = state.kernels.find(name);
  if (it == state.kernels.end()) return err_set(RB_E_NOTIMPL, "no such kernel");
  std::unique_ptr<FakeOp>& op = state.ops[name];
  if (!op) {
    op = std::make_unique<FakeOp>();
    op->name = name;
    op->info.name = op->name.c_str();
  }
  RbCall call;
  std::memset(&call, 0, sizeof call);
  call.struct_size = sizeof call;
  call.host = &state.host;
  call.op = reinterpret_cast<const RbOp*>(op.get());
  return it->second.fn(it->second.self, &call, args, nargs, rets, nrets);
}
void free_tensor(RbTensor* t) {
  std::free(t->data);
  std::free(t->shape);
  std::free(t);
}
// Allocate, write and free `nbytes` of the backend's memory; 0 if all went well.
int try_allocation(uint64_t nbytes) {
  RbBuffer buffer{};
  buffer.struct_size = sizeof buffer;
  const RbAllocator* a = state.backend.allocator;
  if (int code = a->alloc(a->self, 0, nbytes, nullptr, &buffer)) return code;
  const bool aligned =
      reinterpret_cast<uintptr_t>(buffer.data) % (nbytes >= (2u << 20) ? 2u << 20 : 64) == 0;
  std::memset(buffer.data, 0x5a, nbytes);
  a->free(a->self, &buffer, nullptr);
  return aligned ? 0 : -1;
}

}  // extern "C"
