// From descriptors to a graph; the shapes that its operations demand.
#include <algorithm>
#include <set>

#include "dnn.h"

namespace cusim {
namespace {

using Shape = std::vector<int64_t>;

int size_of(int type) {
  switch (type) {
    case kDnnF32:
    case kDnnI32:
      return 4;
    case kDnnF64:
      return 8;
    case kDnnF16:
    case kDnnBF16:
      return 2;
    case kDnnBool:
      return 1;
    default:
      return 0;
  }
}

bool is_tensor(const DnnDescriptor& d) {
  const DnnTensor t = dnn_tensor(d);
  const int size = size_of(t.type);
  return size && t.shape.size() == t.strides.size() && t.alignment >= size &&
         t.alignment % size == 0 && (t.alignment & (t.alignment - 1)) == 0 &&
         std::all_of(t.shape.begin(), t.shape.end(), [](int64_t n) { return n > 0; }) &&
         std::all_of(t.strides.begin(), t.strides.end(), [](int64_t n) { return n >= 0; });
}

bool all_at_least(const Shape& values, size_t count, int64_t least) {
  return values.size() == count &&
         std::all_of(values.begin(), values.end(), [=](int64_t n) { return n >= least; });
}
bool is_convolution_description(const DnnDescriptor& d) {
  const auto dims = static_cast<size_t>(d.one<int64_t>(106));
  return dims >= 1 && dims <= 3 && all_at_least(d.all<int64_t>(102), dims, 1) &&
         all_at_least(d.all<int64_t>(103), dims, 1) && all_at_least(d.all<int64_t>(104), dims, 0) &&
         all_at_least(d.all<int64_t>(105), dims, 0) && d.one<int>(101) == 1;
}

// Attributes of operations: the operands, the result last; then what says how.
struct Places {
  int kind;
  std::vector<int> tensors;
  int how, how_kind;
};
const Places kPlaces[] = {
    {kForward, {704, 703, 705}, 702, kConvolution},
    {kBackwardData, {711, 709, 710}, 708, kConvolution},
    {kBackwardFilter, {716, 717, 715}, 714, kConvolution},
    {kDoPointwise, {751, 752, 758, 753}, 750, kPointwise},
    {kDoMatmul, {1520, 1521, 1522}, 1523, kMatmul},
    {kDoReduction, {1610, 1611}, 1612, kReduction},
    {kDoReshape, {2200, 2201}, -1, -1},
};
const Places* places_of(int kind) {
  for (const Places& p : kPlaces)
    if (p.kind == kind) return &p;
  return nullptr;
}

bool node_of(const DnnDescriptor& d, DnnNode& node) {
  const Places& places = *places_of(d.kind);
  node.kind = d.kind;
  for (const int attribute : places.tensors) {
    const DnnPart part = d.part(attribute);
    if (!part) continue;
    if (part->kind != kTensor) return false;
    node.tensors.push_back(dnn_tensor(*part));
  }
  if (places.how < 0) return true;
  const DnnPart how = d.part(places.how);
  if (how->kind != places.how_kind) return false;
  if (is_convolution(d.kind)) {
    node.mode = how->one<int>(100);
    node.dilation = how->all<int64_t>(102);
    node.stride = how->all<int64_t>(103);
    node.after = how->all<int64_t>(104);
    node.before = how->all<int64_t>(105);
    const int alpha = d.kind == kForward ? 700 : d.kind == kBackwardData ? 706 : 712;
    node.alpha = d.one<float>(alpha, 1);
    node.beta = d.one<float>(alpha + 1, 0);
  } else if (d.kind == kDoPointwise) {
    node.mode = how->one<int>(0);
    node.axis = how->one<int64_t>(9, -1);
  } else if (d.kind == kDoReduction) {
    node.mode = how->one<int>(1600);
  }
  return true;
}

// ---- what goes together

bool convolution_fits(const DnnNode& n) {
  const DnnTensor& x = n.kind == kBackwardData ? n.tensors[2] : n.tensors[0];
  const DnnTensor& w = n.kind == kBackwardFilter ? n.tensors[2] : n.tensors[1];
  const DnnTensor& y = n.kind == kForward        ? n.tensors[2]
                       : n.kind == kBackwardData ? n.tensors[0]
                                                 : n.tensors[1];
  const size_t dims = n.stride.size();
  for (const DnnTensor* t : {&x, &w, &y})
    if (t->shape.size() != dims + 2) return false;
  if (x.shape[1] % w.shape[1] || y.shape[0] != x.shape[0] || y.shape[1] != w.shape[0]) return false;
  if (w.shape[0] % (x.shape[1] / w.shape[1])) return false;
  for (size_t d = 0; d < dims; ++d) {
    const int64_t window = n.dilation[d] * (w.shape[d + 2] - 1) + 1;
    const int64_t room = x.shape[d + 2] + n.before[d] + n.after[d] - window;
    if (room < 0 || y.shape[d + 2] != room / n.stride[d] + 1) return false;
  }
  return true;
}
bool may_be_broadcast(const Shape& from, const Shape& to) {
  if (from.size() != to.size()) return false;
  for (size_t d = 0; d < to.size(); ++d)
    if (from[d] != to[d] && from[d] != 1) return false;
  return true;
}
bool product_fits(const DnnNode& n) {
  const Shape &a = n.tensors[0].shape, &b = n.tensors[1].shape, &c = n.tensors[2].shape;
  const size_t dims = c.size();
  if (dims < 3 || a.size() != dims || b.size() != dims) return false;
  if (a[dims - 2] != c[dims - 2] || b[dims - 1] != c[dims - 1] || a[dims - 1] != b[dims - 2])
    return false;
  for (size_t d = 0; d + 2 < dims; ++d)  // heads of one operand may be shared by several
    if (c[d] % a[d] || c[d] % b[d]) return false;
  return true;
}
bool reshape_fits(const DnnNode& n) {
  const auto count = [](const Shape& s) {
    int64_t all = 1;
    for (const int64_t size : s) all *= size;
    return all;
  };
  return count(n.tensors[0].shape) == count(n.tensors[1].shape);
}
bool reduction_fits(const DnnNode& n) {
  const Shape &x = n.tensors[0].shape, &y = n.tensors[1].shape;
  if (x.size() != y.size()) return false;
  for (size_t d = 0; d < x.size(); ++d)
    if (y[d] < 1 || x[d] % y[d]) return false;
  return true;
}
// How many operands a pointwise mode has; 0: there is no such mode here.
size_t operands_of(int mode) {
  switch (mode) {
    case 0:    // add
    case 1:    // mul
    case 2:    // min
    case 3:    // max
    case 6:    // div
    case 9:    // sub
    case 302:  // >
    case 303:  // >=
    case 304:  // <
    case 305:  // <=
      return 2;
    case 13:   // exp
    case 15:   // log
    case 21:   // identity
    case 501:  // index
      return 1;
    case 601:  // select
      return 3;
    default:
      return 0;
  }
}
bool pointwise_fits(const DnnNode& n) {
  if (n.tensors.size() != operands_of(n.mode) + 1) return false;
  for (const DnnTensor& t : n.tensors)
    if (!may_be_broadcast(t.shape, n.result().shape)) return false;
  return n.mode != 501 || (n.axis >= 0 && n.axis < static_cast<int64_t>(n.result().shape.size()));
}
bool fits(const DnnNode& n) {
  if (is_convolution(n.kind)) return convolution_fits(n);
  switch (n.kind) {
    case kDoPointwise:
      return pointwise_fits(n);
    case kDoMatmul:
      return product_fits(n);
    case kDoReduction:
      return reduction_fits(n);
    default:
      return reshape_fits(n);
  }
}

int check_pack(const DnnDescriptor& d) {
  const auto names = d.all<int64_t>(1000);
  const auto data = d.all<void*>(1001);
  return names.size() == data.size() &&
                 std::set<int64_t>(names.begin(), names.end()).size() == names.size()
             ? kDnnFine
             : kDnnBad;
}

}  // namespace

DnnTensor dnn_tensor(const DnnDescriptor& d) {
  DnnTensor t;
  t.name = d.one<int64_t>(906);
  t.alignment = d.one<int64_t>(900);
  t.type = d.one<int>(901);
  t.is_virtual = d.one<bool>(907);
  t.by_value = d.one<bool>(908);
  t.reordering = d.one<int>(909);
  t.shape = d.all<int64_t>(902);
  t.strides = d.all<int64_t>(903);
  return t;
}

int dnn_check(const DnnDescriptor& d) {
  if (d.kind == kTensor) return is_tensor(d) ? kDnnFine : kDnnBad;
  if (d.kind == kConvolution) return is_convolution_description(d) ? kDnnFine : kDnnBad;
  if (d.kind == kVariantPack) return check_pack(d);
  if (places_of(d.kind)) {
    DnnNode node;
    return node_of(d, node) && fits(node) ? kDnnFine : kDnnBad;
  }
  return kDnnFine;
}

// A name stands for one tensor; a tensor without memory has one operation that makes it, before
// those that read it.
int dnn_make_graph(DnnDescriptor& d) {
  auto graph = std::make_shared<DnnGraph>();
  std::map<int64_t, DnnTensor> tensors;
  std::set<int64_t> made;
  for (const DnnPart& part : d.values.at(801).parts) {
    if (!places_of(part->kind)) return kDnnBad;
    DnnNode node;
    if (!node_of(*part, node)) return kDnnBad;
    for (const DnnTensor& t : node.tensors)
      if (!(tensors.try_emplace(t.name, t).first->second == t)) return kDnnBad;
    for (size_t i = 0; i + 1 < node.tensors.size(); ++i)
      if (node.tensors[i].is_virtual && !made.count(node.tensors[i].name)) return kDnnBad;
    if (node.result().by_value || !made.insert(node.result().name).second) return kDnnBad;
    graph->nodes.push_back(std::move(node));
  }
  d.graph = std::move(graph);
  return kDnnFine;
}

}  // namespace cusim
