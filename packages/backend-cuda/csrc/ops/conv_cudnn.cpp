#include "ops/conv_cudnn.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "device/device.h"
#include "driver/cudnn.h"
#include "launch/temporary.h"
#include "launch/view.h"
#include "ops/loop.h"
#include "ops/settings.h"

namespace rbcuda {
namespace {

constexpr int kMostDims = 5, kTensors = 3;  // x, w and y
constexpr int64_t kNames[kTensors] = {'x', 'w', 'y'};

// Equal questions have equal answers.
struct Question {
  int32_t device, dtype, result, ndim, tf32, deterministic;
  int64_t shapes[kTensors][kMostDims], strides[kTensors][kMostDims], aligned[kTensors];
  int64_t stride[3], padding[3], dilation[3];
};
static_assert(std::has_unique_object_representations_v<Question>);

// cuDNN has no tensors of 3 dimensions: a dimension of size 1 comes before the last.
Question question_of(const Convolution& c) {
  Question q = {};
  const RbTensor* const tensors[] = {c.x, c.w, c.y};
  const int ndim = c.x->ndim, missing = ndim == 3 ? 1 : 0, rank = ndim - 2;
  q.device = c.x->device.id;
  q.dtype = c.x->dtype_id;
  q.result = c.result;
  q.ndim = ndim + missing;
  q.tf32 = q.dtype == RB_F32 && setting("cudnn.allow_tf32", 1);
  q.deterministic = setting("cudnn.deterministic", 0) || setting("deterministic", 0);
  for (int k = 0; k < kTensors; ++k) {
    const RbTensor& t = *tensors[k];
    const auto address = reinterpret_cast<uintptr_t>(t.data);
    q.aligned[k] = std::min<int64_t>(16, address & -address ? address & -address : 16);
    for (int d = 0; d < ndim; ++d) {
      const int to = d < 2 ? d : d + missing;
      q.shapes[k][to] = t.shape[d];
      q.strides[k][to] = t.strides[d];
    }
    if (missing) {
      q.shapes[k][2] = 1;
      q.strides[k][2] = t.strides[2] * t.shape[2];
    }
  }
  for (int d = 0; d < rank + missing; ++d) {
    const int from = d - missing;
    const auto at = [&](rb::Span<int64_t> s, int64_t otherwise) {
      return from < 0 ? otherwise : s[s.len == 1 ? 0 : from];
    };
    q.stride[d] = at(c.stride, 1);
    q.padding[d] = at(c.padding, 0);
    q.dilation[d] = at(c.dilation, 1);
  }
  return q;
}

std::string key_of(const Question& q) {
  return std::string(reinterpret_cast<const char*>(&q), sizeof q);
}

// ---- descriptors

struct Destroy {
  void operator()(void* descriptor) const { cudnn()->destroy(descriptor); }
};
using Owned = std::unique_ptr<void, Destroy>;

class Maker {
 public:
  Maker(int device, int kind) : device_(device) {
    DnnDescriptor made = nullptr;
    check_cudnn(cudnn()->make(kind, &made), device, "cudnnBackendCreateDescriptor");
    made_.reset(made);
  }
  template <class T>
  Maker& set(int attribute, int type, const T* values, int64_t count = 1) {
    check_cudnn(cudnn()->set(made_.get(), attribute, type, count, values), device_,
                "cudnnBackendSetAttribute");
    return *this;
  }
  Maker& set(int attribute, const Owned& descriptor) {
    void* raw = descriptor.get();
    return set(attribute, kDnnAsDescriptor, &raw);
  }
  Owned finish() {
    check_cudnn(cudnn()->finalize(made_.get()), device_, "cudnnBackendFinalize");
    return release();
  }
  /// As it is: finalized by somebody else, or filled by cuDNN.
  Owned release() { return std::move(made_); }

