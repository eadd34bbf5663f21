// A stand-in for libcublasLt: looks at every description as the library's documentation states it,
// and multiplies on the host when the stream comes to it. Declarations are those of cublasLt.h.
//
// Not here: epilogues with an auxiliary matrix or gradients, orders of tiles, planar complex.
#include <atomic>
#include <iterator>
#include <string>

#include "planted.h"
#include "product.h"
#include "work.h"

using namespace cusim;

namespace {

enum Result { kFine = 0, kNotInitialized = 1, kBadValue = 7, kExecution = 13, kUnsupported = 15 };
enum Epilogue { kDefault = 1, kRelu = 2, kBias = 4, kGelu = 32 };

struct Preference {
  uint64_t workspace = 0;
  uint32_t alignments[4] = {256, 256, 256, 256};  // of a, b, c and d
};
struct Heuristic {  // cublasLtMatmulHeuristicResult_t
  uint64_t algorithm[8];
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};

struct Field {
  int attribute;
  void* at;
  size_t size;
};
template <size_t N>
int set(const Field (&fields)[N], int attribute, const void* from, size_t size) {
  for (const Field& f : fields) {
    if (f.attribute != attribute) continue;
    if (f.size != size || !from) return kBadValue;
    std::memcpy(f.at, from, size);
    return kFine;
  }
  return kUnsupported;
}
template <size_t N>
int get(const Field (&fields)[N], int attribute, void* to, size_t size, size_t* written) {
  for (const Field& f : fields) {
    if (f.attribute != attribute) continue;
    if (written) *written = f.size;
    if (size == 0) return kFine;
    if (f.size != size || !to) return kBadValue;
    std::memcpy(to, f.at, size);
    return kFine;
  }
  return kUnsupported;
}
#define CUSIM_FIELD(number, member) {number, &(member), sizeof(member)}
#define CUSIM_OPERATION(d)                                                 \
  {CUSIM_FIELD(0, (d).compute),      CUSIM_FIELD(1, (d).scale),            \
   CUSIM_FIELD(2, (d).pointer_mode), CUSIM_FIELD(3, (d).transpose_a),      \
   CUSIM_FIELD(4, (d).transpose_b),  CUSIM_FIELD(5, (d).transpose_c),      \
   CUSIM_FIELD(7, (d).epilogue),     CUSIM_FIELD(8, (d).bias),             \
   CUSIM_FIELD(10, (d).bias_stride), CUSIM_FIELD(15, (d).multiprocessors), \
   CUSIM_FIELD(17, (d).scales[0]),   CUSIM_FIELD(18, (d).scales[1]),       \
   CUSIM_FIELD(19, (d).scales[2]),   CUSIM_FIELD(20, (d).scales[3]),       \
   CUSIM_FIELD(21, (d).largest),     CUSIM_FIELD(25, (d).fast_sum),        \
   CUSIM_FIELD(26, (d).bias_type)}
#define CUSIM_LAYOUT(d)                                                               \
  {CUSIM_FIELD(0, (d).type),  CUSIM_FIELD(1, (d).order), CUSIM_FIELD(2, (d).rows),    \
   CUSIM_FIELD(3, (d).cols),  CUSIM_FIELD(4, (d).ld),    CUSIM_FIELD(5, (d).batches), \
   CUSIM_FIELD(6, (d).stride)}

std::atomic<long> objects{0};  // descriptions and layouts

// Where CUSIM_CUBLASLT_FAIL plants a status.
int fails(const std::string& where) { return planted("CUSIM_CUBLASLT_FAIL", where); }
void say(const std::string& line) { log_line("CUSIM_CUBLASLT_LOG", line); }

bool is_fp8(int type) { return type == kE4M3 || type == kE5M2; }
bool is_half(int type) { return type == kF16 || type == kBF16; }

// Which types go together: the table under cublasLtMatmul().
bool known_types(const Operation& o, int a, int b, int c, int d) {
  const int compute = o.compute & ~1;  // without "pedantic"
  switch (o.compute == 77 || o.compute == 75 ? 76 : compute) {
    case 64:
      return o.scale == kF16 && a == kF16 && b == kF16 && c == kF16 && d == kF16;
    case 68:
      if (o.scale == kC32) return a == kC32 && b == kC32 && c == kC32 && d == kC32;
      if (o.scale != kF32) return false;
      if (is_fp8(a) && is_fp8(b))
        return !(a == kE5M2 && b == kE5M2) && (is_half(d) || d == kF32 || is_fp8(d)) &&
               (is_fp8(d) ? is_half(c) : c == d);
      if (a != b || c != d) return false;
      return a == kF32 ? c == kF32 : is_half(a) ? c == a || c == kF32 : a == kI8 && c == kF32;
    case 74:
    case 76:
      if (o.scale == kC32) return a == kC32 && b == kC32 && c == kC32 && d == kC32;
      return o.scale == kF32 && a == kF32 && b == kF32 && c == kF32 && d == kF32;
    case 70:
      if (o.scale == kC64) return a == kC64 && b == kC64 && c == kC64 && d == kC64;
      return o.scale == kF64 && a == kF64 && b == kF64 && c == kF64 && d == kF64;
    case 72:
      if (a != kI8 || b != kI8 || c != d) return false;
      return o.scale == kI32 ? c == kI32 : o.scale == kF32 && c == kI8;
    default:
      return false;
  }
}

bool fits(const Matrix& x) {
  return size_of(x.type) && (x.order == 0 || x.order == 1) && x.rows && x.cols && x.batches >= 1 &&
         x.ld >= static_cast<int64_t>(x.order ? x.cols : x.rows) && x.stride >= 0;
}

struct Sizes {
  int64_t m, n, k;
};
Sizes sizes_of(const Operation& o, const Matrix& a, const Matrix& d) {
  return {static_cast<int64_t>(d.rows), static_cast<int64_t>(d.cols),
          static_cast<int64_t>(o.transpose_a ? a.rows : a.cols)};
}

// What can be known without the data.
int check(const Operation& o, const Matrix& a, const Matrix& b, const Matrix& c, const Matrix& d) {
  for (const Matrix* x : {&a, &b, &c, &d})
    if (!fits(*x)) return kBadValue;
  const Sizes s = sizes_of(o, a, d);
  const int64_t m = o.transpose_a ? a.cols : a.rows, n = o.transpose_b ? b.rows : b.cols;
  const int64_t k = o.transpose_b ? b.cols : b.rows;
  if (m != s.m || n != s.n || k != s.k || c.rows != d.rows || c.cols != d.cols) return kBadValue;
  if (a.batches != d.batches || b.batches != d.batches || c.batches != d.batches) return kBadValue;
  if (d.batches > 1 && d.stride < d.ld) return kBadValue;  // results on one another
  if (o.transpose_c) return kUnsupported;
  if (!known_types(o, a.type, b.type, c.type, d.type)) return kUnsupported;
  const int activation = o.epilogue & ~kBias;
  if (o.epilogue != kDefault && activation != 0 && activation != kRelu && activation != kGelu)
    return kUnsupported;
  if (o.epilogue != kDefault && (is_complex(d.type) || d.type == kF64 || o.compute >= 72) &&
      o.compute < 74)
    return kUnsupported;
  if (o.epilogue != kDefault && (o.epilogue & kBias) && !o.bias) return kBadValue;
  // The manual does not say it; a GPU finds a misaligned address.
  if (o.epilogue != kDefault && (o.epilogue & kBias) && reinterpret_cast<size_t>(o.bias) % 16)
    return kBadValue;
  const bool small = is_fp8(a.type) || a.type == kI8;
  if (!small) return kFine;
  // One byte: the first is transposed and the second is not; multiples of 4 or of 16.
  const int64_t unit = is_fp8(a.type) ? 16 : 4;
  if (!o.transpose_a || o.transpose_b || a.order || b.order) return kUnsupported;
  if (s.m % unit || s.k % unit || a.ld % unit || b.ld % unit || (unit == 16 && s.n % unit))
    return kUnsupported;
  return kFine;
}

// Few results of long sums want room for partial sums.
size_t workspace_of(const Sizes& s) {
  return s.k >= 1024 && s.m * s.n <= 64 * 64 ? static_cast<size_t>(s.m * s.n) * 4 * 4 : 0;
}
uint64_t mark_of(const Sizes& s, const Operation& o) {
  return (static_cast<uint64_t>(s.m) * 31 + static_cast<uint64_t>(s.n)) * 31 +
         static_cast<uint64_t>(s.k) * 7 + o.epilogue * 1000003ull + 1;
}

// Ways to compute a product, best first. Packs are read and written at once: their bytes divide the
// address of every line of every batch, or the device finds a misaligned address.
struct Way {
  uint64_t pack;  // bytes; 0: an element
  bool by_parts;  // partial sums in the workspace, where it is worth it
};
constexpr Way kWays[] = {{16, true}, {0, true}, {0, false}};

size_t pack_of(const Way& way, const Matrix& x) {
  return way.pack ? static_cast<size_t>(way.pack) : static_cast<size_t>(size_of(x.type));
}
size_t workspace_of(const Way& way, const Sizes& s) { return way.by_parts ? workspace_of(s) : 0; }
// Whether it can take the matrix, of which `aligned` is told of addresses.
bool takes(const Way& way, const Matrix& x, uint32_t aligned) {
  const auto size = static_cast<size_t>(size_of(x.type)), pack = pack_of(way, x);
  return aligned % pack == 0 && static_cast<size_t>(x.ld) * size % pack == 0;
}

CusimRegion region_of(const void* p, const Matrix& x, bool written, size_t aligned) {
  const size_t size = static_cast<size_t>(size_of(x.type));
  const uint64_t line = x.order ? x.cols : x.rows, lines = x.order ? x.rows : x.cols;
  return {p,
          line * size,
          static_cast<size_t>(x.ld) * size,
          lines,
          static_cast<size_t>(x.stride) * size,
          static_cast<size_t>(x.batches),
          written,
          aligned};
}

bool aligned(const void* p, int type) {
  return reinterpret_cast<uintptr_t>(p) % static_cast<size_t>(size_of(type)) == 0;
}

}  // namespace

