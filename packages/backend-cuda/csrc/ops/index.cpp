// Elements at indices: gather, scatter, index_select, index_add, embedding, advanced indexing.
// kernels/index.cuh moves them; an index out of range is reported (device/report.h).
#include <algorithm>

#include "device/report.h"
#include "launch/jit.h"
#include "launch/temporary.h"
#include "launch/texts.h"
#include "launch/view.h"
#include "ops/families.h"
#include "ops/radix.h"
#include "ops/settings.h"

namespace rbcuda {
namespace {

constexpr int64_t kNoIndex = INT64_MAX;  // `skipped`: no index is

// Twin of Reach in index.cuh.
struct Reach {
  int64_t size, step;
  int32_t wraps, reserved;
  Finder finder;
};
// Indices along dimension `dim` of `x`, whose dimensions are those of a tensor with at least one.
Reach reach_of(const RbTensor& x, const View& view, int dim, bool wraps, const char* op) {
  const int64_t size = view.size(dim);
  return {size, view.stride(dim), wraps, 0, finder(device_of(x), op, kBadIndex, size, dim)};
}
// For offsets that were found before.
Reach no_reach(const RbTensor& x, const char* op) {
  return {-1, 1, 0, 0, finder(device_of(x), op, kBadIndex)};
}

View at_least_1d(const RbTensor& t) {
  View view(t);
  if (view.ndim() == 0) view.add(1, 1);
  return view;
}
// `t` in the shape of `positions`, with nothing to move by along `dim`.
View frozen(const View& t, const View& positions, int dim) {
  View view = scalar_view(t.tensor());
  for (int d = 0; d < positions.ndim(); ++d)
    view.add(positions.size(d), d == dim ? 0 : t.stride(d));
  return view;
}
// A 1-d index at the positions of others, along `dim`.
View along(const RbTensor& index, const View& positions, int dim) {
  View view = scalar_view(index);
  for (int d = 0; d < positions.ndim(); ++d)
    view.add(positions.size(d), d == dim && index.ndim ? index.strides[0] : 0);
  return view;
}

// The dtype that moves elements of this size.
int moved(const RbTensor& t) { return unit_dtype(stored_size(t.dtype_id)); }

// The text of a loop over positions, in 32 bits where they fit.
#define RB_POSITIONS(fits, name, ...) \
  (fits ? name "(Layout32, UInt32" __VA_ARGS__ ")\n" : name "(Layout, Int64" __VA_ARGS__ ")\n")

// `out` at each position of `index` is `from` there, moved by the index.
void take(const char* op, const RbTensor& out, const RbTensor& index, const RbTensor& from,
          Reach reach) {
  if (out.numel == 0) return;
  Layout layout = layout_of(op, {&out, &index, &from});
  Layout32 narrow;
  const bool fits = fits_32(layout, &narrow);
  void* positions = fits ? static_cast<void*>(&narrow) : &layout;
  const Kernel kernel{op,
                      {{"E", moved(out)}, {"I", index.dtype_id}, {"K", RB_U32}},
                      kText_index,
                      RB_POSITIONS(fits, "RB_TAKE")};
  void *to = out.data, *at = index.data, *x = from.data;
  void* arguments[] = {&to, &at, &x, positions, &reach};
  launch(device_of(out), kernel, layout.n, arguments);
}

// The largest unit of 1, 2, 4, 8 or 16 bytes that a row, and where rows begin, are multiples of.
int64_t unit_of(const RbTensor& x, const RbTensor& out, int64_t row_bytes, int64_t step_bytes) {
  const uint64_t all = static_cast<uint64_t>(row_bytes | step_bytes | 16) |
                       reinterpret_cast<uint64_t>(x.data) | reinterpret_cast<uint64_t>(out.data);
  return static_cast<int64_t>(all & -all);
}

// Rows of a table that lie without gaps, one for each of the indices, which do, too. Whether that
// is what is asked for.
bool take_rows(const char* op, const RbTensor& out, const RbTensor& index, const RbTensor& x,
               Reach reach) {
  const bool dense = (out.flags & index.flags & RB_T_CONTIGUOUS) != 0;
  int64_t width = 1;
  for (int d = x.ndim - 1; d > 0; --d) {
    if (x.shape[d] != 1 && x.strides[d] != width) return false;
    width *= x.shape[d];
  }
  if (!dense || width < 2 || index.numel == 0) return false;
  const int64_t item = stored_size(x.dtype_id);
  const int64_t unit = unit_of(x, out, width * item, x.strides[0] * item);
  int64_t rows = index.numel, units = width * item / unit;
  reach.step = x.strides[0] * item / unit;
  int across = 1;
  while (across < 256 && across < units) across *= 2;
  static const char* const kUnits[] = {"#define RB_ROW_TYPE UInt8\nRB_TAKE_ROWS()\n",
                                       "#define RB_ROW_TYPE UInt16\nRB_TAKE_ROWS()\n",
                                       "#define RB_ROW_TYPE UInt32\nRB_TAKE_ROWS()\n",
                                       "#define RB_ROW_TYPE UInt64\nRB_TAKE_ROWS()\n",
                                       "#define RB_ROW_TYPE Sixteen\nRB_TAKE_ROWS()\n"};
  const Kernel kernel{op,
                      {{"E", RB_U8}, {"I", index.dtype_id}, {"K", RB_U32}},
                      kText_index,
                      kUnits[__builtin_ctzll(unit)]};
  void *to = out.data, *at = index.data, *from = x.data;
  void* arguments[] = {&to, &at, &from, &rows, &units, &across, &reach};
  const int64_t blocks = (rows + 256 / across - 1) / (256 / across);
  launch(device_of(out), kernel,
         Grid{static_cast<unsigned>(std::min<int64_t>(blocks, 1 << 20)), 1, 1, 256}, arguments);
  return true;
}

struct Value {  // what is put: a tensor, or a number
  const RbTensor* tensor;
  Number re, im;
};
Value value_of(const RbValue& v, int dtype) {
  if (v.tag == RB_TENSOR) return {v.v.t, {}, {}};
  if (!rb::is_number(v)) rb::fail(RB_E_TYPE, "expected a tensor or a number");
  Value value{nullptr, number_of(v), {}};
  if (v.tag == RB_COMPLEX) value.im.real = v.v.fs[1];
  if (dtype == RB_BOOL8) value.re.whole = value.re.real != 0 || value.im.real != 0;
  return value;
}

enum class Put { kWrite, kAdd, kAddScaled };

bool deterministic() { return setting("deterministic", 0) != 0; }
bool of_16_bits(int dtype) { return dtype == RB_F16 || dtype == RB_BF16; }

// The tensor to which a call adds `terms`. 16-bit floats are summed in float32 and rounded once, in
// a copy of the result or by put_sorted, whichever needs less memory.
class Sums {
 public:
  Sums(const char* op, Put how, const RbTensor& out, int64_t terms) : op_(op), out_(out) {
    constexpr int64_t kSorting = 4;  // terms whose keys and places take as much as an element here
    const bool sorts = deterministic() || out.numel > kSorting * terms;
    if (how != Put::kWrite && of_16_bits(out.dtype_id) && (!sorts || terms > INT32_MAX))
      wide_ = Temporary(out, RB_F32, out.ndim, out.shape);
  }
  const RbTensor& tensor() const { return wide_.data() ? wide_.tensor() : out_; }
  void finish() const {
    if (wide_.data()) copy(op_, out_, wide_.tensor());
  }

