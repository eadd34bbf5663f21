// Products by the kernels of kernels/matmul.cuh, where cuBLASLt does not compute them.
#include "ops/product.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <vector>

#include "launch/temporary.h"
#include "launch/texts.h"
#include "ops/settings.h"

namespace rbcuda {
namespace {

struct Factor {  // twin of the kernel's
  double re, im;
  int64_t whole;
};
struct ProductCall {  // twin of the kernel's Product
  int64_t m, n, k, whole_k, parts;
  int64_t a_row, a_column, b_row, b_column, c_row, c_column, d_row, d_column;
  Factor alpha, beta;
  int32_t vector_a, vector_b, vector_c, has_d;
};

constexpr struct {
  const char *name, *text;  // in x of the type that is computed in
} kActivations[] = {
    {"", "x"},
    {"relu", "x < 0 ? (T)0 : x"},
    {"gelu", "(T)0.5 * x * ((T)1 + erf(x * (T)0.70710678118654752440))"},
    {"gelu_tanh",
     "(T)0.5 * x * ((T)1 + tanh((T)0.79788456080286535588 * (x + (T)0.044715 * x * x * x)))"},
    {"silu", "x / ((T)1 + exp(-x))"},
    {"tanh", "tanh(x)"},
    {"sigmoid", "(T)1 / ((T)1 + exp(-x))"},
};
constexpr size_t kActivationCount = std::size(kActivations);
size_t activation_of(const Product& p) {
  for (size_t i = 0; i < kActivationCount; ++i) {
    if (!std::strcmp(kActivations[i].name, p.activation)) return i;
  }
  rb::fail(RB_E_NOTIMPL, "%s on 'cuda': no activation '%s'", p.op, p.activation);
}

Factor factor_of(const RbValue& v) {
  return {rb::to_double(v), v.tag == RB_COMPLEX ? v.v.fs[1] : 0.0, rb::to_int(v)};
}

bool divides(int64_t by, int64_t stride) { return stride % by == 0; }

// Whether `count` elements can be read at once along the dimension that lies together.
bool reads_packs(const Matrix& x, const Layout& batch, int k, int64_t count, int size) {
  if (x.column != 1 && x.row != 1) return false;
  const int64_t other = x.column == 1 ? x.row : x.column;
  if (!divides(count, other) || reinterpret_cast<uintptr_t>(x.data) % (count * size)) return false;
  return std::all_of(batch.strides[k], batch.strides[k] + batch.ndim,
                     [&](int64_t stride) { return divides(count, stride); });
}

// Structs of the text that compute a product, and how one is launched.
enum Method { kRows, kColumns, kSums, kTiles64Deep, kTiles64, kTiles128, kTensorCores };
constexpr const char* kMethods[] = {"Rows",
                                    "Columns",
                                    "Sums",
                                    "Tiles<64, 16>",
                                    "Tiles<64, 8>",
                                    "Tiles<128, 8>",
                                    "TensorCores<false, false>",
                                    "TensorCores<false, true>",
                                    "TensorCores<true, false>",
                                    "TensorCores<true, true>"};
constexpr int kThreads = 256;
struct Way {
  int method;                 // which of kMethods
  int64_t pack_in, pack_out;  // elements that are read and written at once
  Grid grid;
  const char* functions = "";  // more text that it needs
};

// The kernel's macro. All are made at the first call.
Text macro_of(int method, size_t activation) {
  static const auto* macros = [] {
    auto* made = new std::vector<Text>;
    for (const char* name : kMethods) {
      for (const auto& a : kActivations)
        made->emplace_back("RB_PRODUCT(" + std::to_string(kThreads) + ", " + a.text + ", " + name +
                           ")\n");
    }
    return made;
  }();
  return (*macros)[static_cast<size_t>(method) * kActivationCount + activation];
}

// The dtype of sums.
int sums_of(const Product& p) {
  return p.operands == RB_I8 && p.results == RB_I32 ? +RB_I32 : computed(p.operands);
}

// Products after one another that go on along k.
struct Parts {
  int64_t whole_k, count;
};

void enqueue(const Product& p, const Way& way, const Parts& parts) {
  ProductCall call = {};
  call.m = p.m, call.n = p.n, call.k = p.k;
  call.whole_k = parts.whole_k, call.parts = parts.count;
  call.a_row = p.a.row, call.a_column = p.a.column;
  call.b_row = p.b.row, call.b_column = p.b.column;
  call.c_row = p.c.row, call.c_column = p.c.column;
  call.d_row = p.added.row, call.d_column = p.added.column;
  call.alpha = factor_of(p.alpha), call.beta = factor_of(p.beta);
  call.vector_a = reads_packs(p.a, p.batch, 1, way.pack_in, stored_size(p.operands));
  call.vector_b = reads_packs(p.b, p.batch, 2, way.pack_in, stored_size(p.operands));
  call.vector_c =
      p.c.column == 1 && reads_packs(p.c, p.batch, 0, way.pack_out, stored_size(p.results));
  call.has_d = p.added.data != nullptr;
  const Kernel kernel{
      p.op,
      {{"A", p.operands}, {"T", sums_of(p)}, {"O", p.results}, {"D", p.out->dtype_id}},
      kText_matmul,
      macro_of(way.method, activation_of(p)),
      way.functions};
  const void* arguments[] = {&p.c.data, &p.a.data, &p.b.data, &p.added.data, &call, &p.batch};
  launch(device_of(*p.out), kernel, way.grid, const_cast<void**>(arguments));
}

int64_t blocks(int64_t n, int64_t each) { return (n + each - 1) / each; }
unsigned at_most(int64_t n, int64_t most) { return static_cast<unsigned>(std::min(n, most)); }

constexpr int64_t kMostBlocks = 65535;  // in y and z
constexpr int64_t kEnough = 128;        // blocks that occupy a device

Way way_of_tiles(const Product& p) {
  const int size = stored_size(p.operands);
  const int64_t large = blocks(p.m, 128) * blocks(p.n, 128) * p.batch.n;
  const int tile = size <= 4 && large >= kEnough ? 128 : 64;
  const int depth = tile == 128 || size > 8 ? 8 : 16;
  if (blocks(p.m, tile) > kMostBlocks)
    rb::fail(RB_E_NOTIMPL, "%s on 'cuda': at most %lld rows", p.op,
             static_cast<long long>(kMostBlocks * tile));
  return {tile == 128  ? kTiles128
          : depth == 8 ? kTiles64
                       : kTiles64Deep,
          tile * depth / kThreads, 4,
          Grid{static_cast<unsigned>(blocks(p.n, tile)), static_cast<unsigned>(blocks(p.m, tile)),
               at_most(p.batch.n, kMostBlocks), kThreads}};
}

Way way_of_columns(const Product& p) {
  const int size = stored_size(p.operands);
  const bool rows = p.a.row != 1 || p.a.column == 1;
  return {rows ? kRows : kColumns, 16 / size, 1,
          Grid{at_most(blocks(p.m, rows ? 8 : 32) * p.batch.n, 1 << 20), 1, 1, kThreads}};
}

// Tensor cores take 16-bit floats, and float32 where TF32 is allowed, whose pieces of 16 bytes lie
// together and are aligned.
bool fits_tensor_cores(const Product& p) {
  constexpr int64_t kWorth = 1024;  // results
  const bool wide = p.operands == RB_F32;
  if (p.operands != RB_F16 && p.operands != RB_BF16 && !wide) return false;
  const int size = stored_size(p.operands);
  return p.m * p.n >= kWorth && p.k >= 16 && blocks(p.m, 128) <= kMostBlocks &&
         reads_packs(p.a, p.batch, 1, 16 / size, size) &&
         reads_packs(p.b, p.batch, 2, 16 / size, size) &&
         (!wide || setting("cuda.matmul.allow_tf32", 0)) &&
         std::atoi(device_of(*p.out).architecture().c_str() + 3) >= 80;
}
Way way_of_tensor_cores(const Product& p) {
  return {kTensorCores + 2 * (p.a.column == 1) + (p.b.row == 1), 16 / stored_size(p.operands),
          16 / stored_size(p.results),
          Grid{static_cast<unsigned>(blocks(p.n, 128)), static_cast<unsigned>(blocks(p.m, 128)),
               at_most(p.batch.n, kMostBlocks), kThreads},
          kText_tensor_core};
}

Way way_of(const Product& p) {
  if (p.n == 1) return way_of_columns(p);
  return fits_tensor_cores(p) ? way_of_tensor_cores(p) : way_of_tiles(p);
}

// Few results of long sums: parts of k are a batch of their own, and summed by a second kernel.
int64_t parts_of(const Product& p, const Way& way) {
  constexpr int64_t kLong = 1024;  // elements of k that are worth a part
  const int64_t busy = int64_t{way.grid.x} * way.grid.y * way.grid.z;
  if (busy >= kEnough || p.k < 2 * kLong || p.batch.ndim == kLayoutDims) return 1;
  return std::min(blocks(kEnough, busy), p.k / kLong);
}

// The parts of `p` in the type that sums are kept in, one behind another.
Product part_of(const Product& p, const Temporary& sums, int64_t parts) {
  Product part = p;
  part.results = sums_of(p);
  part.k = blocks(blocks(p.k, parts), 16) * 16;
  part.c = {sums.data(), p.n, p.n == 1 ? 0 : 1};
  part.added = {};
  part.alpha = rb::int_value(1);
  part.activation = "";
  Layout& batch = part.batch;
  if (batch.n == 1) batch.ndim = 0;
  int64_t step = p.m * p.n;
  for (int d = batch.ndim - 1; d >= 0; --d) {
    batch.strides[0][d] = step;
    step *= batch.shape[d];
  }
  const int last = batch.ndim++;
  batch.shape[last] = parts;
  batch.strides[0][last] = step;
  batch.strides[1][last] = part.k * p.a.column;
  batch.strides[2][last] = part.k * p.b.row;
  batch.strides[3][last] = 0;
  batch.n *= parts;
  return part;
}

// The result out of `parts` of its sums, each batch by batch in rows without gaps.
void add_up(const Product& p, int dtype, void* sums, int64_t parts) {
  const int64_t size = p.batch.n * p.m * p.n;
  Product all = p;
  all.operands = dtype;
  all.k = parts;
  all.a = {sums, p.n, size};
  all.b = {};
  const int64_t count = std::min<int64_t>(blocks(size, kThreads), 1 << 20);
  enqueue(all, {kSums, 1, 1, Grid{static_cast<unsigned>(count), 1, 1, kThreads}}, {parts, 1});
}

// The sum over parts of k that were multiplied apart.
void multiply_in_parts(const Product& p, int64_t parts) {
  const int64_t size = p.batch.n * p.m * p.n;
  parts = blocks(p.k, blocks(blocks(p.k, parts), 16) * 16);  // none is empty
  const int64_t shape[] = {parts, size};
  const Temporary sums(*p.out, sums_of(p), 2, shape);
  const Product part = part_of(p, sums, parts);
  enqueue(part, way_of(part), {p.k, parts});
  add_up(p, part.results, sums.data(), parts);
}

// Whether the batch's last dimension goes on where the rows of `x` end, or is not there in it.
bool goes_on(const Product& p, const Matrix& x, int k) {
  const int64_t step = p.batch.strides[k][p.batch.ndim - 1];
  return p.m == 1 || step == x.row * p.m;
}

// Many products by one matrix are one of more rows.
void fold(Product& p) {
  Layout& batch = p.batch;
  while (batch.n > 1 && batch.strides[2][batch.ndim - 1] == 0 && goes_on(p, p.c, 0) &&
         goes_on(p, p.a, 1) && goes_on(p, p.added, 3)) {
    const int last = batch.ndim - 1;
    if (p.m == 1) {
      p.c.row = batch.strides[0][last];
      p.a.row = batch.strides[1][last];
      p.added.row = batch.strides[3][last];
    }
    p.m *= batch.shape[last];
    batch.n /= batch.shape[last];
    if (last > 0) {
      --batch.ndim;
    } else {
      batch.shape[0] = 1;
      for (auto& strides : batch.strides) strides[0] = 0;
    }
  }
}

}  // namespace

Product transposed(const Product& p) {
  Product t = p;
  std::swap(t.m, t.n);
  t.a = turned(p.b);
  t.b = turned(p.a);
  t.c = turned(p.c);
  t.added = turned(p.added);
  std::swap(t.batch.strides[1], t.batch.strides[2]);
  if (p.second >= 0) std::swap(t.operands, t.second);
  std::swap(t.scales[0], t.scales[1]);
  return t;
}

void activate(const Product& product, void* sums) {
  Product p = product;
  p.alpha = rb::int_value(1);
  p.added = {};
  add_up(p, p.results, sums, 1);
}

void multiply(Product p) {
  fold(p);
  if (p.m > 1 && p.n > 1 && multiply_by_library(p)) return;
  // A row is taken for a column, and columns of the result that lie together for rows.
  if (p.n != 1 && (p.m == 1 || (p.c.row == 1 && p.c.column != 1))) p = transposed(p);
  const Way way = way_of(p);
  const int64_t parts = parts_of(p, way);
  if (parts > 1) return multiply_in_parts(p, parts);
  enqueue(p, way, {p.k, 1});
}

}  // namespace rbcuda
