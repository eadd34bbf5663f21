// Graphs of attention as cuDNN's engines know them: the operations of the formula one by one, which
// they fuse. Scores are never in memory. Not here: masks but the causal one (a row that sees no key
// is ours to define), broadcast heads, dropout (its numbers are not ours), gradients of the
// logarithms of sums.
#include "ops/attention_cudnn.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>

#include "device/device.h"
#include "launch/temporary.h"
#include "ops/dnn_graph.h"
#include "ops/dnn_plans.h"
#include "ops/families.h"
#include "ops/library_plans.h"
#include "ops/settings.h"

namespace rbcuda {
namespace {

enum Name : int64_t {
  kQuery = 1,
  kKey,
  kValue,
  kOut,
  kSums,
  kGrad,
  kDQuery,
  kDKey,
  kDValue,
  kDelta,     // of each row: sum of gradient times output
  kAddition,  // where the query's gradient is added up
  kScale,
  kMinusInfinity,
  kOne,
  kNames,
};

// Equal questions have equal answers.
struct Question {
  int64_t family = kDoAttention;
  int32_t device, type, causal, backward, deterministic, unused = 0;
  DnnShape shapes[kNames];
  int64_t aligned[kNames];

  static constexpr int64_t kDoAttention = 'a';
};
static_assert(std::has_unique_object_representations_v<Question>);

std::string key_of(const Question& q) {
  return std::string(reinterpret_cast<const char*>(&q), sizeof q);
}

using Maker = DnnGraphMaker;
using Tensor = Maker::Tensor;

Tensor memory(Maker& graph, const Question& q, Name name, int type) {
  return graph.memory(name, type, q.shapes[name], q.aligned[name]);
}
Tensor memory(Maker& graph, const Question& q, Name name) { return memory(graph, q, name, q.type); }
// Read as its transpose.
Tensor turned(Maker& graph, const Question& q, Name name) {
  return graph.memory(name, q.type, q.shapes[name].turned(), q.aligned[name]);
}
DnnShape scores_of(const Question& q) {
  const DnnShape &query = q.shapes[kQuery], &key = q.shapes[kKey];
  return DnnShape::rows(query.size[0], query.size[1], query.size[2], key.size[2]);
}
DnnShape rows_of(const Question& q) {
  const DnnShape& query = q.shapes[kQuery];
  return DnnShape::rows(query.size[0], query.size[1], query.size[2], 1);
}

// Keys behind the query's position get minus infinity.
Tensor masked(Maker& graph, const Question& q, Tensor scores) {
  if (!q.causal) return scores;
  const DnnShape shape = scores_of(q);
  const auto index = [&](int64_t axis) {
    return graph.pointwise(kDnnIndex, {scores}, graph.between(kDnnInt32, shape), kDnnInt32, axis);
  };
  const Tensor row = index(2), column = index(3);
  const Tensor seen =
      graph.pointwise(kDnnAtLeast, {row, column}, graph.between(kDnnBoolean, shape), kDnnBoolean);
  return graph.pointwise(kDnnSelect, {scores, graph.number(kMinusInfinity), seen},
                         graph.between(kDnnFloat, shape));
}

Tensor scaled_scores(Maker& graph, const Question& q, Tensor query, Tensor scale) {
  const DnnShape shape = scores_of(q);
  const Tensor product = graph.between(kDnnFloat, shape);
  graph.multiply(query, turned(graph, q, kKey), product);
  return graph.pointwise(kDnnMultiply, {product, scale}, graph.between(kDnnFloat, shape));
}

DnnOwned forward_graph(const void* question, DnnHandle handle) {
  const Question& q = *static_cast<const Question*>(question);
  Maker graph(q.device);
  const DnnShape scores = scores_of(q), rows = rows_of(q);
  const auto whole = [&] { return graph.between(kDnnFloat, scores); };
  const auto row = [&] { return graph.between(kDnnFloat, rows); };
  Tensor x = scaled_scores(graph, q, memory(graph, q, kQuery), graph.number(kScale));
  x = masked(graph, q, x);
  const Tensor largest = row(), sum = row(), weights = graph.between(q.type, scores);
  graph.reduce(kDnnReduceMax, x, largest);
  x = graph.pointwise(kDnnSubtract, {x, largest}, whole());
  x = graph.pointwise(kDnnExp, {x}, whole());
  graph.reduce(kDnnReduceAdd, x, sum);
  const Tensor logs = graph.pointwise(kDnnLog, {sum}, row());
  graph.pointwise(kDnnAdd, {largest, logs}, memory(graph, q, kSums, kDnnFloat));
  graph.pointwise(kDnnDivide, {x, sum}, weights);
  graph.multiply(weights, memory(graph, q, kValue), memory(graph, q, kOut));
  return graph.finish(handle);
}

// Before 9.6.0 the caller fills the accumulator of the query's gradient with zeros and declares its
// order F16x16. Later engines fill it themselves; it is in plain rows then.
bool caller_prepares_accumulator() {
  constexpr int64_t kFilledByEngines = 90600;
  return cudnn_version() < kFilledByEngines;
}

// A product of the transposed weights (or their gradient) with rows, for keys or values. Heads that
// share one of them add up.
void multiply_turned(Maker& graph, const Question& q, Tensor weights, Tensor rows, Name out) {
  const DnnShape& to = q.shapes[out];
  const int64_t heads = q.shapes[kQuery].size[1];
  const Tensor across = graph.between(q.type, scores_of(q).turned());
  graph.reshape(weights, across);
  if (to.size[1] == heads) return graph.multiply(across, rows, memory(graph, q, out));
  const Tensor each =
      graph.between(q.type, DnnShape::rows(to.size[0], heads, to.size[2], to.size[3]));
  graph.multiply(across, rows, each);
  graph.reduce(kDnnReduceAdd, each, memory(graph, q, out));
}

DnnOwned backward_graph(const void* question, DnnHandle handle) {
  const Question& q = *static_cast<const Question*>(question);
  Maker graph(q.device);
  const DnnShape scores = scores_of(q), rows = rows_of(q);
  const auto whole = [&] { return graph.between(kDnnFloat, scores); };
  const Tensor query = memory(graph, q, kQuery), grad = memory(graph, q, kGrad);
  const Tensor scale = graph.number(kScale);

  const DnnShape& value = q.shapes[kOut];
  const Tensor products = graph.between(
      kDnnFloat, DnnShape::rows(value.size[0], value.size[1], value.size[2], value.size[3]));
  const Tensor sum = graph.between(kDnnFloat, rows), delta = memory(graph, q, kDelta, kDnnFloat);
  graph.pointwise(kDnnMultiply, {grad, memory(graph, q, kOut)}, products);
  graph.reduce(kDnnReduceAdd, products, sum);
  graph.pointwise(kDnnMultiply, {sum, graph.number(kOne)}, delta);

  Tensor x = scaled_scores(graph, q, query, scale);
  x = graph.pointwise(kDnnSubtract, {x, memory(graph, q, kSums, kDnnFloat)}, whole());
  x = masked(graph, q, x);
  const Tensor weights = graph.pointwise(kDnnExp, {x}, whole());
  multiply_turned(graph, q, weights, grad, kDValue);

  x = whole();
  graph.multiply(grad, turned(graph, q, kValue), x);
  x = graph.pointwise(kDnnSubtract, {x, delta}, whole());
  x = graph.pointwise(kDnnMultiply, {x, weights}, whole());
  const Tensor dscores = graph.pointwise(kDnnMultiply, {x, scale}, whole());
  multiply_turned(graph, q, dscores, query, kDKey);

  const Tensor key = graph.between(q.type, q.shapes[kKey]);
  graph.reshape(turned(graph, q, kKey), key);
  const Tensor dquery = memory(graph, q, kDQuery);
  if (q.deterministic) {
    graph.multiply(dscores, key, dquery);
  } else {
    const int reordering = caller_prepares_accumulator() ? kDnnF16x16 : kDnnPlain;
    const Tensor added =
        graph.memory(kAddition, kDnnFloat, q.shapes[kAddition], q.aligned[kAddition], reordering);
    graph.multiply(dscores, key, added);
    graph.pointwise(kDnnIdentity, {added}, dquery);
  }
  return graph.finish(handle);
}

// ---- calls

int64_t aligned(const void* data) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  return std::min<int64_t>(16, address & -address ? address & -address : 16);
}
// Batch, head, row, column; of the sums, `behind` 0, the column is one.
DnnShape shape_of(const RbTensor& t, int behind = 1) {
  DnnShape shape = DnnShape::rows(1, 1, 1, 1);
  const int ndim = t.ndim + 1 - behind;  // with the column
  for (int d = 0; d < t.ndim; ++d) {
    // Of (batch, row, column) the head is 1.
    const int to = ndim == 3 && d == 0 ? 0 : d + 4 - ndim;
    shape.size[to] = t.shape[d];
    shape.stride[to] = t.strides[d];
  }
  for (int d = 2; d >= 0; --d)
    if (shape.size[d] == 1) shape.stride[d] = shape.size[d + 1] * shape.stride[d + 1];
  return shape;
}

// Sizes that a fused engine may know, of rows that lie together.
bool may_be_known(const RbTensor& t, int dtype, int ndim) {
  if (t.dtype_id != dtype || t.ndim != ndim || t.numel == 0) return false;
  const int64_t size = t.shape[ndim - 1];
  if (t.strides[ndim - 1] != 1 || size % 8 || size > 256) return false;
  for (int d = 0; d < ndim - 1; ++d)
    if (t.shape[d] > 1 && t.strides[d] < size) return false;  // broadcast
  return true;
}
bool are_alike(const RbTensor& a, const RbTensor& b, int dims) {
  return std::equal(a.shape, a.shape + dims, b.shape);
}

int sm_of(const Device& device) { return std::atoi(device.architecture().c_str() + 3); }

bool is_for_library(const RbTensor& q, const RbTensor& k, const RbTensor& v, const RbTensor& out,
                    const RbTensor* mask, bool grouped) {
  constexpr int kOldest = 80;  // sm_80: the first with bfloat16 on tensor cores
  const int dtype = out.dtype_id, ndim = out.ndim;
  if ((dtype != RB_F16 && dtype != RB_BF16) || mask || ndim < 2 || ndim > 4) return false;
  for (const RbTensor* t : {&q, &k, &v})
    if (!may_be_known(*t, dtype, ndim)) return false;
  const int heads = grouped ? ndim - 3 : ndim - 2;
  if (heads < 0 || !are_alike(q, out, heads) || !are_alike(k, q, heads) ||
      !are_alike(k, v, ndim - 2))
    return false;
  return setting("cudnn.enabled", 1) && cudnn() && sm_of(device_of(out)) >= kOldest;
}

// ---- where NVIDIA's front end (cudnn-frontend) refuses a call or works around a fault

// 9.10.0 and 9.10.1 have known faults.
bool version_is_sound() { return cudnn_version() != 91000 && cudnn_version() != 91001; }

// `size` is that of the query's heads, `value_size` that of the value's.
bool backward_knows_heads(int sm, int64_t size, int64_t value_size) {
  const int64_t version = cudnn_version(), larger = std::max(size, value_size);
  if (sm / 10 == 10 && version >= 91100 && size == 192) return value_size == 128;
  if (sm / 10 != 9) return larger <= 128;
  const bool between = size > 128 && size <= 192 && value_size > 64 && value_size <= 128;
  return version < 91100 || version >= 91300 || !between || size == 192 || value_size == 128;
}

// One query with a causal mask: versions up to 9.9 refuse it, and release notes warn of it.
bool forward_is_sound(const Question& q) { return !q.causal || q.shapes[kQuery].size[2] > 1; }

bool backward_is_sound(const Question& q, int sm) {
  const int64_t version = cudnn_version(), keys = q.shapes[kKey].size[2];
  if (q.shapes[kQuery].size[2] == 1 && keys == 1) return false;
  // Up to 9.15.0 it reads out of bounds if the keys do not fill its tiles.
  if (version <= 91500 && keys % 128) return false;
  // Before 9.26.0 it assumes that the logarithms of sums have no gaps.
  const DnnShape rows = rows_of(q);
  if (version < 92600 && !std::equal(rows.stride, rows.stride + 3, q.shapes[kSums].stride))
    return false;
  // On sm_100 deterministic results need an engine that is selected by number.
  if (q.deterministic && sm / 10 == 10) return false;
  return backward_knows_heads(sm, q.shapes[kQuery].size[3], q.shapes[kOut].size[3]);
}

// ---- what is worth a plan

constexpr int64_t kFewQueries = 16;    // fewer do not fill a tile
constexpr int kCallsBeforePlan = 64;   // more than the layers of most models call for one prompt
constexpr size_t kMostCounted = 4096;  // questions on each device

struct Calls {
  std::mutex mutex;
  LruCache<std::string, int> counts{kMostCounted};
};

// Whether the question has been asked often, or is captured and will be replayed. A plan on disk
// makes no difference, so that runs are reproducible.
bool recurs(const Question& q, CuStream stream) {
  if (q.shapes[kQuery].size[2] < kFewQueries) return false;
  Calls& calls = state_of<Calls>(q.device);
  const std::lock_guard<std::mutex> lock(calls.mutex);
  int& count = calls.counts.get(key_of(q));
  if (count == kCallsBeforePlan || is_capturing(stream)) return true;
  ++count;
  return false;
}

float scale_of(const rb::Args& a, int i, const RbTensor& q) {
  return static_cast<float>(a.has(i) ? a.real(i)
                                     : 1.0 / std::sqrt(static_cast<double>(q.shape[q.ndim - 1])));
}
// Older versions do not take the infinity.
float minus_infinity() {
  constexpr int64_t kTakesIt = 91000;
  return cudnn_version() < kTakesIt ? std::numeric_limits<float>::lowest()
                                    : -std::numeric_limits<float>::infinity();
}

class Call {
 public:
  Call(const char* op, const RbTensor& out, bool causal, bool backward) : op_(op), out_(out) {
    question_.device = out.device.id;
    question_.type = dnn_data_type(out.dtype_id);
    question_.causal = causal;
    question_.backward = backward;
    question_.deterministic = dnn_deterministic();
  }
  void add(Name name, const RbTensor& t, int behind = 1) {
    question_.shapes[name] = shape_of(t, behind);
    question_.aligned[name] = aligned(t.data);
    data_[name] = t.data;
  }
  void add(Name name, float* number) { data_[name] = number; }
  const Question& question() const { return question_; }
  bool is_wanted(bool only) const {
    Device& here = device_of(out_);
    here.enter();
    return only || recurs(question_, here.current_stream());
  }

