// Tensors of lower levels: arguments, and what the function meets besides. Those that share memory
// become aliases of one cell.
#include <algorithm>

#include "functionalize.h"

namespace functional {

namespace {

struct Place {  // of a tensor in its memory, counted in elements
  int64_t first, last;
};

// as_strided of what tells where a tensor is, and is no part of the program.
Ref unseen_view(int backend, const RbValue (&args)[4]) {
  RbValue ret = none_value();
  rb::check(
      below_all(backend, [&] { return rb::host->call(ops.as_strided, args, 4, &ret, 1, 0); }));
  return Ref(ret.v.t);
}

char* memory_of(const RbTensor* t) {
  const Dims one{1};
  return static_cast<char*>(unseen_view(t->backend, {tensor_value(const_cast<RbTensor*>(t)),
                                                     list(one), list(one), int_value(0)})
                                ->data);
}

bool has_memory(const RbTensor* t) { return t->level == 0 && t->data && t->numel > 0; }

int64_t offset_of(const RbTensor* t) {
  return has_memory(t) ? (static_cast<char*>(t->data) - memory_of(t)) / item_size(t) : 0;
}

Place place_of(const RbTensor* t) {
  Place p{offset_of(t), 0};
  p.last = p.first;
  for (int d = 0; d < t->ndim; ++d) p.last += (t->shape[d] - 1) * t->strides[d];
  return p;
}

RbTensor* root_of(RbTensor* t) {
  while (RbTensor* up = rb::host->view_parent(t)) t = up;
  return t;
}

Dims strides_of(const RbTensor* t) { return Dims(t->strides, t->strides + t->ndim); }

// Where `t`, a view of `root`, has its elements in it.
Ref replayed(const Frame& f, RbTensor* t, RbTensor* root) {
  Ref counted = positions(f, root, shape_of(root)), out;
  rb::check(rb::replay_view(t, counted, out));
  return lower(f, out.get());
}

// Aliases that view operators made of one tensor; differentiable and mapped as these operators are.
Ref join_by_views(const Frame& f, RbTensor* wrapper, RbTensor* t) {
  Cell& cell = cell_of(wrapper);
  RbTensor* root = root_of(t);
  if (cell.origin.get() != root) {
    Ref places = replayed(f, cell.origin.get(), root);
    extend(f, cell, root, root, strides_of(root), offset_of(root), std::move(places));
  }
  return part(f, wrapper, t, offset_of(t), replayed(f, t, root));
}

// Aliases of any origin, by their place in memory.
Ref join_by_memory(const Frame& f, RbTensor* wrapper, RbTensor* t) {
  Cell& cell = cell_of(wrapper);
  const Place a = place_of(cell.origin.get()), b = place_of(t);
  const int64_t first = std::min(a.first, b.first), last = std::max(a.last, b.last);
  const Dims one{1}, all{last - first + 1};
  const RbValue args[4] = {tensor_value(cell.origin.get()), list(all), list(one), int_value(first)};
  const RbOp* op = f.copies ? ops.as_strided_copy : ops.as_strided;
  const Ref whole = call(op, {args[0], args[1], args[2], args[3]});
  const Ref memory = unseen_view(t->backend, args);  // even where `whole` is a copy
  Node base;
  base.shape = all;
  base.strides = one;
  base.offset = first;
  Ref places = strided_positions(f, t, base, shape_of(cell.origin.get()),
                                 strides_of(cell.origin.get()), a.first);
  extend(f, cell, whole.get(), memory.get(), one, first, std::move(places));
  return part(f, wrapper, t, b.first,
              strided_positions(f, t, base, shape_of(t), strides_of(t), b.first));
}

Ref join(const Frame& f, RbTensor* wrapper, RbTensor* t) {
  const Cell& cell = cell_of(wrapper);
  RbTensor* other = cell.origin.get();
  if (t->dtype_id != other->dtype_id) {
    rb::fail(RB_E_NOTIMPL,
             "functionalize: two tensors of different dtypes share memory; clone() one of them");
  }
  const bool plain = t->keys[0] == other->keys[0] && !(t->keys[0] & (t->keys[0] - 1));
  if (has_memory(t) && has_memory(other) && plain) return join_by_memory(f, wrapper, t);
  if (root_of(t) == root_of(other)) return join_by_views(f, wrapper, t);
  rb::fail(RB_E_NOTIMPL,
           "functionalize: two tensors share memory in a way that is not known (they are no views "
           "of one tensor); clone() one of them");
}

}  // namespace

RbTensor* known(const Frame& f, const RbTensor* t) {
  for (const Origin& o : f.origins) {
    if (o.tensor.get() == t) return o.wrapper.get();
  }
  return nullptr;
}

bool outdated(const Frame& f, const RbTensor* t) {
  return std::any_of(f.origins.begin(), f.origins.end(), [&](const Origin& o) {
    return cell_of(o.wrapper.get()).writes && rb::host->same_storage(o.tensor.get(), t);
  });
}

RbTensor* adopt(Frame& f, RbTensor* t) {
  if (RbTensor* there = known(f, t)) return there;
  Ref wrapper;
  for (const Origin& o : f.origins) {
    if (t->numel && rb::host->same_storage(o.tensor.get(), t)) {
      wrapper = join(f, o.wrapper.get(), t);
      break;
    }
  }
  if (!wrapper.get()) {
    wrapper = fresh(f, Ref::share(t));
    Cell& cell = cell_of(wrapper.get());
    cell.origin = Ref::share(t);
    cell.nodes[0].offset = offset_of(t);
  }
  f.origins.push_back({Ref::share(t), std::move(wrapper)});
  return f.origins.back().wrapper.get();
}

}  // namespace functional