extern "C" {

size_t cublasLtGetVersion() { return 130100; }
size_t cublasLtGetCudartVersion() { return 13000; }
const char* cublasLtGetStatusName(int status) {
  return status == kFine             ? "CUBLAS_STATUS_SUCCESS"
         : status == kNotInitialized ? "CUBLAS_STATUS_NOT_INITIALIZED"
         : status == kBadValue       ? "CUBLAS_STATUS_INVALID_VALUE"
         : status == kExecution      ? "CUBLAS_STATUS_EXECUTION_FAILED"
         : status == kUnsupported    ? "CUBLAS_STATUS_NOT_SUPPORTED"
                                     : "unknown";
}
const char* cublasLtGetStatusString(int status) { return cublasLtGetStatusName(status); }

/// How many descriptions and layouts there are.
long cusim_lt_objects() { return objects.load(); }

int cublasLtCreate(void** handle) {
  if (const int status = fails("create")) return status;
  *handle = new int(0);
  return kFine;
}
int cublasLtDestroy(void* handle) {
  delete static_cast<int*>(handle);
  return kFine;
}

int cublasLtMatmulDescCreate(void** description, int compute, int scale) {
  auto* made = new Operation;
  ++objects;
  made->compute = compute;
  made->scale = scale;
  *description = made;
  return kFine;
}
int cublasLtMatmulDescDestroy(void* description) {
  delete static_cast<Operation*>(description);
  --objects;
  return kFine;
}
int cublasLtMatmulDescSetAttribute(void* description, int attribute, const void* from,
                                   size_t size) {
  if (!description) return kBadValue;
  auto& d = *static_cast<Operation*>(description);
  const Field fields[] = CUSIM_OPERATION(d);
  return set(fields, attribute, from, size);
}
int cublasLtMatmulDescGetAttribute(void* description, int attribute, void* to, size_t size,
                                   size_t* written) {
  if (!description) return kBadValue;
  auto& d = *static_cast<Operation*>(description);
  const Field fields[] = CUSIM_OPERATION(d);
  return get(fields, attribute, to, size, written);
}

int cublasLtMatrixLayoutCreate(void** layout, int type, uint64_t rows, uint64_t cols, int64_t ld) {
  auto* made = new Matrix;
  ++objects;
  made->type = type;
  made->rows = rows;
  made->cols = cols;
  made->ld = ld;
  *layout = made;
  return kFine;
}
int cublasLtMatrixLayoutDestroy(void* layout) {
  delete static_cast<Matrix*>(layout);
  --objects;
  return kFine;
}
int cublasLtMatrixLayoutSetAttribute(void* layout, int attribute, const void* from, size_t size) {
  if (!layout) return kBadValue;
  auto& d = *static_cast<Matrix*>(layout);
  const Field fields[] = CUSIM_LAYOUT(d);
  return set(fields, attribute, from, size);
}
int cublasLtMatrixLayoutGetAttribute(void* layout, int attribute, void* to, size_t size,
                                     size_t* written) {
  if (!layout) return kBadValue;
  auto& d = *static_cast<Matrix*>(layout);
  const Field fields[] = CUSIM_LAYOUT(d);
  return get(fields, attribute, to, size, written);
}

int cublasLtMatmulPreferenceCreate(void** preference) {
  *preference = new Preference;
  return kFine;
}
int cublasLtMatmulPreferenceDestroy(void* preference) {
  delete static_cast<Preference*>(preference);
  return kFine;
}
int cublasLtMatmulPreferenceSetAttribute(void* preference, int attribute, const void* from,
                                         size_t size) {
  if (!preference || !from) return kBadValue;
  auto& p = *static_cast<Preference*>(preference);
  const Field fields[] = {CUSIM_FIELD(1, p.workspace), CUSIM_FIELD(5, p.alignments[0]),
                          CUSIM_FIELD(6, p.alignments[1]), CUSIM_FIELD(7, p.alignments[2]),
                          CUSIM_FIELD(8, p.alignments[3])};
  const bool ignored = attribute == 0 || attribute == 3 || attribute == 9;
  if (ignored) return size == 4 ? kFine : kBadValue;
  return set(fields, attribute, from, size) ? kBadValue : kFine;
}

int cublasLtMatmulAlgoGetHeuristic(void* handle, void* operation, void* a, void* b, void* c,
                                   void* d, void* preference, int wanted, Heuristic* results,
                                   int* count) {
  if (!handle) return kNotInitialized;
  if (!operation || !a || !b || !c || !d || !preference || wanted < 1 || !results || !count)
    return kBadValue;
  *count = 0;
  const auto& o = *static_cast<Operation*>(operation);
  const auto& prefer = *static_cast<Preference*>(preference);
  const Matrix* const all[] = {static_cast<Matrix*>(a), static_cast<Matrix*>(b),
                               static_cast<Matrix*>(c), static_cast<Matrix*>(d)};
  if (const int status = fails("choose")) return status;
  const int status = check(o, *all[0], *all[1], *all[2], *all[3]);
  if (status) return status;
  const Sizes s = sizes_of(o, *all[0], *all[3]);
  for (size_t i = 0; i < std::size(kWays) && *count < wanted; ++i) {
    const size_t room = workspace_of(kWays[i], s);
    bool fits = room <= prefer.workspace;
    for (int k = 0; k < 4; ++k) fits = fits && takes(kWays[i], *all[k], prefer.alignments[k]);
    if (!fits) continue;
    Heuristic& result = results[(*count)++];
    result = {};
    result.algorithm[0] = mark_of(s, o);
    result.algorithm[1] = result.workspace = room;
    result.algorithm[2] = i;
    result.waves = 1;
  }
  say("choose " + std::to_string(*count));
  return kFine;
}

int cublasLtMatmul(void* handle, void* operation, const void* alpha, const void* a, void* a_layout,
                   const void* b, void* b_layout, const void* beta, const void* c, void* c_layout,
                   void* d, void* d_layout, const uint64_t* algorithm, void* workspace,
                   size_t workspace_size, void* stream) {
  if (!handle) return kNotInitialized;
  if (!cusim_meet()) return kExecution;
  if (!operation || !alpha || !beta || !a_layout || !b_layout || !c_layout || !d_layout || !a ||
      !b || !d)
    return kBadValue;
  auto product = std::make_unique<Product>();
  Product& p = *product;
  p.operation = *static_cast<Operation*>(operation);
  p.layouts[0] = *static_cast<Matrix*>(a_layout);
  p.layouts[1] = *static_cast<Matrix*>(b_layout);
  p.layouts[2] = *static_cast<Matrix*>(c_layout);
  p.layouts[3] = *static_cast<Matrix*>(d_layout);
  p.a = a, p.b = b, p.c = c, p.d = d;
  const Operation& o = p.operation;
  const Matrix& to = p.layouts[3];
  if (int status = check(o, p.layouts[0], p.layouts[1], p.layouts[2], to)) return status;
  if (!aligned(a, p.layouts[0].type) || !aligned(b, p.layouts[1].type) || !aligned(d, to.type))
    return kBadValue;
  const Sizes s = sizes_of(o, p.layouts[0], to);
  size_t room = workspace_of(s), way = 1;
  if (algorithm) {
    if (algorithm[0] != mark_of(s, o)) return kBadValue;  // of another product
    room = algorithm[1], way = algorithm[2];
    if (workspace_size < room) return kBadValue;
  } else if (workspace_size < room) {
    room = 0;
  }
  if (o.pointer_mode == 0) {
    p.set_factors(alpha, beta);
  } else if (o.pointer_mode == 1) {
    p.alpha_at = alpha, p.beta_at = beta;
  } else {
    return kUnsupported;
  }
  const bool adds = o.pointer_mode == 1 || p.adds();
  if (adds && !c) return kBadValue;
  if (c == d && (p.layouts[2].ld != to.ld || p.layouts[2].order != to.order)) return kBadValue;
  const auto region = [&](const void* data, const Matrix& x, bool written) {
    return region_of(data, x, written, pack_of(kWays[way], x));
  };
  std::vector<CusimRegion> regions = {region(a, p.layouts[0], false),
                                      region(b, p.layouts[1], false), region(d, to, true)};
  if (adds) regions.insert(regions.begin() + 2, region(c, p.layouts[2], false));
  if (room) {
    p.workspace = workspace, p.workspace_size = room;
    regions.push_back({workspace, room, room, 1, 0, 1, true});
  }
  if (o.epilogue != kDefault && (o.epilogue & kBias)) {
    const size_t size = static_cast<size_t>(size_of(p.bias_type()));
    regions.push_back({o.bias, to.rows * size, to.rows * size, 1,
                       static_cast<size_t>(o.bias_stride) * size, static_cast<size_t>(to.batches),
                       false});
  }
  for (const void* scale : o.scales)
    if (scale) regions.push_back({scale, 4, 4, 1, 0, 1, false});
  for (const std::string& where : {std::string("multiply"), "multiply" + std::to_string(way)})
    if (const int status = fails(where)) return say("failed " + std::to_string(way)), status;
  if (const int status = fails("spoil")) return cusim_spoil_capture(stream), status;
  say("multiply " + std::to_string(way));
  const int status = cusim_work(
      stream, "cublasLtMatmul", regions.data(), static_cast<int>(regions.size()),
      [](void* data) { static_cast<Product*>(data)->run(); },
      [](void* data) { delete static_cast<Product*>(data); }, product.release());
  return status ? kExecution : kFine;
}
}
