// A complete backend: memory, devices, kernels, registration. Read it from the bottom up.
//
// Core does the rest: it derives shapes and dtypes, casts inputs, allocates results, makes views
// and runs the decompositions of operators for which there is no kernel here.
#include <cstdlib>
#include <rabbet/plugin.hpp>  // C++ over rabbet/abi.h: exceptions become status codes, arguments have types

namespace {

// ---- 3. Kernels: fill rets[0], which has its shape and dtype already

// Calls body(out, ins) for each element of `out`: pointers into memory of any strides, inputs
// broadcast to its shape. Elementwise inputs may be numbers: those come as null, and the kernel
// reads the value itself.
template <int N, class Body>
void for_each(const RbTensor& out, const RbTensor* const (&in)[N], const Body& body) {
  const auto item = [](const RbTensor& t) { return t.dtype.bits / 8; };
  for (int64_t i = 0; i < out.numel; ++i) {
    int64_t rest = i, at = 0, from[N] = {};
    for (int d = out.ndim - 1; d >= 0; --d) {
      const int64_t place = rest % out.shape[d];
      rest /= out.shape[d];
      at += place * out.strides[d];
      for (int k = 0; k < N; ++k) {
        const int own = in[k] ? d - (out.ndim - in[k]->ndim) : -1;  // dimensions align at the end
        if (own >= 0 && in[k]->shape[own] != 1) from[k] += place * in[k]->strides[own];
      }
    }
    const char* sources[N];
    for (int k = 0; k < N; ++k)
      sources[k] = in[k] ? static_cast<char*>(in[k]->data) + from[k] * item(*in[k]) : nullptr;
    body(static_cast<char*>(out.data) + at * item(out), sources);
  }
}
float as_float(const char* p) { return *reinterpret_cast<const float*>(p); }
double load(const char* p, int dtype) {
  return dtype == RB_F32 ? as_float(p) : static_cast<double>(*reinterpret_cast<const int64_t*>(p));
}
void store(char* p, int dtype, double value) {
  if (dtype == RB_F32)
    *reinterpret_cast<float*>(p) = static_cast<float>(value);
  else
    *reinterpret_cast<int64_t*>(p) = static_cast<int64_t>(value);
}

float add(float a, float b) { return a + b; }
float mul(float a, float b) { return a * b; }

template <float (*F)(float, float)>
void binary(const rb::Args& a) {  // add(input, other, alpha=1), mul(input, other)
  const RbTensor* const in[2] = {a.args[0].tag == RB_TENSOR ? &a.tensor(0) : nullptr,
                                 a.args[1].tag == RB_TENSOR ? &a.tensor(1) : nullptr};
  const float x = in[0] ? 0 : static_cast<float>(a.real(0)),
              y = in[1] ? 0 : static_cast<float>(a.real(1));
  const float alpha = a.has(2) ? static_cast<float>(a.real(2)) : 1.0f;
  for_each<2>(a.ret(), in, [&](char* to, const char* const* from) {
    store(to, RB_F32,
          F(from[0] ? as_float(from[0]) : x, alpha * (from[1] ? as_float(from[1]) : y)));
  });
}

// copy_(input, src) overwrites `input` and must cast; clone(input) and cast(input, dtype) likewise.
template <int Source>
void copy(const rb::Args& a) {
  const RbTensor &src = a.tensor(Source), &out = a.ret();
  const auto known = [](const RbTensor& t) { return t.dtype_id == RB_F32 || t.dtype_id == RB_I64; };
  if (!known(src) || !known(out))  // a mask in the table below sees one dtype only
    rb::fail(RB_E_NOTIMPL, "%s on '" DEVICE_NAME "' supports float32 and int64", a.op_name());
  for_each<1>(out, {&src}, [&](char* to, const char* const* from) {
    store(to, out.dtype_id, load(from[0], src.dtype_id));
  });
}

void fill(const rb::Args& a) {  // fill_(input, value); zeros(size); ones(size); full(size, value)
  const char* op = a.op_name();
  const int arg = op[0] == 'f' ? 1 : -1;
  const RbTensor* value = arg > 0 && a.args[arg].tag == RB_TENSOR ? &a.tensor(arg) : nullptr;
  const double number = arg < 0 ? (op[0] == 'o') : value ? 0.0 : a.real(arg);
  for_each<1>(a.ret(), {value}, [&](char* to, const char* const* from) {
    store(to, a.ret().dtype_id, value ? load(from[0], value->dtype_id) : number);
  });
}

void matmul(const rb::Args& a) {  // with RB_K_CONTIGUOUS below, so inputs are row-major
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

constexpr uint64_t kFloat = 1ull << RB_F32,
                   kBoth = kFloat | 1ull << RB_I64;  // else core names what is supported
const rb::KernelSpec kKernels[] = {
    {"add", rb::wrap<binary<add>>, 0, kFloat},
    {"mul", rb::wrap<binary<mul>>, 0, kFloat},
    {"copy", rb::wrap<copy<1>>},
    {"clone", rb::wrap<copy<0>>},
    {"cast", rb::wrap<copy<0>>},
    {"fill", rb::wrap<fill>, 0, kBoth},
    {"zeros", rb::wrap<fill>, 0, kBoth},
    {"ones", rb::wrap<fill>, 0, kBoth},
    {"full", rb::wrap<fill>, 0, kBoth},
    {"matmul", rb::wrap<matmul>, RB_K_CONTIGUOUS, kFloat},
};

// ---- 2. Memory and devices. Core caches what `allocate` returns, so it may be slow.

int32_t allocate(void*, int32_t device, uint64_t nbytes, void*, RbBuffer* out) {
  void* data = std::aligned_alloc(64, (nbytes + 63) / 64 * 64);
  if (!data)
    return rb::set_error(RB_E_OOM, DEVICE_NAME ": cannot allocate %llu bytes",
                         static_cast<unsigned long long>(nbytes));
  *out = {data, nbytes, nullptr, device, 0};
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
