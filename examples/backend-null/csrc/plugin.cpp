// A complete backend: memory, devices, kernels, registration. Read it from the bottom up.
//
// Core does the rest: it derives shapes and dtypes, casts inputs, allocates results, makes views
// and runs the decompositions of operators for which there is no kernel here.
#include <cstdlib>
#include <initializer_list>
#include <rabbet/plugin.hpp>  // C++ over rabbet/abi.h: exceptions become status codes, arguments have types

namespace {

// ---- 3. Kernels: fill rets[0], which has its shape and dtype already

// Where element `i` of `out`, counted row by row, lies in `t`, which broadcasts to that shape.
int64_t place(const RbTensor& t, const RbTensor& out, int64_t i) {
  int64_t at = 0;
  for (int d = t.ndim - 1, of_out = out.ndim - 1; d >= 0; --d, --of_out) {  // aligned at the end
    if (t.shape[d] != 1) at += i % out.shape[of_out] * t.strides[d];
    i /= out.shape[of_out];
  }
  return at;
}
using Number = long double;  // holds every float and every int64_t
Number load(const RbTensor& t, int64_t at) {
  if (t.dtype_id == RB_F32) return static_cast<float*>(t.data)[at];
  return static_cast<int64_t*>(t.data)[at];
}
void store(const RbTensor& t, int64_t at, Number value) {
  if (t.dtype_id == RB_F32)
    static_cast<float*>(t.data)[at] = static_cast<float>(value);
  else
    static_cast<int64_t*>(t.data)[at] = static_cast<int64_t>(value);
}
bool is_tensor(const rb::Args& a, int i) { return a.args[i].tag == RB_TENSOR; }

// Each element of rets[0] becomes f(x), where x[k] comes from argument from[k]: the element of a
// tensor of any strides that belongs there, or a number, which elementwise operators take as well.
template <class F>
void for_each(const rb::Args& a, std::initializer_list<int> from, const F& f) {
  const RbTensor& out = a.ret();
  for (int64_t i = 0; i < out.numel; ++i) {
    Number x[3], *next = x;
    for (int k : from) {
      if (is_tensor(a, k))
        *next++ = load(a.tensor(k), place(a.tensor(k), out, i));
      else
        *next++ = a.args[k].tag == RB_INT ? static_cast<Number>(a.integer(k)) : a.real(k);
    }
    store(out, place(out, out, i), f(x));
  }
}

void add(const rb::Args& a) {  // add(input, other, alpha=1)
  for_each(a, {0, 1, 2}, [](const Number* x) { return x[0] + x[2] * x[1]; });
}
void mul(const rb::Args& a) {  // mul(input, other)
  for_each(a, {0, 1}, [](const Number* x) { return x[0] * x[1]; });
}
template <int Value>
void constant(const rb::Args& a) {  // zeros(size), ones(size)
  for_each(a, {}, [](const Number*) { return Value; });
}

// copy_(input, src) and fill_(input, value) overwrite `input`, and cast; so do full(size, value),
// clone(input) and cast(input, dtype) with a new tensor.
template <int Source>
void copy(const rb::Args& a) {
  const auto known = [](const RbTensor& t) { return t.dtype_id == RB_F32 || t.dtype_id == RB_I64; };
  const bool fits = !is_tensor(a, Source) || known(a.tensor(Source));
  if (!fits || !known(a.ret()))  // a mask in the table below sees one dtype only
    rb::fail(RB_E_NOTIMPL, "%s on '" DEVICE_NAME "' supports float32 and int64", a.op_name());
  for_each(a, {Source}, [](const Number* x) { return x[0]; });
}

void matmul(const rb::Args& a) {  // with RB_K_CONTIGUOUS below, so all are row-major
  const RbTensor &x = a.tensor(0), &y = a.tensor(1), &out = a.ret();
  if (x.ndim != 2 || y.ndim != 2)
    rb::fail(RB_E_NOTIMPL, "matmul on '" DEVICE_NAME "': expected two matrices, got %d-d and %d-d",
             x.ndim, y.ndim);
  const float *p = static_cast<float*>(x.data), *q = static_cast<float*>(y.data);
  const int64_t inner = x.shape[1], columns = y.shape[1];
  for (int64_t i = 0; i < out.shape[0]; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      float sum = 0;
      for (int64_t k = 0; k < inner; ++k) sum += p[i * inner + k] * q[k * columns + j];
      static_cast<float*>(out.data)[i * out.strides[0] + j * out.strides[1]] = sum;
    }
  }
}

// Other dtypes do not reach these kernels: core's error names those that do.
constexpr uint64_t kFloat = 1ull << RB_F32, kBoth = kFloat | 1ull << RB_I64;
const rb::KernelSpec kKernels[] = {
    {"add", rb::wrap<add>, 0, kFloat},
    {"mul", rb::wrap<mul>, 0, kFloat},
    {"copy", rb::wrap<copy<1>>},
    {"clone", rb::wrap<copy<0>>},
    {"cast", rb::wrap<copy<0>>},
    {"fill", rb::wrap<copy<1>>, 0, kBoth},
    {"zeros", rb::wrap<constant<0>>, 0, kBoth},
    {"ones", rb::wrap<constant<1>>, 0, kBoth},
    {"full", rb::wrap<copy<1>>, 0, kBoth},
    {"matmul", rb::wrap<matmul>, RB_K_CONTIGUOUS, kFloat},
};

// ---- 2. Memory and devices. Core caches what `allocate` returns, so it may be slow.

int32_t allocate(void*, int32_t, uint64_t nbytes, void*, RbBuffer* out) {
  out->data = std::aligned_alloc(64, (nbytes + 63) / 64 * 64);
  if (!out->data)
    return rb::set_error(RB_E_OOM, DEVICE_NAME ": cannot allocate %llu bytes",
                         static_cast<unsigned long long>(nbytes));
  return RB_OK;
}
void release(void*, RbBuffer* buffer, void*) { std::free(buffer->data); }
int32_t count_devices(void*, int32_t* n) { return *n = 1, RB_OK; }
int32_t synchronize(void*, int32_t) { return RB_OK; }  // kernels above are done when they return

const RbAllocator kAllocator = {RB_SIZE(RbAllocator, free), 0, nullptr, allocate, release};
// No `copy` between devices: this is host memory, which core copies itself.
const RbDevices kDevices = {
    RB_SIZE(RbDevices, fork_child), 0, nullptr, count_devices, synchronize, nullptr, nullptr};

// ---- 1. What core sees: one exported symbol, and `init`, which registers everything or nothing

const RbBackend kBackend = {
    RB_SIZE(RbBackend, allocator), RB_B_HOST_MEMORY, DEVICE_NAME, 1, 0, &kDevices, &kAllocator};

int32_t init(const RbHost* host, RbTxn* txn) {
  rb::host = host;
  int32_t id;
  if (const int32_t code = host->add_backend(txn, &kBackend, &id)) return code;
  return rb::add_kernels(host, txn, DEVICE_NAME, kKernels);
}

const RbPlugin kPlugin = {
    RB_SIZE(RbPlugin, retire), RB_ABI_MAJOR,         RB_ABI_MINOR, RB_ABI_NEEDED, 0, 0,
    "rabbet-backend-null",     RABBET_WHEEL_VERSION, init,         nullptr};

}  // namespace

extern "C" RB_EXPORT const RbPlugin* rabbet_plugin_v0(void) { return &kPlugin; }
