// Scaled-dot-product attention, its derivative and its dropout; kernels/attention.cuh says how, and
// kernels/attention_mma.cuh how on tensor cores.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "launch/jit.h"
#include "launch/temporary.h"
#include "launch/texts.h"
#include "launch/view.h"
#include "ops/attention_cudnn.h"
#include "ops/families.h"
#include "ops/settings.h"
#include "rabbet/philox.h"

namespace rbcuda {
namespace {

constexpr int kHeadDims = 6;
enum Which {
  kQuery,
  kKey,
  kValue,
  kMask,
  kOut,
  kSums,
  kGrad,
  kGradSums,
  kDQuery,
  kDKey,
  kDValue,
  kSeed,
  kNumber,
  kOperands
};

struct AttentionOperand {  // twin of the kernel's
  int64_t heads[kHeadDims], row, column, group;
};
struct Attention {  // twin of the kernel's
  int64_t length, keys, size, value_size, heads, group;
  int64_t part;  // keys that a block sees at most
  int64_t shape[kHeadDims];
  double scale, factor;  // of scores; of weights that are kept
  const void* seed;      // of dropout; null: nothing is dropped
  int32_t ndim, causal;
  uint32_t limit, unused;  // the largest word of a weight that is kept
  AttentionOperand at[kOperands];
};

int64_t ceil_of(int64_t n, int64_t by) { return (n + by - 1) / by; }

// A tensor of matrices (or of rows: `own` dimensions behind the heads), broadcast over the heads.
AttentionOperand operand_of(const Attention& p, const RbTensor& t, int own, int64_t group = 1) {
  AttentionOperand o = {};
  o.group = group;
  const auto stride = [&](int back) {
    const int d = t.ndim - back;
    return d < 0 || d >= t.ndim || t.shape[d] == 1 ? 0 : t.strides[d];
  };
  for (int d = 0; d < p.ndim; ++d) o.heads[d] = stride(own + p.ndim - d);
  o.row = stride(own);
  o.column = own > 1 ? stride(1) : 0;
  return o;
}

// Elements of 16 bits of a piece that tensor cores load at once.
constexpr int64_t kPiece = 8;

// Whether rows lie together, and begin where a piece can be loaded.
bool has_pieces(const RbTensor& t) {
  const int last = t.ndim - 1;
  bool fits = (t.strides[last] == 1 || t.shape[last] == 1) &&
              reinterpret_cast<uintptr_t>(t.data) % (2 * kPiece) == 0;
  for (int d = 0; d < last; ++d) fits = fits && (t.shape[d] == 1 || t.strides[d] % kPiece == 0);
  return fits;
}

// `t`, or a copy of it in `dtype`, and in pieces if they are asked for.
class Cast {
 public:
  Cast(const char* op, const RbTensor* t, int dtype, bool pieces = false) : tensor_(t) {
    if (!t || (t->dtype_id == dtype && (!pieces || has_pieces(*t)))) return;
    int64_t shape[RB_MAX_DIMS];
    std::copy(t->shape, t->shape + t->ndim, shape);
    const int last = t->ndim - 1;
    if (pieces) shape[last] = ceil_of(shape[last], kPiece) * kPiece;
    copy_ = Temporary(*t, dtype, t->ndim, shape);
    view_.emplace(copy_.tensor());
    if (pieces) view_->narrow(last, 0, t->shape[last]);
    copy(op, view_->tensor(), *t);
    tensor_ = &view_->tensor();
  }
  const RbTensor* tensor() const { return tensor_; }
  void* data() const { return tensor_ ? tensor_->data : nullptr; }