 private:
  int device_;
  Owned made_;
};

int data_type(int dtype) {
  return dtype == RB_F16 ? kDnnHalf : dtype == RB_BF16 ? kDnnBFloat16 : kDnnFloat;
}

Owned tensor(const Question& q, int k) {
  const int stored = data_type(q.dtype);
  return Maker(q.device, kDnnTensor)
      .set(kDnnTensorType, kDnnAsDataType, &stored)
      .set(kDnnTensorShape, kDnnAsInt64, q.shapes[k], q.ndim)
      .set(kDnnTensorStrides, kDnnAsInt64, q.strides[k], q.ndim)
      .set(kDnnTensorName, kDnnAsInt64, &kNames[k])
      .set(kDnnTensorAlignment, kDnnAsInt64, &q.aligned[k])
      .finish();
}

Owned convolution(const Question& q) {
  const int64_t dims = q.ndim - 2;
  const int computes = kDnnFloat, mode = kDnnCrossCorrelation;
  return Maker(q.device, kDnnConvolution)
      .set(kDnnConvolutionDims, kDnnAsInt64, &dims)
      .set(kDnnConvolutionCompute, kDnnAsDataType, &computes)
      .set(kDnnConvolutionMode, kDnnAsConvolutionMode, &mode)
      .set(kDnnConvolutionPaddingBefore, kDnnAsInt64, q.padding, dims)
      .set(kDnnConvolutionPaddingAfter, kDnnAsInt64, q.padding, dims)
      .set(kDnnConvolutionDilations, kDnnAsInt64, q.dilation, dims)
      .set(kDnnConvolutionStrides, kDnnAsInt64, q.stride, dims)
      .finish();
}

// The kinds of operation and the numbers of their attributes, by what is computed.
struct Operation {
  int kind, alpha, beta, convolution, tensors[kTensors];
};
constexpr Operation kOperations[] = {
    {kDnnForward, 700, 701, 702, {704, 703, 705}},
    {kDnnBackwardData, 706, 707, 708, {710, 709, 711}},
    {kDnnBackwardFilter, 712, 713, 714, {716, 715, 717}},
};

Owned graph(const Question& q, DnnHandle handle) {
  const Operation& o = kOperations[q.result];
  const float one = 1, none = 0;
  Maker operation(q.device, o.kind);
  for (int k = 0; k < kTensors; ++k) operation.set(o.tensors[k], tensor(q, k));
  operation.set(o.convolution, convolution(q))
      .set(o.alpha, kDnnAsFloat, &one)
      .set(o.beta, kDnnAsFloat, &none);
  return Maker(q.device, kDnnGraph)
      .set(kDnnGraphHandle, kDnnAsHandle, &handle)
      .set(kDnnGraphOperations, operation.finish())
      .finish();
}

// ---- engines

constexpr int kConfigEngine = 300, kEngine = 2, kEngineNotes = 1303, kAsNote = 11;
constexpr int kNoteTensorCore = 0, kNoteLessPrecise = 1, kNoteVaries = 4, kMostNotes = 16;

// Whether the engine keeps to what the user allows.
bool is_allowed(const Question& q, const Owned& config) {
  Owned engine = Maker(q.device, kEngine).release();
  void* raw = engine.get();
  int64_t count = 0;
  if (cudnn()->get(config.get(), kConfigEngine, kDnnAsDescriptor, 1, &count, &raw)) return false;
  int notes[kMostNotes];
  if (cudnn()->get(raw, kEngineNotes, kAsNote, kMostNotes, &count, notes)) return false;
  return std::none_of(notes, notes + std::min<int64_t>(count, kMostNotes), [&](int note) {
    return note == kNoteLessPrecise || (note == kNoteVaries && q.deterministic) ||
           (note == kNoteTensorCore && q.dtype == RB_F32 && !q.tf32);
  });
}

std::vector<Owned> configs(const Question& q, const Owned& graph, int mode) {
  constexpr int kMost = 16;
  std::vector<Owned> found;
  const Owned heuristics = Maker(q.device, kDnnHeuristics)
                               .set(kDnnHeuristicsGraph, graph)
                               .set(kDnnHeuristicsMode, kDnnAsHeuristicsMode, &mode)
                               .finish();
  void* raw[kMost];
  for (void*& config : raw) {
    found.push_back(Maker(q.device, kDnnEngineConfig).release());
    config = found.back().get();
  }
  int64_t count = 0;
  const int status =
      cudnn()->get(heuristics.get(), kDnnHeuristicsResults, kDnnAsDescriptor, kMost, &count, raw);
  found.resize(status ? 0 : std::min<int64_t>(count, kMost));
  return found;
}

struct Plan {
  Owned plan;  // null: cuDNN does not know it
  int64_t workspace = 0;
};

Plan first_that_works(const Question& q, DnnHandle handle) {
  const Owned whole = graph(q, handle);
  for (const int mode : {kDnnModeA, kDnnModeFallback}) {
    for (const Owned& config : configs(q, whole, mode)) {
      if (!is_allowed(q, config)) continue;
      Maker maker(q.device, kDnnPlan);
      maker.set(kDnnPlanHandle, kDnnAsHandle, &handle).set(kDnnPlanConfig, config);
      Plan found;
      found.plan = maker.release();
      if (cudnn()->finalize(found.plan.get())) continue;
      int64_t count = 0;
      check_cudnn(cudnn()->get(found.plan.get(), kDnnPlanWorkspace, kDnnAsInt64, 1, &count,
                               &found.workspace),
                  q.device, "cudnnBackendGetAttribute");
      return found;
    }
  }
  return {};
}

Plan plan_of(const Question& q, DnnHandle handle) {
  try {
    return first_that_works(q, handle);
  } catch (const rb::Error& error) {
    if (error.code() != RB_E_NOTIMPL) throw;
    return {};
  }
}

// Handles and plans of all devices; one call at a time.
struct Plans {
  /// Null, with one warning, where cuDNN does not start on the device.
  DnnHandle handle(int device) {
    const auto [at, is_new] = handles.try_emplace(device, nullptr);
    if (!is_new) return at->second;
    if (const int status = cudnn()->create(&at->second)) {
      at->second = nullptr;
      const std::string text = "cuda:" + std::to_string(device) +
                               ": cuDNN does not start (status " + std::to_string(status) +
                               "); convolutions go on without it";
      rb::host->log(2, text.c_str());
    }
    return at->second;
  }

