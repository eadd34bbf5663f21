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

// The logarithm of how many elements of the widest dtype of Operands::stored 16 bytes hold.
int log_pack_of(uint32_t stored) {
  int widest = 1;
  for (int at = 0; at < 24; at += 6) widest = std::max(widest, stored_size(stored >> at & 63));
  return 4 - __builtin_ctz(static_cast<unsigned>(widest));
}
bool is_aligned(const void* data, int bytes) {
  return reinterpret_cast<uintptr_t>(data) % static_cast<unsigned>(bytes) == 0;
}
unsigned blocks_for(int64_t work) {
  constexpr int64_t kMost = 1 << 22;  // kernels step by the grid beyond that
  return static_cast<unsigned>(std::clamp<int64_t>((work + kThreads - 1) / kThreads, 1, kMost));
}

// A call knows its stream, but where it is taken for one of another device.
inline CuStream stream_of(const RbCall* call, const Device& here) {
  const bool knows = call && call->keys[0] && call->device_index == here.index() &&
                     __builtin_ctzll(call->keys[0]) == backend_id;
  return knows ? static_cast<CuStream>(call->stream) : here.current_stream();
}

// `positions`: that threads are for; those of kFlat are counted here.
[[gnu::always_inline]] inline void start(const char* op, int dtype, const Expression& expression,
                                         const Operands& operands, const RbCall* call,
                                         Expression::Loop which, const void* layout,
                                         int64_t positions) {
  Device& here = device_of(operands.out);
  here.enter();
  const Expression::Found found =
      expression.function(here, op, Expression::key(which, here.index(), dtype, operands.stored()));
  const void* target = operands.out.data;
  const void* const* data = operands.data;
  const void* arguments[] = {&target, &data[0], &data[1], &data[2], &operands.call, layout};
  const int64_t work =
      which == Expression::kFlat ? (operands.out.numel >> found.log_pack) + 1 : positions;
  enqueue(here, stream_of(call, here), op, found.function, Grid{blocks_for(work), 1, 1, kThreads},
          const_cast<void**>(arguments));
}

// The loop of a call that has gaps, broadcasts, or begins between packs.
class Launch {
 public:
  Launch(const char* op, int dtype, const Expression& expression, Operands& operands,
         const RbCall* call)
      : op_(op),
        out_(operands.out),
        dtype_(dtype),
        expression_(expression),
        operands_(operands),
        call_(call),
        pack_(1 << log_pack_of(operands.stored())) {}

  void start_loop() {
    Layout layout =
        layout_of(op_, {&out_, operands_.tensors[0], operands_.tensors[1], operands_.tensors[2]},
                  expression_.reads_position() ? Order::kRowMajor : Order::kMemory);
    if (is_flat(layout)) return run(Expression::kFlat, &out_.numel, 0);
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
    return is_aligned(data, pack_ * stored_size(dtype));
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

  void run(Expression::Loop which, const void* layout, int64_t positions) const {
    start(op_, dtype_, expression_, operands_, call_, which, layout, positions);
  }

  const char* op_;
  const RbTensor& out_;
  const int dtype_;
  const Expression& expression_;
  Operands& operands_;
  const RbCall* call_;
  const int pack_;
};

}  // namespace

Expression::Expression(const std::string& text, const char* functions, Reads reads)
    : functions_(functions), reads_(reads) {
  static constexpr const char* kNames[kLoops] = {"RB_FLAT(", "RB_ROWS(", "RB_PLACES(",
                                                 "RB_PLACES64("};
  for (int i = 0; i < kLoops; ++i) loops_[i] = kNames[i] + text + ")\n";
}

Expression::Found Expression::find(Device& device, const char* op, Key key) const {
  const auto dtype = [&](int shift) { return static_cast<int>(key >> shift & 63); };
  const Kernel kernel{
      op,
      {{"T", dtype(24)}, {"O", dtype(18)}, {"A", dtype(12)}, {"B", dtype(6)}, {"C", dtype(0)}},
      kText_elementwise,
      loops_[key >> 32 & 15].c_str(),
      functions_};
  const Found found{key, function_of(device, kernel), log_pack_of(static_cast<uint32_t>(key))};
  auto made = std::make_unique<Found>(found);
  const Found* none = nullptr;
  if (slot(key).compare_exchange_strong(none, made.get(), std::memory_order_acq_rel))
    made.release();
  return found;
}

namespace {
[[gnu::noinline]] void general_loop(const char* op, int dtype, const Expression& expression,
                                    Operands& operands, const RbCall* call) {
  Launch(op, dtype, expression, operands, call).start_loop();
}
}  // namespace

void loop(const char* op, int dtype, const Expression& expression, Operands& operands,
          const RbCall* call) {
  const int64_t n = operands.out.numel;
  if (__builtin_expect(n == 0, 0)) return;
  if (__builtin_expect(!operands.are_alike(), 0))
    return general_loop(op, dtype, expression, operands, call);
  start(op, dtype, expression, operands, call, Expression::kFlat, &n, 0);
}

}  // namespace rbcuda