 private:
  const RbTensor* tensor_;
  Temporary copy_;
  std::optional<View> view_;
};

// Sizes from the operands and the result, whose leading dimensions are the heads.
Attention attention_of(const char* op, const RbTensor& q, const RbTensor& k, const RbTensor& v,
                       const RbTensor* mask, const RbTensor& out, bool grouped) {
  Attention p = {};
  p.length = q.shape[q.ndim - 2];
  p.keys = k.shape[k.ndim - 2];
  p.size = q.shape[q.ndim - 1];
  p.value_size = v.shape[v.ndim - 1];
  p.ndim = out.ndim - 2;
  if (p.ndim > kHeadDims)
    rb::fail(RB_E_NOTIMPL, "%s on 'cuda': at most %d dimensions", op, kHeadDims + 2);
  p.heads = 1;
  for (int d = 0; d < p.ndim; ++d) p.heads *= p.shape[d] = out.shape[d];
  p.group = grouped && p.heads ? p.shape[p.ndim - 1] / k.shape[k.ndim - 3] : 1;
  p.at[kQuery] = operand_of(p, q, 2);
  p.at[kKey] = operand_of(p, k, 2, p.group);
  p.at[kValue] = operand_of(p, v, 2, p.group);
  p.at[kOut] = operand_of(p, out, 2);
  if (mask) p.at[kMask] = operand_of(p, *mask, 2);
  return p;
}
// Weights are dropped with the probability `by`. Each seed counts its matrices.
void drop(Attention& p, double by, const RbTensor* given) {
  p.factor = by < 1 ? 1 / (1 - by) : 0;
  if (p.factor == 1) return;
  const RbTensor& seed = *given;  // core has checked that there is one
  p.seed = seed.data;
  p.limit = rb_dropout_limit(by);
  p.at[kSeed] = operand_of(p, seed, 0);
  p.at[kNumber].group = 1;
  int64_t step = 1;
  for (int d = p.ndim - 1; d >= 0; --d) {
    const int own = d - p.ndim + seed.ndim;
    if (own >= 0 && seed.shape[own] != 1) continue;
    p.at[kNumber].heads[d] = step;
    step *= p.shape[d];
  }
}
double scale_of(const rb::Args& a, int i, int64_t size) {
  return a.has(i) ? a.real(i) : 1.0 / std::sqrt(static_cast<double>(size));
}

// A kernel's macro has the number of tiles of columns of a block: the most, or fewer if they do.
struct Columns {
  int chunks;
  unsigned groups;
};
Columns columns_of(const char* op, int64_t columns, int tile, int most) {
  int chunks = 1;
  while (chunks < most && chunks * tile < columns) chunks *= 2;
  const int64_t groups = std::max<int64_t>(1, ceil_of(columns, chunks * tile));
  if (groups > 65535) rb::fail(RB_E_NOTIMPL, "%s on 'cuda': too many columns", op);
  return {chunks, static_cast<unsigned>(groups)};
}
Grid grid_of(const char* op, int64_t heads, int64_t rows, int tile, unsigned groups,
             unsigned threads = 256) {
  const int64_t tiles = ceil_of(rows, tile);
  if (tiles && heads > 0x7fffffff / tiles)
    rb::fail(RB_E_NOTIMPL, "%s on 'cuda': too many heads", op);
  return {static_cast<unsigned>(heads * tiles), groups, 1, threads};
}
std::string macro(const char* name, const Attention& p, int chunks) {
  return std::string(name) + "(" + std::to_string(chunks) + (p.seed ? ", 1)\n" : ", 0)\n");
}

// Tensor cores take heads of 16-bit floats up to this size.
bool fits_tensor_cores(int stored, const RbTensor& q, const RbTensor& k, const RbTensor& v) {
  constexpr int64_t kLargest = 128, kRows = 1 << 30;
  const auto fits = [](int64_t n, int64_t most) { return n > 0 && n <= most; };
  return (stored == RB_F16 || stored == RB_BF16) && fits(q.shape[q.ndim - 1], kLargest) &&
         fits(v.shape[v.ndim - 1], kLargest) && fits(q.shape[q.ndim - 2], kRows) &&
         fits(k.shape[k.ndim - 2], kRows) &&
         std::atoi(device_of(q).architecture().c_str() + 3) >= 80;
}
// Columns of its operands, padded.
int64_t padded(const Attention& p) { return ceil_of(std::max(p.size, p.value_size), 32) * 32; }
// Warps of a block, each of which has 16 rows: fewer where the blocks would not occupy a device.
int warps_of(int64_t heads, int64_t rows) {
  constexpr int64_t kEnough = 128;
  return heads * ceil_of(rows, 16 * 8) >= kEnough ? 8 : 4;
}
// The macro of a kernel of so many warps.
std::string macro(const char* name, const Attention& p, int warps, const RbTensor* mask) {
  const int64_t columns = padded(p);
  return std::string(name) + "(" + std::to_string(columns) + ", " + std::to_string(warps) +
         (mask ? ", 1" : ", 0") + (p.seed ? ", 1)\n" : ", 0)\n");
}
Types types_of(int stored, const RbTensor* mask, int sums, int results) {
  return {{"A", stored},
          {"T", computed(stored)},
          {"M", mask ? mask->dtype_id : stored},
          {"S", sums},
          {"O", results}};
}

// One query of each of a group's heads, as in decoding: they are rows of one matrix.
void join_group(Attention& p) {
  if (p.length != 1 || p.group == 1 || p.causal || p.seed) return;
  const int last = p.ndim - 1;
  for (const Which which : {kQuery, kMask, kOut, kSums}) {
    AttentionOperand& o = p.at[which];
    o.row = o.heads[last];
    o.heads[last] *= p.group;
  }
  p.at[kKey].group = p.at[kValue].group = 1;
  p.shape[last] /= p.group;
  p.heads /= p.group;
  p.length = p.group;
  p.group = 1;
}

// How many parts the keys are split into, where there are too few blocks to occupy a device.
int64_t split_keys(Attention& p, int64_t blocks) {
  constexpr int64_t kEnough = 256, kLeast = 256, kTile = 64, kMost = 256;  // blocks, then keys
  p.part = p.keys;
  if (blocks * 2 > kEnough || p.keys < 2 * kLeast) return 1;
  const int64_t parts = std::min({ceil_of(kEnough, blocks), p.keys / kLeast, kMost});
  p.part = ceil_of(ceil_of(p.keys, parts), kTile) * kTile;
  return ceil_of(p.keys, p.part);
}
// Results of parts: rows without gaps, head by head.
AttentionOperand rows_of(const Attention& p, int64_t columns) {
  AttentionOperand o = {};
  o.group = 1;
  o.row = columns;
  o.column = 1;
  int64_t step = p.length * columns;
  for (int d = p.ndim - 1; d >= 0; --d) {
    o.heads[d] = step;
    step *= p.shape[d];
  }
  return o;
}

// A call of attention: the kernel, and another one that combines what it leaves for parts of keys.
struct Forward {
  const char* op;
  int stored;
  const RbTensor *mask, &out, &sums;
  void *q, *k, *v;
  Attention p;