 private:
  const char* op_;
  const RbTensor& out_;
  Temporary wide_;
};

// One call that puts: at each position of `index`, `to` there, moved by the index, is written or
// added to.
struct Placing {
  const char* op;
  Put how;
  const View& to;
  const RbTensor& index;
  const RbTensor* src;  // null: the number
  Value value;
  Reach reach;
  int64_t skipped;
};

// Sums whose order must be the same in every run: positions are sorted by where they go.
void put_sorted(Placing& c) {
  const RbTensor& out = c.to.tensor();
  Layout layout = layout_of(c.op, {&out, &c.index, c.src});
  // Offsets are below the places that the result's memory spans.
  int64_t span = c.reach.size > 0 ? (c.reach.size - 1) * c.reach.step : INT32_MAX;
  for (int d = 0; d < out.ndim; ++d) span += (out.shape[d] - 1) * out.strides[d];
  RadixSort sorted(c.op, out, span < INT32_MAX ? 4 : 8, 1, layout.n);
  const auto kernel = [&](const char* text) {
    return Kernel{c.op,
                  {{"E", out.dtype_id},
                   {"V", c.src->dtype_id},
                   {"S", computed(out.dtype_id)},
                   {"I", c.index.dtype_id},
                   {"K", sorted.key_dtype()}},
                  kText_index,
                  text};
  };
  void *keys = sorted.keys(), *places = sorted.places(), *at = c.index.data;
  void* first[] = {&keys, &places, &at, &layout, &c.reach, &c.skipped};
  launch(device_of(out), kernel("RB_PUT_KEYS()\n"), layout.n, first);
  sorted.run();
  keys = sorted.keys();
  places = sorted.places();
  void *target = out.data, *from = c.src->data;
  void* last[] = {&target, &keys, &places, &from, &layout, &c.value.re, &c.value.im};
  launch(
      device_of(out),
      kernel(c.how == Put::kAddScaled ? "RB_PUT_SORTED(scaled(As<S>::of(src[p.at[2]]), re, im))\n"
                                      : "RB_PUT_SORTED(As<S>::of(src[p.at[2]]))\n"),
      layout.n, last);
}

const char* text_of(const Placing& c, bool fits) {
  if (c.how == Put::kAddScaled)
    return RB_POSITIONS(fits, "RB_PUT", ", As<E>::of(src[p.at[2]]), add_to(to, scaled(v, re, im))");
  if (c.how == Put::kAdd)
    return RB_POSITIONS(fits, "RB_PUT", ", As<E>::of(src[p.at[2]]), add_to(to, v)");
  return c.src ? RB_POSITIONS(fits, "RB_PUT", ", src[p.at[2]], set_to(to, v)")
               : RB_POSITIONS(fits, "RB_PUT", ", (Put<E>::of(re, im)), set_to(to, v)");
}

void put(Placing c) {
  if (c.to.tensor().numel == 0) return;
  if (!c.src && c.how != Put::kWrite)
    rb::fail(RB_E_NOTIMPL, "%s on 'cuda': a number in place of what is added", c.op);
  const RbTensor& out = c.to.tensor();
  const bool rounds = !((kInt | bit(RB_BOOL8)) >> out.dtype_id & 1);
  if (c.how != Put::kWrite && (of_16_bits(out.dtype_id) || (rounds && deterministic())))
    return put_sorted(c);
  Layout layout = layout_of(c.op, {&out, &c.index, c.src});
  Layout32 narrow;
  const bool fits = fits_32(layout, &narrow);
  void* positions = fits ? static_cast<void*>(&narrow) : &layout;
  const bool moves = c.how == Put::kWrite && c.src;
  const int dtype = moves ? moved(out) : out.dtype_id;
  const Kernel kernel{c.op,
                      {{"E", dtype},
                       {"V", moves || !c.src ? dtype : +c.src->dtype_id},
                       {"I", c.index.dtype_id},
                       {"K", RB_U32}},
                      kText_index,
                      text_of(c, fits)};
  void *target = out.data, *at = c.index.data, *from = c.src ? c.src->data : nullptr;
  void* arguments[] = {&target,  &at,         &from,       positions,
                       &c.reach, &c.value.re, &c.value.im, &c.skipped};
  launch(device_of(out), kernel, layout.n, arguments);
}
void put(const char* op, Put how, const View& to, const RbTensor& index, const RbTensor* src,
         const Value& value, Reach reach, int64_t skipped = kNoIndex) {
  put(Placing{op, how, to, index, src, value, reach, skipped});
}

void copy_unless_same(const char* op, const RbTensor& out, const RbTensor& x) {
  if (out.data != x.data) copy(op, out, x);
}

// ---- along one dimension

void gather_kernel(const rb::Args& a) {
  const View x = at_least_1d(a.tensor(0)), index = at_least_1d(a.tensor(2)),
             out = at_least_1d(a.ret());
  const int dim = static_cast<int>(a.integer(1));
  take("gather", out.tensor(), index.tensor(), frozen(x, out, dim).tensor(),
       reach_of(a.tensor(0), x, dim, false, "gather"));
}

void index_select_kernel(const rb::Args& a) {
  const View x = at_least_1d(a.tensor(0)), out = at_least_1d(a.ret());
  const RbTensor& index = a.tensor(2);
  const int dim = static_cast<int>(a.integer(1));
  const Reach reach = reach_of(a.tensor(0), x, dim, false, "index_select");
  if (dim == 0 && take_rows("index_select", a.ret(), index, a.tensor(0), reach)) return;
  take("index_select", out.tensor(), along(index, out, dim).tensor(), frozen(x, out, dim).tensor(),
       reach);
}

// scatter, scatter.value and scatter_add.
template <Put How>
void scatter_kernel(const rb::Args& a) {
  const View index = at_least_1d(a.tensor(2));
  const int64_t terms = index.tensor().numel;
  const int dim = static_cast<int>(a.integer(1));
  const Value value = value_of(a.args[3], a.ret().dtype_id);
  if (terms == 0) return copy_unless_same(a.op_name(), a.ret(), a.tensor(0));
  const Sums sums(a.op_name(), How, a.ret(), terms);
  copy_unless_same(a.op_name(), sums.tensor(), a.tensor(0));
  const View out = at_least_1d(sums.tensor()), to = frozen(out, index, dim);
  const Reach reach = reach_of(a.ret(), out, dim, false, a.op_name());
  if (!value.tensor) return put(a.op_name(), How, to, index.tensor(), nullptr, value, reach);
  const View given = at_least_1d(*value.tensor), src = frozen(given, index, -1);
  put(a.op_name(), How, to, index.tensor(), &src.tensor(), value, reach);
  sums.finish();
}

void index_add_kernel(const rb::Args& a) {
  const View shape = at_least_1d(a.ret()), src = at_least_1d(a.tensor(3));
  const RbTensor& index = a.tensor(2);
  const int dim = static_cast<int>(a.integer(1));
  bool fits = src.ndim() == shape.ndim() && index.ndim <= 1 && src.size(dim) == index.numel;
  for (int d = 0; fits && d < shape.ndim(); ++d) fits = d == dim || src.size(d) == shape.size(d);
  if (!fits)
    rb::fail(RB_E_ARG,
             "index_add: `source` must have the shape of `input` with %lld slices along "
             "dimension %d",
             static_cast<long long>(index.numel), dim);
  const bool scales = a.has(4) && !(a.args[4].tag == RB_INT && a.args[4].v.i == 1);
  const Value factor = value_of(scales ? a.args[4] : rb::int_value(1), a.ret().dtype_id);
  const Put how = scales ? Put::kAddScaled : Put::kAdd;
  const Sums sums("index_add", how, a.ret(), src.tensor().numel);
  copy_unless_same("index_add", sums.tensor(), a.tensor(0));
  const View out = at_least_1d(sums.tensor());
  put("index_add", how, frozen(out, src, dim), along(index, src, dim).tensor(), &src.tensor(),
      factor, reach_of(a.ret(), out, dim, false, "index_add"));
  sums.finish();
}

void embedding_kernel(const rb::Args& a) {
  static const char* const kName = "embedding: index out of range in self";
  const RbTensor &weight = a.tensor(0), &index = a.tensor(1), &out = a.ret();
  const View table(weight);
  const Reach reach = reach_of(weight, table, 0, false, kName);
  if (take_rows("embedding", out, index, weight, reach)) return;
  View at(index), from = scalar_view(weight);
  at.add(weight.shape[1], 0);
  for (int d = 0; d < index.ndim; ++d) from.add(index.shape[d], 0);
  from.add(weight.shape[1], weight.strides[1]);
  take("embedding", out, at.tensor(), from.tensor(), reach);
}

void embedding_backward_kernel(const rb::Args& a) {
  const RbTensor &grad = a.tensor(0), &index = a.tensor(1);
  const int64_t padding = a.integer(3);
  const Sums sums("embedding_backward", Put::kAdd, a.ret(), grad.numel);
  const RbTensor& out = sums.tensor();
  fill("embedding_backward", out, rb::int_value(0), rb::int_value(0));
  const View table(out);
  View at(index), to = scalar_view(out);
  at.add(out.shape[1], 0);
  for (int d = 0; d < index.ndim; ++d) to.add(index.shape[d], 0);
  to.add(out.shape[1], out.strides[1]);
  put("embedding_backward", Put::kAdd, to, at.tensor(), &grad, {},
      reach_of(out, table, 0, false, "embedding_backward"), padding < 0 ? kNoIndex : padding);
  sums.finish();
}

// ---- advanced indexing

// Positions of `index`'s result. The indexed dimensions stand where the first of them was if they
// are adjacent, else in front.
struct Advanced {
  Advanced(const char* op, const RbTensor& x, rb::Span<RbTensor*> indices);
  View at, rest;  // the index, and x with nothing to move by in the indexed dimensions
  Reach reach;

