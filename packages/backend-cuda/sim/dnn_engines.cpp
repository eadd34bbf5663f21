// Engines: what each computes, how exactly, and in how much memory. Six kinds stand for the many of
// the library.
#include <algorithm>
#include <cstdlib>

#include "dnn.h"
#include "planted.h"

namespace cusim {
namespace {

enum Note { kTensorCore = 0, kDownConvert = 1, kVaries = 4 };
constexpr int kNames = 6, kAttention = 5;

struct Engine {
  std::vector<int> notes;
  bool packed;        // tensors must lie together, channels first or last
  int64_t workspace;  // bytes for each element of the first operation's result
};
const Engine kEngines[kNames] = {
    {{kTensorCore}, true, 4},
    {{kTensorCore, kVaries}, true, 8},
    {{}, false, 2},
    {{}, false, 0},  // the one to fall back on
    {{kTensorCore, kDownConvert}, true, 0},
    {{kTensorCore}, false, 1},  // of attention
};

bool is_half(int type) { return type == kDnnF16 || type == kDnnBF16; }
int64_t count_of(const DnnTensor& t) {
  int64_t count = 1;
  for (const int64_t size : t.shape) count *= size;
  return count;
}

// Dimensions by their strides lie without gaps and without one another.
bool lies_packed(const DnnTensor& t, bool with_gaps) {
  std::vector<std::pair<int64_t, int64_t>> steps;  // stride, size
  for (size_t d = 0; d < t.shape.size(); ++d)
    if (t.shape[d] > 1) steps.emplace_back(t.strides[d], t.shape[d]);
  std::sort(steps.begin(), steps.end());
  int64_t end = 1;
  for (const auto& [stride, size] : steps) {
    if (with_gaps ? stride < end : stride != end) return false;
    end += stride * (size - 1);
  }
  return true;
}

int supports_convolution(const DnnGraph& graph, int engine) {
  const DnnNode& n = graph.nodes[0];
  if (graph.nodes.size() > 1 || n.mode != kDnnF32 || engine == kAttention) return kDnnPattern;
  const int type = n.result().type;
  for (const DnnTensor& t : n.tensors) {
    if (t.type != type || (type != kDnnF32 && !is_half(type))) return kDnnDataType;
    if (t.shape.size() < 4 || t.shape.size() > 5) return kDnnShape;
    if (!lies_packed(t, !kEngines[engine].packed)) return kDnnLayout;
    if (t.is_virtual || t.by_value) return kDnnPattern;
  }
  return kDnnFine;
}

// Rows of 16 bytes in memory, half precision between float32 sums.
int supports_attention(const DnnGraph& graph, int engine) {
  if (engine != kAttention || graph.nodes.size() < 8) return kDnnPattern;
  for (const DnnNode& n : graph.nodes) {
    if (is_convolution(n.kind)) return kDnnPattern;
    if (n.kind != kDoMatmul) continue;
    if (dnn_adds(n) && !dnn_fills_sums() && n.result().reordering != kF16x16) return kDnnLayout;
    for (size_t i = 0; i < 2; ++i)
      if (!is_half(n.tensors[i].type) && !n.tensors[i].is_virtual) return kDnnDataType;
    for (const DnnTensor& t : n.tensors) {
      if (t.is_virtual) continue;
      if (t.shape.size() != 4) return kDnnShape;
      const int64_t size = t.strides[3] == 1 ? t.shape[3] : t.shape[2];
      if (size % 8 || size > 128) return kDnnShape;
      if (t.strides[3] != 1 && t.strides[2] != 1) return kDnnLayout;
      if (!lies_packed(t, true)) return kDnnLayout;
    }
  }
  return kDnnFine;
}

}  // namespace

std::vector<int> dnn_engines(const DnnGraph& graph, int mode) {
  constexpr int kFallback = 2;
  if (!is_convolution(graph.nodes[0].kind)) return {kAttention};
  if (mode == kFallback) return {3};
  return {4, 1, 0, 2};
}

std::vector<int> dnn_notes(int engine) { return kEngines[engine].notes; }

int dnn_supports(const DnnGraph& graph, int engine) {
  if (engine < 0 || engine >= kNames || graph.nodes.empty()) return kDnnBad;
  const std::string name = "plan" + std::to_string(engine);
  for (const std::string& where : {std::string("plan"), name})
    if (const int status = dnn_planted(where)) return status;
  return is_convolution(graph.nodes[0].kind) ? supports_convolution(graph, engine)
                                             : supports_attention(graph, engine);
}

// CUSIM_CUDNN_WORKSPACE: bytes that engines ask for which need any.
int64_t dnn_workspace(const DnnGraph& graph, int engine) {
  const int64_t each = kEngines[engine].workspace;
  const char* given = std::getenv("CUSIM_CUDNN_WORKSPACE");
  if (each && given) return std::atoll(given);
  return each * count_of(graph.nodes[0].result());
}

int dnn_planted(const std::string& where) { return planted("CUSIM_CUDNN_FAIL", where); }

int64_t dnn_version() {
  const char* given = std::getenv("CUSIM_CUDNN_VERSION");
  return given ? std::atoll(given) : 91900;
}

}  // namespace cusim