  void run(const std::string& behind, const char* functions, Grid grid) const {
    Attention call = p;
    const int64_t parts = split_keys(call, int64_t{grid.x} * grid.y);
    grid.z = static_cast<unsigned>(parts);
    if (parts == 1) return launch_kernel(behind, functions, grid, call, out.data, sums.data);
    const int dtype = computed(stored);
    const int64_t rows = parts * p.heads * p.length, size = rows * p.value_size;
    const Temporary part_out(out, dtype, 1, &size), part_sums(out, dtype, 1, &rows);
    call.at[kOut] = rows_of(p, p.value_size);
    call.at[kSums] = rows_of(p, 1);
    launch_kernel(behind, functions, grid, call, part_out.data(), part_sums.data());
    combine(part_out.data(), part_sums.data(), parts);
  }

 private:
  void launch_kernel(const std::string& behind, const char* functions, Grid grid, Attention call,
                     void* to, void* logs) const {
    Types types = types_of(stored, mask, sums.dtype_id, to == out.data ? stored : computed(stored));
    void *query = q, *key = k, *value = v, *masks = mask ? mask->data : nullptr;
    void* arguments[] = {&to, &logs, &query, &key, &value, &masks, &call};
    launch(device_of(out), Kernel{op, types, kText_attention, behind, functions}, grid, arguments);
  }
  void combine(void* part_out, void* part_sums, int64_t parts) const {
    Attention call = p;
    void *to = out.data, *logs = sums.data;
    void* arguments[] = {&to, &logs, &part_out, &part_sums, &call, &parts};
    const int64_t blocks = std::min<int64_t>(ceil_of(p.heads * p.length, 8), 1 << 20);
    launch(device_of(out),
           Kernel{op, types_of(stored, nullptr, sums.dtype_id, stored), kText_attention,
                  "RB_ATTENTION_COMBINE\n"},
           Grid{static_cast<unsigned>(blocks), 1, 1, 256}, arguments);
  }
};

// What rabbet.backends.cuda and sdpa_kernel leave to choose from. PyTorch's flash and
// memory-efficient kernels are ours here, its math is the decomposition.
struct Switches {
  bool ours = setting("cuda.flash_sdp", 1) || setting("cuda.mem_efficient_sdp", 1);
  bool steps = setting("cuda.math_sdp", 1);
  bool library = setting("cuda.cudnn_sdp", 1);
  bool ours_first = ours && setting("cuda.sdp_ours_first", 0);