 private:
  void broadcast(const char* op, rb::Span<RbTensor*> indices);
  void sum_offsets(const char* op, const RbTensor& x, rb::Span<RbTensor*> indices);
  Temporary offsets_;
  int ndim_ = 0;
  int64_t shape_[RB_MAX_DIMS];  // of the indices together
};

void Advanced::broadcast(const char* op, rb::Span<RbTensor*> indices) {
  for (const RbTensor* t : indices) {
    if (t) ndim_ = std::max(ndim_, static_cast<int>(t->ndim));
  }
  std::fill_n(shape_, ndim_, 1);
  for (const RbTensor* t : indices) {
    for (int k = 0; t && k < t->ndim; ++k) {
      int64_t& size = shape_[ndim_ - t->ndim + k];
      if (size != t->shape[k] && size != 1 && t->shape[k] != 1)
        rb::fail(RB_E_INDEX, "%s: index tensors do not broadcast: sizes %lld and %lld", op,
                 static_cast<long long>(size), static_cast<long long>(t->shape[k]));
      if (size == 1) size = t->shape[k];
    }
  }
}

void Advanced::sum_offsets(const char* op, const RbTensor& x, rb::Span<RbTensor*> indices) {
  int64_t n = 1;
  for (int d = 0; d < ndim_; ++d) n *= shape_[d];
  offsets_ = Temporary(x, RB_I64, ndim_, shape_);
  int first = 1;
  for (int d = 0; d < static_cast<int>(indices.len) && n > 0; ++d) {
    if (!indices[d]) continue;
    Reach each = reach_of(x, View(x), d, true, op);
    Layout layout = layout_of(op, {&offsets_.tensor(), indices[d]});
    const Kernel kernel{op,
                        {{"E", RB_U8}, {"I", indices[d]->dtype_id}, {"K", RB_U32}},
                        kText_index,
                        "RB_OFFSETS()\n"};
    void *to = offsets_.data(), *from = indices[d]->data;
    void* arguments[] = {&to, &from, &layout, &each, &first};
    launch(device_of(x), kernel, layout.n, arguments);
    first = 0;
  }
}

Advanced::Advanced(const char* op, const RbTensor& x, rb::Span<RbTensor*> indices)
    : at(scalar_view(x)), rest(scalar_view(x)), reach(no_reach(x, op)) {
  if (indices.len > static_cast<uint32_t>(x.ndim))
    rb::fail(RB_E_INDEX, "%s: %u indices for %d dimensions", op, indices.len, x.ndim);
  broadcast(op, indices);
  int first = -1, last = -1, count = 0;
  for (int d = 0; d < static_cast<int>(indices.len); ++d) {
    if (!indices[d]) continue;
    if (!(kInt >> indices[d]->dtype_id & 1))
      rb::fail(RB_E_TYPE, "%s: expected indices of int64, got another dtype", op);
    if (first < 0) first = d;
    last = d;
    ++count;
  }
  if (count == 0) rb::fail(RB_E_NOTIMPL, "%s on 'cuda' without an index", op);
  const RbTensor* index = indices[first];
  if (count > 1) {
    sum_offsets(op, x, indices);
    index = &offsets_.tensor();
  } else {
    reach = reach_of(x, View(x), first, true, op);
  }
  at = scalar_view(*index);
  const int place = last - first + 1 == count ? first : 0;
  for (int d = 0; d <= x.ndim; ++d) {
    for (int k = 0; d == place && k < ndim_; ++k) {
      at.add(shape_[k], index->strides[k]);
      rest.add(shape_[k], 0);
    }
    if (d == x.ndim || (d < static_cast<int>(indices.len) && indices[d])) continue;
    at.add(x.shape[d], 0);
    rest.add(x.shape[d], x.strides[d]);
  }
}

bool only_first(rb::Span<RbTensor*> indices) {
  for (uint32_t d = 1; d < indices.len; ++d) {
    if (indices[d]) return false;
  }
  return indices.len > 0 && indices[0];
}

void index_kernel(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  const auto indices = a.tensors(1);
  const Advanced advanced("index", x, indices);
  if (only_first(indices) && take_rows("index", a.ret(), *indices[0], x, advanced.reach)) return;
  take("index", a.ret(), advanced.at.tensor(), advanced.rest.tensor(), advanced.reach);
}

// `values` broadcast to the places; leading dimensions of size 1 may be more than those have.
View values_at(const RbTensor& values, const RbTensor& x, const View& places) {
  if (values.dtype_id != x.dtype_id)
    rb::fail(RB_E_TYPE, "index_put: expected `values` of the dtype of `input`");
  const int extra = values.ndim - places.ndim();
  for (int k = 0; k < values.ndim; ++k) {
    const int d = k - extra;
    if (values.shape[k] != 1 && (d < 0 || values.shape[k] != places.size(d)))
      rb::fail(RB_E_ARG,
               "index_put: `values` (size %lld at dimension %d) do not broadcast to the indexed "
               "places",
               static_cast<long long>(values.shape[k]), k);
  }
  View view = scalar_view(values);
  for (int d = 0; d < places.ndim(); ++d) {
    const int k = d + extra;
    view.add(places.size(d), k < 0 || values.shape[k] == 1 ? 0 : values.strides[k]);
  }
  return view;
}

// Places that indices of the dimensions of `x` name, at least: they may broadcast to more.
int64_t count_places(const RbTensor& x, rb::Span<RbTensor*> indices) {
  int64_t most = 1, rest = 1;
  for (int d = 0; d < x.ndim; ++d) {
    const RbTensor* index = d < static_cast<int>(indices.len) ? indices[d] : nullptr;
    if (index) most = std::max(most, index->numel);
    if (!index) rest *= x.shape[d];
  }
  return most * rest;
}

void index_put_kernel(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  const Put how = a.has(3) && a.boolean(3) ? Put::kAdd : Put::kWrite;
  const Sums sums("index_put", how, a.ret(), count_places(x, a.tensors(1)));
  const RbTensor& out = sums.tensor();
  const Advanced advanced("index_put", out, a.tensors(1));
  const Value value = value_of(a.args[2], a.ret().dtype_id);
  if (!value.tensor) {
    copy_unless_same("index_put", out, x);
    return put("index_put", how, advanced.rest, advanced.at.tensor(), nullptr, value,
               advanced.reach);
  }
  const View src = values_at(*value.tensor, x, advanced.rest);
  copy_unless_same("index_put", out, x);
  put("index_put", how, advanced.rest, advanced.at.tensor(), &src.tensor(), value, advanced.reach);
  sums.finish();
}

const rb::KernelSpec kKernels[] = {
    {"gather", rb::wrap<gather_kernel>, RB_K_MOVES},
    {"index_select", rb::wrap<index_select_kernel>, RB_K_MOVES},
    {"index", rb::wrap<index_kernel>, RB_K_MOVES},
    {"scatter", rb::wrap<scatter_kernel<Put::kWrite>>, RB_K_MOVES},
    {"scatter.value", rb::wrap<scatter_kernel<Put::kWrite>>, 0, kAll},
    {"scatter_add", rb::wrap<scatter_kernel<Put::kAdd>>, 0, kAll},
    {"index_add", rb::wrap<index_add_kernel>, 0, kAll},
    {"index_put", rb::wrap<index_put_kernel>, 0, kAll},
    {"embedding", rb::wrap<embedding_kernel>, 0, kAll},
    {"embedding_backward", rb::wrap<embedding_backward_kernel>, 0, kAll},
};

}  // namespace

int32_t add_index(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcuda
