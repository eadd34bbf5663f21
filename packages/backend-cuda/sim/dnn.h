// What the stand-in for cuDNN knows: descriptors, as the backend API's manual states their
// attributes, and the graphs that they describe.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace cusim {

enum DnnStatus {
  kDnnFine = 0,
  kDnnNotFinalized = 1001,
  kDnnBad = 2000,
  kDnnNull = 2002,
  kDnnMisaligned = 2003,
  kDnnBadType = 2010,
  kDnnPattern = 3001,
  kDnnShape = 3002,
  kDnnDataType = 3003,
  kDnnLayout = 3004,
  kDnnNoKind = 4003,
  kDnnFailed = 5000,
};

enum DnnKind {
  kPointwise = 0,
  kConvolution = 1,
  kEngine = 2,
  kEngineConfig = 3,
  kHeuristics = 4,
  kPlan = 5,
  kForward = 10,
  kBackwardFilter = 11,
  kBackwardData = 12,
  kDoPointwise = 13,
  kGraph = 15,
  kVariantPack = 16,
  kTensor = 17,
  kMatmul = 18,
  kDoMatmul = 19,
  kReduction = 21,
  kDoReduction = 22,
  kDoReshape = 31,
};
inline bool is_convolution(int kind) { return kind >= kForward && kind <= kBackwardData; }

enum DnnOrder { kF16x16 = 2 };

enum DnnType { kDnnF32 = 0, kDnnF64 = 1, kDnnF16 = 2, kDnnI32 = 4, kDnnBF16 = 9, kDnnBool = 11 };

struct DnnTensor {
  int64_t name = 0, alignment = 1;
  int type = 0, reordering = 0;
  bool is_virtual = false, by_value = false;
  std::vector<int64_t> shape, strides;

  bool operator==(const DnnTensor& o) const {
    return name == o.name && alignment == o.alignment && type == o.type &&
           reordering == o.reordering && is_virtual == o.is_virtual && by_value == o.by_value &&
           shape == o.shape && strides == o.strides;
  }
};

/// One operation. Of a convolution the mode is the computed type's number.
struct DnnNode {
  int kind = 0, mode = 0;
  int64_t axis = 0;
  double alpha = 1, beta = 0;
  std::vector<int64_t> before, after, stride, dilation;
  std::vector<DnnTensor> tensors;  // operands, the result last

  const DnnTensor& result() const { return tensors.back(); }
};
/// Whether the result is summed up in memory, as engines of attention do with the query's gradient
/// in float32.
inline bool dnn_adds(const DnnNode& n) {
  return n.kind == kDoMatmul && !n.result().is_virtual && n.result().type == kDnnF32;
}
/// The library's version, which CUSIM_CUDNN_VERSION may set.
int64_t dnn_version();
/// Whether engines fill the memory of such sums themselves. Before 9.6.0 it must be zero, and in an
/// order of their own.
inline bool dnn_fills_sums() { return dnn_version() >= 90600; }
struct DnnGraph {
  std::vector<DnnNode> nodes;  // operands before their users
};

struct DnnDescriptor;
using DnnPart = std::shared_ptr<const DnnDescriptor>;

struct DnnValue {
  int type = 0;
  int64_t count = 0;
  std::string bytes;
  std::vector<DnnPart> parts;  // in the place of bytes
};
struct DnnDescriptor {
  explicit DnnDescriptor(int of_kind) : kind(of_kind) {}
  int kind;
  bool finalized = false;
  std::map<int, DnnValue> values;         // by attribute
  std::shared_ptr<const DnnGraph> graph;  // of a graph and of what is made for it
  int engine = -1;                        // of an engine, its configuration and plan

  template <class T>
  std::vector<T> all(int attribute) const {
    const auto found = values.find(attribute);
    if (found == values.end()) return {};
    const auto* begin = reinterpret_cast<const T*>(found->second.bytes.data());
    return std::vector<T>(begin, begin + found->second.count);
  }
  template <class T>
  T one(int attribute, T otherwise = {}) const {
    const auto found = values.find(attribute);
    return found == values.end() ? otherwise
                                 : *reinterpret_cast<const T*>(found->second.bytes.data());
  }
  DnnPart part(int attribute) const {
    const auto found = values.find(attribute);
    return found == values.end() ? nullptr : found->second.parts[0];
  }
  template <class T>
  void keep(int attribute, int type, const std::vector<T>& list) {
    values[attribute] = {type,
                         static_cast<int64_t>(list.size()),
                         std::string(reinterpret_cast<const char*>(list.data()),
                                     reinterpret_cast<const char*>(list.data() + list.size())),
                         {}};
  }
};

// dnn_attributes.cpp

bool dnn_has_kind(int kind);
/// `parts`: the descriptors of an attribute that takes them.
int dnn_set(DnnDescriptor& d, int attribute, int type, int64_t count, const void* from,
            const std::vector<DnnPart>& parts);
int dnn_get(const DnnDescriptor& d, int attribute, int type, int64_t wanted, int64_t* count,
            void* to);
/// What must be set is, and the descriptors in it are finalized.
bool dnn_is_complete(const DnnDescriptor& d);
int dnn_bytes_of(int attribute_type);

// dnn_graph.cpp

/// Whether tensors and operators have values that go together.
int dnn_check(const DnnDescriptor& d);
DnnTensor dnn_tensor(const DnnDescriptor& d);
int dnn_make_graph(DnnDescriptor& d);

// dnn_engines.cpp

/// The engines that a heuristic mode gives for a graph, best first.
std::vector<int> dnn_engines(const DnnGraph& graph, int mode);
std::vector<int> dnn_notes(int engine);
/// Fine, or why there is no plan.
int dnn_supports(const DnnGraph& graph, int engine);
int64_t dnn_workspace(const DnnGraph& graph, int engine);
/// The status that CUSIM_CUDNN_FAIL plants at `where`, or fine.
int dnn_planted(const std::string& where);

// dnn_text.cpp

std::string dnn_text(const DnnGraph& graph, int engine);
bool dnn_from_text(const std::string& text, DnnGraph* graph, int* engine);

// dnn_run.cpp

/// Compute the graph as the engine does; `data` by tensors' names.
void dnn_run(const DnnGraph& graph, int engine, const std::map<int64_t, void*>& data);

}  // namespace cusim