  // Where our kernels are switched off, and cuDNN does not take the call.
  void refuse_ours(const char* op) const {
    if (steps) rb::fail(RB_E_NOTIMPL, "%s on 'cuda': step by step, as its switches say", op);
    if (!library)
      rb::fail(
          RB_E_STATE,
          "%s on 'cuda': No viable backend for scaled_dot_product_attention was found. This is "
          "likely due to turning off both the math kernel and the fused kernels.",
          op);
    rb::fail(RB_E_STATE, "%s on 'cuda': No available kernel. Aborting execution.", op);
  }
};

void attention_kernel(const rb::Args& a) {
  const char* op = a.op_name();
  const RbTensor &out = a.ret(0), &sums = a.ret(1);
  const Switches on;
  if (on.library && !on.ours_first && sums.numel && attend_by_library(a, !on.ours)) return;
  if (!on.ours) on.refuse_ours(op);
  if (sums.numel == 0) return;
  const int stored = out.dtype_id, tile = stored == RB_F64 ? 32 : 64;
  const bool fits = fits_tensor_cores(stored, a.tensor(0), a.tensor(1), a.tensor(2));
  const Cast q(op, &a.tensor(0), stored, fits), k(op, &a.tensor(1), stored, fits),
      v(op, &a.tensor(2), stored, fits);
  const RbTensor* mask = a.optional_tensor(3);
  Attention p = attention_of(op, *q.tensor(), *k.tensor(), *v.tensor(), mask, out, a.boolean(6));
  p.causal = a.boolean(4);
  p.scale = scale_of(a, 5, p.size);
  p.at[kSums] = operand_of(p, sums, 1);
  drop(p, a.real(7), a.optional_tensor(8));
  join_group(p);
  const Forward forward{op, stored, mask, out, sums, q.data(), k.data(), v.data(), p};
  if (fits) {
    const int warps = warps_of(p.heads, p.length);
    return forward.run(macro("RB_ATTENTION_MMA", p, warps, mask), kText_attention_mma,
                       grid_of(op, p.heads, p.length, 16 * warps, 1, 32 * warps));
  }
  const Columns columns = columns_of(op, p.value_size, tile, tile == 64 ? 4 : 8);
  forward.run(macro("RB_ATTENTION", p, columns.chunks), "",
              grid_of(op, p.heads, p.length, tile, columns.groups));
}

// The arguments of attention_backward in one dtype.
struct Backward {
  explicit Backward(const rb::Args& args)
      : a(args),
        op(a.op_name()),
        stored(a.ret(0).dtype_id),
        tile(stored == RB_F64 ? 32 : 64),
        fits(fits_tensor_cores(stored, a.tensor(2), a.tensor(3), a.tensor(4))),
        g(op, &a.tensor(0), stored, fits),
        q(op, &a.tensor(2), stored, fits),
        k(op, &a.tensor(3), stored, fits),
        v(op, &a.tensor(4), stored, fits),
        out(op, &a.tensor(6), stored),
        grad_sums(op, a.optional_tensor(1), a.tensor(7).dtype_id),
        sums(a.tensor(7)),
        mask(a.optional_tensor(5)),
        p(attention_of(op, *q.tensor(), *k.tensor(), *v.tensor(), mask, *out.tensor(),
                       a.boolean(10))) {
    p.causal = a.boolean(8);
    p.scale = scale_of(a, 9, p.size);
    drop(p, a.real(11), a.optional_tensor(12));
    p.at[kSums] = operand_of(p, sums, 1);
    p.at[kGrad] = operand_of(p, *g.tensor(), 2);
    if (grad_sums.tensor()) p.at[kGradSums] = operand_of(p, *grad_sums.tensor(), 1);
    p.at[kDQuery] = operand_of(p, a.ret(0), 2);
    p.at[kDKey] = operand_of(p, a.ret(1), 2, p.group);
    p.at[kDValue] = operand_of(p, a.ret(2), 2, p.group);
  }
  void run(std::string behind, Grid grid, void** arguments, const char* functions = "") const {
    if (grid.x)
      launch(device_of(sums),
             Kernel{op, types_of(stored, mask, sums.dtype_id, stored), kText_attention,
                    std::move(behind), functions},
             grid, arguments);
  }
  // On tensor cores: `rows` of each head are those of the result, shared by `warps` at most.
  void run_halves(const char* name, int64_t heads, int64_t rows, int most, void** arguments) const {
    const int warps = std::min(warps_of(heads, rows), most);
    run(macro(name, p, warps, mask), grid_of(op, heads, rows, 16 * warps, 1, 32 * warps), arguments,
        kText_attention_mma);
  }
  void run_tiles(const char* name, int64_t heads, int64_t rows, int64_t columns,
                 void** arguments) const {
    const Columns of = columns_of(op, columns, tile, tile == 64 ? 2 : 4);
    run(macro(name, p, of.chunks), grid_of(op, heads, rows, tile, of.groups), arguments);
  }

