// Aliases: how their values are made of that of the memory they share, and go back into it.
#include "functionalize.h"

namespace functional {

namespace {

RbWrap& wrap_of(const RbTensor* t) {
  return *const_cast<RbWrap*>(static_cast<const RbWrap*>(t->ext));
}
uint32_t write_of(const RbTensor* wrapper) {
  return static_cast<uint32_t>(wrap_of(wrapper).bits & 0xffffffff);
}
int64_t bits_of(int32_t node, uint32_t write) {
  return static_cast<int64_t>(node) << 32 | static_cast<int64_t>(write);
}

void set_inner(RbTensor* wrapper, const Ref& value, int32_t node, uint32_t write) {
  RbWrap& w = wrap_of(wrapper);
  RbTensor* before = w.inner;
  rb::host->retain(value.get());
  w.inner = value.get();
  w.bits = bits_of(node, write);
  rb::host->release(before);
}

// The wrapper's storage is that of `holder`, a tensor over the cell: so aliases share one storage
// and one version, and values that were replaced are freed.
Ref wrapper_of(const Frame& f, RbTensor* holder, int32_t node, const Ref& value) {
  const Cell& cell = *static_cast<Cell*>(holder->data);
  const Node& n = cell.nodes[node];
  RbTensor* out = nullptr;
  rb::check(rb::host->tensor_wrap(f.level, holder, holder, bits_of(node, cell.writes),
                                  static_cast<int32_t>(n.shape.size()), n.shape.data(),
                                  n.strides.data(), &out));
  Ref made(out);
  out->dtype_id = value->dtype_id;  // another one than the holder's after view(dtype)
  out->dtype = value->dtype;
  set_inner(out, value, node, cell.writes);
  return made;
}

Ref holder_for(const RbTensor* value, std::unique_ptr<Cell> cell) {
  const int64_t nothing = 0;
  RbTensor* out = nullptr;
  rb::check(rb::host->tensor_adopt(
      cell.get(), value->backend, value->device.id, value->dtype_id, 1, &nothing, nullptr,
      value->flags & RB_T_READONLY, cell.get(), [](void* c) { delete static_cast<Cell*>(c); },
      &out));
  cell.release();
  return Ref(out);
}

// An operator's twin by its name, of the same arguments after `extra` more in front.
const RbOp* twin(const RbOp* op, const char* suffix, int extra) {
  const RbOpInfo& info = *rb::host->op_info(op);
  const RbOp* found = rb::host->find_op((std::string(info.name) + suffix).c_str());
  return found && rb::host->op_info(found)->nargs == info.nargs + extra ? found : nullptr;
}

Ref call_list(const RbOp* op, const std::vector<RbValue>& args) {
  RbValue ret = none_value();
  rb::check(rb::host->call(op, args.data(), static_cast<int32_t>(args.size()), &ret, 1, 0));
  return Ref(ret.v.t);
}

std::vector<RbValue> arguments(const Node& n, std::initializer_list<RbValue> first) {
  std::vector<RbValue> all(first);
  all.insert(all.end(), n.args.begin(), n.args.end());
  return all;
}

RbValue one_list(RbTensor* const* t) { return rb::tensors_value(t, 1); }

// Values in operators of this level: where views become copies, they do so here too.
Ref lift(const Frame& f, RbTensor* value) { return fresh(f, Ref::share(value)); }
Ref flat(const Frame& f, RbTensor* t) {
  const Dims all{-1};
  return call(ops.reshape, {tensor_value(lift(f, t)), list(all)});
}

Ref view_value(const Frame& f, const Node& n, RbTensor* parent) {
  if (n.places.get()) {
    RbTensor* const places = n.places.get();
    return pick(f, flat(f, parent).get(), places);
  }
  const RbOp* op = n.op;
  if (f.copies) {
    if (const RbOp* copy = twin(op, "_copy", 0))
      return call_list(copy, arguments(n, {tensor_value(parent)}));
    const Ref seen = call_list(op, arguments(n, {tensor_value(parent)}));
    return call(ops.clone, {tensor_value(seen)});
  }
  // The value need not lie in memory as the tensor that it stands for is shown.
  if (op == ops.view && !(parent->flags & RB_T_CONTIGUOUS)) op = ops.reshape;
  return call_list(op, arguments(n, {tensor_value(parent)}));
}

// A view of all elements in another order: the derivative of such an operator is its inverse.
Ref undo_by_vjp(const Frame& f, const Node& n, const Node& parent, const Ref& viewed) {
  RbMeta meta = rb::meta_of(viewed.get());
  meta.ndim = static_cast<int32_t>(parent.shape.size());
  meta.shape = parent.shape.data();
  RbValue input{};
  input.tag = RB_META;
  input.v.meta = &meta;
  const RbMeta own = rb::meta_of(viewed.get());
  RbValue output{};
  output.tag = RB_META;
  output.v.meta = &own;
  const std::vector<RbValue> args = arguments(n, {input});
  const Ref lifted = lift(f, viewed.get());
  const RbValue grad = tensor_value(lifted);
  std::vector<RbValue> results(args.size(), none_value());
  rb::check(rb::host->vjp(n.op, 1, args.data(), static_cast<int32_t>(args.size()), &output, 1,
                          &grad, results.data()));
  return lower(f, Ref(results[0].v.t).get());
}

int64_t count(const Dims& shape) {
  int64_t n = 1;
  for (int64_t s : shape) n *= s;
  return n;
}

// The tensor `before` with `viewed` at `places` in it.
Ref put(const Frame& f, RbTensor* before, RbTensor* places, const Ref& viewed, const Dims& shape) {
  const Ref all = call(ops.index_put, {tensor_value(flat(f, before)), one_list(&places),
                                       tensor_value(viewed), rb::bool_value(false)});
  return lower(f, call(ops.reshape, {tensor_value(all), list(shape)}).get());
}

// Whether the parent follows from the view, and from what the parent was.
bool has_inverse(const Cell& cell, const Node& n) {
  if (n.places.get() || twin(n.op, "_scatter", 1)) return true;
  const uint32_t flags = rb::host->op_info(n.op)->flags;
  return (flags & RB_OP_DETACHED) ||
         ((flags & RB_OP_HAS_VJP) && count(n.shape) == count(cell.nodes[n.parent].shape));
}

// The parent of node `n` after the node has become `viewed`.
Ref undo_view(const Frame& f, const Cell& cell, const Node& n, const Ref& viewed) {
  const Node& parent = cell.nodes[n.parent];
  if (n.places.get())
    return put(f, read(f, cell, n.parent).get(), n.places.get(), viewed, parent.shape);
  if (const RbOp* scatter = twin(n.op, "_scatter", 1)) {
    const Ref before = read(f, cell, n.parent);
    return call_list(scatter, arguments(n, {tensor_value(before), tensor_value(viewed)}));
  }
  if (rb::host->op_info(n.op)->flags & RB_OP_DETACHED) return Ref::share(viewed.get());
  return undo_by_vjp(f, n, parent, viewed);
}

// Where the elements of a node are in the base: a tensor of the level.
Ref places_in_base(const Frame& f, const Cell& cell, int32_t node) {
  const Node& n = cell.nodes[node];
  if (node == cell.base) return positions(f, cell.value.get(), n.shape);
  const Ref parent = places_in_base(f, cell, n.parent);
  if (!n.places.get()) return call_list(n.op, arguments(n, {tensor_value(parent)}));
  const Dims all{-1};
  RbTensor* const places = n.places.get();
  return call(ops.index, {tensor_value(call(ops.reshape, {tensor_value(parent), list(all)})),
                          one_list(&places)});
}

Node node_for(int32_t parent, const RbOp* op, const RbValue* args, int32_t nargs) {
  Node n;
  n.parent = parent;
  n.op = op;
  for (int32_t i = 1; i < nargs; ++i) {
    n.args.push_back(args[i]);
    if (args[i].tag != RB_INTS) continue;
    n.ints.push_back(
        std::make_unique<std::vector<int64_t>>(args[i].v.is, args[i].v.is + args[i].len));
    n.args.back() = rb::ints_value(n.ints.back()->data(), n.ints.back()->size());
  }
  return n;
}

}  // namespace

Cell& cell_of(const RbTensor* wrapper) {
  return *static_cast<Cell*>(wrap_of(wrapper).second->data);
}
int32_t node_of(const RbTensor* wrapper) {
  return static_cast<int32_t>(wrap_of(wrapper).bits >> 32);
}

Ref lower(const Frame& f, RbTensor* t) { return Ref::share(f.mine(t) ? current(f, t) : t); }

Ref pick(const Frame& f, RbTensor* x, RbTensor* places) {
  return lower(f, call(ops.index, {tensor_value(x), one_list(&places)}).get());
}

Ref read(const Frame& f, const Cell& cell, int32_t node) {
  const Node& n = cell.nodes[node];
  if (node == cell.base) return Ref::share(cell.value.get());
  return view_value(f, n, read(f, cell, n.parent).get());
}

RbTensor* current(const Frame& f, RbTensor* wrapper) {
  const Cell& cell = cell_of(wrapper);
  if (write_of(wrapper) != cell.writes) {
    const int32_t node = node_of(wrapper);
    set_inner(wrapper, read(f, cell, node), node, cell.writes);
  }
  return wrap_of(wrapper).inner;
}

Ref fresh(const Frame& f, Ref value, const Dims* strides) {
  auto cell = std::make_unique<Cell>();
  cell->nodes.emplace_back();
  cell->nodes[0].shape = shape_of(value.get());
  if (strides && strides->size() == cell->nodes[0].shape.size()) {
    cell->nodes[0].strides = *strides;
  } else {
    cell->nodes[0].strides = Dims(value->strides, value->strides + value->ndim);
  }
  cell->value = Ref::share(value.get());
  const Ref holder = holder_for(value.get(), std::move(cell));
  return wrapper_of(f, holder.get(), 0, value);
}

// As many elements as as_strided(size, stride) of `t` reaches over; whether `t` has them is seen
// later.
Ref memory_for(const RbTensor* t, const RbValue* args) {
  int64_t reach = 1;
  for (uint32_t d = 0; d < std::min(args[1].len, args[2].len); ++d) {
    int64_t far = 0;
    if (__builtin_mul_overflow(args[1].v.is[d] - 1, args[2].v.is[d], &far) ||
        __builtin_add_overflow(reach, std::max<int64_t>(far, 0), &reach))
      break;  // refused by the operator
  }
  return geometry(t->dtype_id, {reach}, {1});
}

Ref view(const Frame& f, RbTensor* t, const RbOp* op, const RbValue* args, int32_t nargs) {
  Cell& cell = cell_of(t);
  const bool names_memory = op == ops.as_strided || op == ops.strided_view;
  const Ref shown = names_memory ? memory_for(t, args) : geometry(t);
  std::vector<RbValue> all(args, args + nargs);
  all[0] = tensor_value(shown);
  const int64_t here = cell.nodes[node_of(t)].offset;
  if (names_memory && all[3].tag != RB_NONE) all[3] = int_value(0);
  RbValue ret = none_value();
  rb::check(below_all(kMeta, [&] { return rb::host->call(op, all.data(), nargs, &ret, 1, 0); }));
  const Ref seen(ret.v.t);
  Node n = node_for(node_of(t), op, args, nargs);
  n.shape = shape_of(seen.get());
  n.strides = Dims(seen->strides, seen->strides + seen->ndim);
  n.offset =
      here + (static_cast<char*>(seen->data) - static_cast<char*>(shown->data)) / item_size(t);
  Ref parent = Ref::share(current(f, t));
  const Node& own = cell.nodes[node_of(t)];
  if (names_memory) {
    const Node& base = cell.nodes[cell.base];
    const bool absolute = op == ops.as_strided && args[3].tag != RB_NONE;
    n.offset = absolute ? args[3].v.i : here + (args[3].tag == RB_NONE ? 0 : args[3].v.i);
    n.places = strided_positions(f, cell.value.get(), base, n.shape, n.strides, n.offset);
    n.parent = cell.base;
  } else if (own.places.get() && seen->dtype_id != t->dtype_id) {
    rb::fail(RB_E_NOTIMPL,
             "%s: functionalize: the input is an as_strided view; clone() it before it is seen as "
             "another dtype",
             rb::host->op_info(op)->name);
  } else if (own.places.get()) {  // whose elements may stand for one of the parent's
    const Ref places = fresh(f, Ref::share(own.places.get()));
    n.places = lower(f, call_list(op, arguments(n, {tensor_value(places)})).get());
    n.parent = own.parent;
  }
  if (n.places.get()) parent = read(f, cell, n.parent);
  const Ref made = view_value(f, n, parent.get());
  cell.nodes.push_back(std::move(n));
  return wrapper_of(f, wrap_of(t).second, static_cast<int32_t>(cell.nodes.size()) - 1, made);
}

void extend(const Frame& f, Cell& cell, RbTensor* whole, RbTensor* origin, const Dims& strides,
            int64_t offset, Ref places) {
  Node base;
  base.shape = shape_of(whole);
  base.strides = strides;
  base.offset = offset;
  Node& part = cell.nodes[cell.base];
  part.parent = static_cast<int32_t>(cell.nodes.size());
  part.places = std::move(places);
  const Ref before = std::move(cell.value);
  const int32_t old_base = cell.base;
  cell.nodes.push_back(std::move(base));
  cell.base = cell.nodes[old_base].parent;
  cell.value = Ref::share(whole);
  cell.origin = Ref::share(origin);
  if (cell.writes) cell.value = undo_view(f, cell, cell.nodes[old_base], before);
}

Ref part(const Frame& f, RbTensor* wrapper, RbTensor* t, int64_t offset, Ref places) {
  Cell& cell = cell_of(wrapper);
  Node n;
  n.parent = cell.base;
  n.places = std::move(places);
  n.shape = shape_of(t);
  n.strides = Dims(t->strides, t->strides + t->ndim);
  n.offset = offset;
  const Ref now = cell.writes ? view_value(f, n, cell.value.get()) : Ref::share(t);
  cell.nodes.push_back(std::move(n));
  return wrapper_of(f, wrap_of(wrapper).second, static_cast<int32_t>(cell.nodes.size()) - 1, now);
}

void write(const Frame& f, RbTensor* wrapper, Ref value) {
  Cell& cell = cell_of(wrapper);
  const int32_t node = node_of(wrapper);
  bool steps = true;
  for (int32_t n = node; n != cell.base; n = cell.nodes[n].parent)
    steps = steps && has_inverse(cell, cell.nodes[n]);
  Ref all = Ref::share(value.get());
  if (steps) {
    for (int32_t n = node; n != cell.base; n = cell.nodes[n].parent)
      all = undo_view(f, cell, cell.nodes[n], all);
  } else {
    const Ref places = lower(f, places_in_base(f, cell, node).get());
    all = put(f, cell.value.get(), places.get(), value, cell.nodes[cell.base].shape);
  }
  cell.value = std::move(all);
  ++cell.writes;
  set_inner(wrapper, value, node, cell.writes);
  rb::check(rb::host->version_bump(wrapper));
}

}  // namespace functional