  std::mutex mutex;
  std::unordered_map<int, DnnHandle> handles;
  std::unordered_map<std::string, Plan> plans;
};
Plans& plans() {
  static auto* instance = new Plans;  // never destroyed: the driver may be gone by then
  return *instance;
}

void execute(const Question& q, const Plan& plan, DnnHandle handle, const Convolution& c) {
  const Temporary workspace = plan.workspace > 0 ? Temporary(*c.x, plan.workspace) : Temporary();
  void* const data[] = {c.x->data, c.w->data, c.y->data};
  void* const room = workspace.data();
  const Owned pack = Maker(q.device, kDnnVariantPack)
                         .set(kDnnPackNames, kDnnAsInt64, kNames, kTensors)
                         .set(kDnnPackPointers, kDnnAsPointer, data, kTensors)
                         .set(kDnnPackWorkspace, kDnnAsPointer, &room)
                         .finish();
  check_cudnn(cudnn()->set_stream(handle, device(q.device).current_stream()), q.device,
              "cudnnSetStream");
  check_cudnn(cudnn()->execute(handle, plan.plan.get(), pack.get()), q.device,
              "cudnnBackendExecute");
}

bool may_be_tried(const Convolution& c) {
  constexpr int kKnown[] = {RB_F16, RB_BF16, RB_F32};
  const int dtype = c.x->dtype_id;
  return std::find(std::begin(kKnown), std::end(kKnown), dtype) != std::end(kKnown) &&
         c.w->dtype_id == dtype && c.y->dtype_id == dtype && c.x->ndim <= kMostDims && c.x->numel &&
         c.w->numel && c.y->numel && setting("cudnn.enabled", 1);
}

bool convolve(const Convolution& c) {
  device_of(*c.x).enter();
  const Question q = question_of(c);
  Plans& all = plans();
  std::lock_guard<std::mutex> lock(all.mutex);
  const DnnHandle handle = all.handle(q.device);
  if (!handle) return false;
  const auto [at, is_new] = all.plans.try_emplace(key_of(q));
  if (is_new) at->second = plan_of(q, handle);
  if (!at->second.plan) return false;
  execute(q, at->second, handle, c);
  return true;
}

// One number for each channel.
void add_bias(const Convolution& c) {
  static const Expression sum("a + b");
  View bias = scalar_view(*c.bias);
  bias.add(c.bias->shape[0], c.bias->strides[0]);
  for (int d = 2; d < c.y->ndim; ++d) bias.add(1, 0);
  const RbValue values[] = {read_value(*c.y), read_value(bias.tensor())};
  Operands operands(*c.y, 2, values);
  loop(c.op, computed(c.y->dtype_id), sum, operands);
}

}  // namespace

bool convolve_by_library(const Convolution& c) {
  if (!may_be_tried(c) || !cudnn() || !convolve(c)) return false;
  if (c.bias) add_bias(c);
  return true;
}

}  // namespace rbcuda