  DnnProblem problem() const {
    return {op_,
            question_.device,
            key_of(question_),
            true,
            question_.deterministic != 0,
            question_.backward ? backward_graph : forward_graph,
            &question_};
  }
  std::vector<DnnMemory> memory() const {
    std::vector<DnnMemory> all;
    for (int64_t name = kQuery; name < kNames; ++name)
      if (data_[name]) all.push_back({name, data_[name]});
    return all;
  }

 private:
  const char* op_;
  const RbTensor& out_;
  Question question_ = {};
  void* data_[kNames] = {};
};

}  // namespace

bool attend_by_library(const rb::Args& a, bool only) {
  if (a.real(7) != 0) return false;
  const RbTensor &q = a.tensor(0), &k = a.tensor(1), &v = a.tensor(2), &out = a.ret(0);
  if (a.ret(1).dtype_id != RB_F32 ||
      !is_for_library(q, k, v, out, a.optional_tensor(3), a.boolean(6)))
    return false;
  float scale = scale_of(a, 5, q), hidden = minus_infinity();
  Call call(a.op_name(), out, a.boolean(4), false);
  call.add(kQuery, q);
  call.add(kKey, k);
  call.add(kValue, v);
  call.add(kOut, out);
  call.add(kSums, a.ret(1), 0);
  call.add(kScale, &scale);
  if (a.boolean(4)) call.add(kMinusInfinity, &hidden);
  if (!version_is_sound() || !forward_is_sound(call.question()) || !call.is_wanted(only))
    return false;
  return run_by_dnn(call.problem(), out, call.memory());
}

bool attend_backward_by_library(const rb::Args& a, bool only) {
  const RbTensor &g = a.tensor(0), &q = a.tensor(2), &k = a.tensor(3), &v = a.tensor(4),
                 &out = a.tensor(6), &sums = a.tensor(7);
  if (a.real(11) != 0 || a.optional_tensor(1) || sums.dtype_id != RB_F32 ||
      !is_for_library(q, k, v, out, a.optional_tensor(5), a.boolean(10)))
    return false;
  const RbTensor* const rest[] = {&g, &out, &a.ret(0), &a.ret(1), &a.ret(2)};
  for (const RbTensor* t : rest)
    if (!may_be_known(*t, out.dtype_id, out.ndim)) return false;
  float scale = scale_of(a, 9, q), hidden = minus_infinity(), one = 1;
  Call call(a.op_name(), out, a.boolean(8), true);
  call.add(kQuery, q);
  call.add(kKey, k);
  call.add(kValue, v);
  call.add(kOut, out);
  call.add(kSums, sums, 0);
  call.add(kGrad, g);
  call.add(kDQuery, a.ret(0));
  call.add(kDKey, a.ret(1));
  call.add(kDValue, a.ret(2));
  call.add(kScale, &scale);
  call.add(kOne, &one);
  if (a.boolean(8)) call.add(kMinusInfinity, &hidden);
  if (!version_is_sound() || !backward_is_sound(call.question(), sm_of(device_of(out))) ||
      !call.is_wanted(only))
    return false;
  const bool adds = !call.question().deterministic;
  Temporary delta, addition;
  try {
    delta = Temporary(sums, RB_F32, sums.ndim, sums.shape);
    if (adds) addition = Temporary(q, RB_F32, q.ndim, q.shape);
  } catch (const rb::Stored& error) {
    if (error.code != RB_E_OOM) throw;
    return false;
  }
  call.add(kDelta, delta.tensor(), 0);
  if (adds) call.add(kAddition, addition.tensor());
  return run_by_dnn(call.problem(), out, call.memory(), [&] {
    if (adds && caller_prepares_accumulator())
      fill(a.op_name(), addition.tensor(), rb::int_value(0), rb::int_value(0));
  });
}

}  // namespace rbcuda
