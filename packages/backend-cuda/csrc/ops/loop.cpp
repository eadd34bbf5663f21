#include "ops/loop.h"

#include <algorithm>
#include <memory>

#include "launch/functions.h"
#include "launch/texts.h"
#include "ops/families.h"

namespace rbcuda {
namespace {

constexpr int kOperands = RB_EMIT_INPUTS;
constexpr unsigned kThreads = 256;

// 1 byte for a bool: what kernels/types.cuh stores.
int size_of(int dtype) {
  static constexpr int8_t kSizes[RB_DTYPE_COUNT] = {1, 1, 1, 2, 4, 8, 2, 4, 8, 2, 2, 4, 8, 8, 16};
  return dtype < RB_DTYPE_COUNT ? kSizes[dtype] : 1;
}
bool is_aligned(const void* data, int bytes) {
  return reinterpret_cast<uintptr_t>(data) % static_cast<unsigned>(bytes) == 0;
}
unsigned blocks_for(int64_t work) {
  constexpr int64_t kMost = 1 << 22;  // kernels step by the grid beyond that
  return static_cast<unsigned>(std::clamp<int64_t>((work + kThreads - 1) / kThreads, 1, kMost));
}

// One call: who reads what, with which dtypes.
class Launch {
 public:
  Launch(const char* op, const RbTensor& out, int dtype, const Expression& expression,
         Operands& operands, const RbCall* call)
      : op_(op),
        out_(out),
        dtype_(dtype),
        expression_(expression),
        operands_(operands),
        call_(call) {
    pack_ = size_of(out.dtype_id);
    for (int k = 0; k < kOperands; ++k) {
      const RbTensor* t = operands.tensors[k];
      stored_[k] = t ? t->dtype_id : out.dtype_id;
      data_[k] = t ? t->data : nullptr;
      if (!t) operands.call.is_number |= 1 << k;
      pack_ = std::max(pack_, size_of(stored_[k]));
    }
    pack_ = 16 / pack_;
  }

  // Tensors of one shape without gaps, such as those of most calls.
  bool try_flat() const {
    if (!(out_.flags & RB_T_CONTIGUOUS) || !packs_align(out_.data, out_.dtype_id)) return false;
    for (const RbTensor* t : operands_.tensors) {
      if (t && (!(t->flags & RB_T_CONTIGUOUS) || t->numel != out_.numel ||
                !packs_align(t->data, t->dtype_id)))
        return false;
    }
    flat();
    return true;
  }

  void general() {
    Layout layout =
        layout_of(op_, {&out_, operands_.tensors[0], operands_.tensors[1], operands_.tensors[2]},
                  expression_.reads_position() ? Order::kRowMajor : Order::kMemory);
    if (is_flat(layout)) return flat();
    if (!expression_.reads_position() && try_rows(layout)) return;
    Layout32 narrow;
    if (fits_32(layout, &narrow)) {
      run(Expression::kPlaces, &narrow, (layout.n + 3) / 4);
    } else {
      run(Expression::kPlaces64, &layout, layout.n);
    }
  }

 private:
  bool packs_align(const void* data, int dtype) const {
    return is_aligned(data, pack_ * size_of(dtype));
  }
  bool all_align() const {
    bool align = packs_align(out_.data, out_.dtype_id);
    for (const RbTensor* t : operands_.tensors)
      align = align && (!t || packs_align(t->data, t->dtype_id));
    return align;
  }
  bool is_flat(const Layout& layout) const {
    if (layout.ndim != 1 || layout.strides[0][0] != 1 || !all_align()) return false;
    for (int k = 0; k < kOperands; ++k) {
      if (operands_.tensors[k] && layout.strides[k + 1][0] != 1) return false;
    }
    return true;
  }
  void flat() const {
    const int64_t n = out_.numel;
    run(Expression::kFlat, &n, n / pack_ + 1);
  }

  // Lines along the last dimension that begin where packs do: a bias, a scale, parts of tensors.
  bool try_rows(Layout layout) {
    const int last = layout.ndim - 1;
    if (layout.strides[0][last] != 1 || layout.shape[last] % pack_ || !all_align()) return false;
    int singles = 0;
    for (int k = 0; k <= kOperands; ++k) {
      int64_t(&strides)[kLayoutDims] = layout.strides[k];
      if (k > 0 && !operands_.tensors[k - 1]) continue;
      if (strides[last] == 0) {
        singles |= 1 << (k - 1);
        continue;
      }
      if (strides[last] != 1) return false;
      for (int d = 0; d < last; ++d) {
        if (strides[d] % pack_) return false;
      }
      strides[last] = pack_;
    }
    layout.shape[last] /= pack_;
    layout.n /= pack_;
    Layout32 packs;
    if (!fits_32(layout, &packs)) return false;
    operands_.call.is_single = singles;
    run(Expression::kRows, &packs, layout.n);
    return true;
  }

  void run(Expression::Loop which, const void* layout, int64_t work) const {
    Device& here = device_of(out_);
    here.enter();
    const CuFunction function = expression_.function(
        here, op_, Expression::key(which, here.index(), dtype_, out_.dtype_id, stored_));
    const void* target = out_.data;
    const void* arguments[] = {&target, &data_[0], &data_[1], &data_[2], &operands_.call, layout};
    enqueue(here, stream(here), op_, function, Grid{blocks_for(work), 1, 1, kThreads},
            const_cast<void**>(arguments));
  }
  // A call knows its stream, but where it is taken for one of another device.
  CuStream stream(const Device& here) const {
    const bool knows = call_ && call_->keys[0] && call_->device_index == here.index() &&
                       __builtin_ctzll(call_->keys[0]) == backend_id;
    return knows ? static_cast<CuStream>(call_->stream) : here.current_stream();
  }

  const char* op_;
  const RbTensor& out_;
  const int dtype_;
  const Expression& expression_;
  Operands& operands_;
  const RbCall* call_;
  const void* data_[kOperands];
  int stored_[kOperands], pack_;
};

}  // namespace

Expression::Expression(const std::string& text, const char* functions, Reads reads)
    : functions_(functions), reads_(reads) {
  static constexpr const char* kNames[kLoops] = {"RB_FLAT(", "RB_ROWS(", "RB_PLACES(",
                                                 "RB_PLACES64("};
  for (int i = 0; i < kLoops; ++i) loops_[i] = kNames[i] + text + ")\n";
}

CuFunction Expression::find(Device& device, const char* op, Key key) const {
  const auto dtype = [&](int shift) { return static_cast<int>(key >> shift & 63); };
  const Kernel kernel{
      op,
      {{"T", dtype(24)}, {"O", dtype(18)}, {"A", dtype(12)}, {"B", dtype(6)}, {"C", dtype(0)}},
      kText_elementwise,
      loops_[key >> 32 & 15].c_str(),
      functions_};
  const CuFunction function = function_of(device, kernel);
  auto made = std::make_unique<Found>(Found{key, function});
  const Found* none = nullptr;
  if (slot(key).compare_exchange_strong(none, made.get(), std::memory_order_acq_rel))
    made.release();
  return function;
}

void loop(const char* op, const RbTensor& out, int dtype, const Expression& expression,
          Operands& operands, const RbCall* call) {
  if (out.numel == 0) return;
  Launch launch(op, out, dtype, expression, operands, call);
  if (!launch.try_flat()) launch.general();
}

}  // namespace rbcuda