  const rb::Args& a;
  const char* op;
  int stored, tile;
  bool fits;  // tensor cores
  Cast g, q, k, v, out, grad_sums;
  const RbTensor& sums;
  const RbTensor* mask;
  Attention p;
};

void attention_backward_kernel(const rb::Args& a) {
  const Switches on;
  if (on.library && !on.ours_first && attend_backward_by_library(a, !on.ours)) return;
  if (!on.ours && on.steps) on.refuse_ours(a.op_name());
  Backward b(a);
  Attention& p = b.p;
  const int64_t size = 2 * p.heads * p.length;
  const Temporary rows(b.sums, computed(b.stored), 1, &size);
  void *per_row = rows.data(), *g = b.g.data(), *out = b.out.data(), *sums = b.sums.data,
       *grad_sums = b.grad_sums.data(), *q = b.q.data(), *k = b.k.data(), *v = b.v.data(),
       *mask = b.mask ? b.mask->data : nullptr, *dq = a.ret(0).data, *dk = a.ret(1).data,
       *dv = a.ret(2).data;
  void* of_rows[] = {&per_row, &g, &out, &sums, &grad_sums, &p};
  const int64_t blocks = std::min<int64_t>(ceil_of(size / 2, 8), 1 << 20);
  b.run("RB_ATTENTION_ROWS\n", Grid{static_cast<unsigned>(blocks), 1, 1, 256}, of_rows);
  void* of_queries[] = {&dq, &g, &q, &k, &v, &mask, &per_row, &p};
  void* of_keys[] = {&dk, &dv, &g, &q, &k, &v, &mask, &per_row, &p};
  if (b.fits) {
    b.run_halves("RB_ATTENTION_MMA_QUERIES", p.heads, p.length, 8, of_queries);
    const int most = padded(p) > 96 ? 4 : 8;  // values of more do not fit into shared memory
    return b.run_halves("RB_ATTENTION_MMA_KEYS", p.heads / p.group, p.keys, most, of_keys);
  }
  b.run_tiles("RB_ATTENTION_QUERIES", p.heads, p.length, p.size, of_queries);
  b.run_tiles("RB_ATTENTION_KEYS", p.heads / p.group, p.keys, std::max(p.size, p.value_size),
              of_keys);
}

void attention_dropout_kernel(const rb::Args& a) {
  const RbTensor &weights = a.tensor(0), &out = a.ret();
  if (out.numel == 0) return;
  Attention p = {};
  p.ndim = out.ndim - 2;
  if (p.ndim > kHeadDims)
    rb::fail(RB_E_NOTIMPL, "%s on 'cuda': at most %d dimensions", a.op_name(), kHeadDims + 2);
  p.length = out.shape[p.ndim];
  p.keys = out.shape[p.ndim + 1];
  p.heads = 1;
  for (int d = 0; d < p.ndim; ++d) p.heads *= p.shape[d] = out.shape[d];
  p.at[kOut] = operand_of(p, out, 2);
  p.at[kQuery] = operand_of(p, weights, 2);
  drop(p, a.real(2), &a.tensor(1));
  if (!p.seed) return copy(a.op_name(), out, weights);
  void *to = out.data, *from = weights.data;
  void* arguments[] = {&to, &from, &p};
  const int64_t counters = p.heads * ceil_of(p.length, 16) * ceil_of(p.keys, 16) * 64;
  launch(device_of(out),
         Kernel{a.op_name(), types_of(out.dtype_id, nullptr, out.dtype_id, out.dtype_id),
                kText_attention, "RB_ATTENTION_DROPOUT\n"},
         counters, arguments);
}

const rb::KernelSpec kKernels[] = {
    {"attention", rb::wrap<attention_kernel>, 0, kFloat},
    {"attention_backward", rb::wrap<attention_backward_kernel>, 0, kFloat},
    {"attention_dropout", rb::wrap<attention_dropout_kernel>, 0, kFloat},
};

}  // namespace

int32_t add_attention(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcuda
