// All steps of a recurrent layer in one launch, by kernels/sequence.cuh.
#include <algorithm>

#include "launch/texts.h"
#include "ops/recurrent.h"

namespace rbcuda {
namespace {

constexpr int64_t kSequences = 4;    // of a block: RB_SEQUENCES
constexpr int64_t kMostUnits = 128;  // RB_UNITS

struct Sequence {  // twin of the kernel's
  int64_t steps, batch, hidden, reverse;
  const void* offsets;
};
constexpr int64_t kOffsets = 256;  // of a launch
struct Offsets {                   // twin of the kernel's
  int64_t first, count, at[kOffsets];
};

int64_t divided(int64_t n, int64_t by) { return (n + by - 1) / by; }

// What both directions launch: the weight in the kernel's order, and a packed batch's offsets.
class Call {
 public:
  Call(const RecurrentLayer& l, const RbTensor& weight, bool turned)
      : l_(l),
        threads_(divided(l.hidden * kSequences, 32) * 32),
        wide_(l.mode.gates == 3 ? 4 : l.mode.gates),
        weight_(l.h0, divided(l.hidden, kSequences) * threads_ * wide_ * l.element_size()) {
    order_weight(weight, turned);
    if (l.a.ints(turned ? 13 : 6).len) write_offsets();
    sequence_ = {l.steps.count(), l.batch, l.hidden, l.steps.reverse, offsets_.data()};
  }
  void launch_with(const char* behind, void** arguments) {
    const Kernel kernel{l_.a.op_name(), {{"A", l_.dtype}, {"T", l_.sums}}, kText_sequence, behind};
    const auto blocks = static_cast<unsigned>(divided(l_.batch, kSequences));
    launch(l_.device(), kernel, Grid{blocks, 1, 1, static_cast<unsigned>(threads_)}, arguments);
  }
  void* weight() const { return weight_.data(); }
  Sequence* sequence() { return &sequence_; }

 private:
  void order_weight(const RbTensor& weight, bool turned) {
    const Kernel kernel{l_.a.op_name(),
                        {{"A", unit_dtype(l_.element_size())}, {"T", RB_F32}},
                        kText_sequence,
                        "RB_SEQUENCE_WEIGHT()\n"};
    void *to = weight_.data(), *from = weight.data;
    int64_t n = l_.hidden, gates = l_.mode.gates, wide = wide_, threads = threads_, turn = turned;
    void* arguments[] = {&to, &from, &n, &gates, &wide, &threads, &turn};
    launch(l_.device(), kernel, divided(n, kSequences) * threads * wide, arguments);
  }
  // Numbers travel as arguments: a graph that captures the call keeps them.
  void write_offsets() {
    offsets_ = l_.make(RB_I64, 1, l_.steps.count() + 1);
    const Kernel kernel{
        l_.a.op_name(), {{"A", RB_F32}, {"T", RB_F32}}, kText_sequence, "RB_SEQUENCE_OFFSETS()\n"};
    std::vector<int64_t> all = l_.steps.offsets;
    all.push_back(l_.total);
    const auto count = static_cast<int64_t>(all.size());
    for (int64_t first = 0; first < count; first += kOffsets) {
      Offsets part = {first, std::min(count - first, kOffsets), {}};
      std::copy_n(all.begin() + first, part.count, part.at);
      void* table = offsets_.data();
      void* arguments[] = {&table, &part};
      launch(l_.device(), kernel, part.count, arguments);
    }
  }

  const RecurrentLayer& l_;
  const int64_t threads_, wide_;
  Temporary weight_, offsets_;
  Sequence sequence_;
};

const RecurrentMode kModes[] = {
    {'l', 4, "RB_RECURRENT('l')\n", "RB_RECURRENT_BACKWARD('l')\n", "RB_SEQUENCE('l')\n",
     "RB_SEQUENCE_BACKWARD('l')\n"},
    {'g', 3, "RB_RECURRENT('g')\n", "RB_RECURRENT_BACKWARD('g')\n", "RB_SEQUENCE('g')\n",
     "RB_SEQUENCE_BACKWARD('g')\n"},
    {'t', 1, "RB_RECURRENT('t')\n", "RB_RECURRENT_BACKWARD('t')\n", "RB_SEQUENCE('t')\n",
     "RB_SEQUENCE_BACKWARD('t')\n"},
    {'r', 1, "RB_RECURRENT('r')\n", "RB_RECURRENT_BACKWARD('r')\n", "RB_SEQUENCE('r')\n",
     "RB_SEQUENCE_BACKWARD('r')\n"},
};

}  // namespace

const RecurrentMode& recurrent_mode(const char* name) {
  return *std::find_if(std::begin(kModes), std::end(kModes) - 1,
                       [&](const RecurrentMode& m) { return m.letter == name[0]; });
}

// Step by step the host launches a product and a cell for each, about 5 us. In one launch a block
// takes as long for a step as for reading the weight, 64 bytes in a cycle from L2 and 128 from L1,
// or for its sums, 128 in a cycle of which half are hoped for: 256 KiB and 4 * 2**16 sums are some
// 4000 cycles each, 2.4 us at 1.7 GHz. Multiprocessors with several blocks take turns (0032).
bool fits_one_launch(const RecurrentLayer& l) {
  constexpr int64_t kMostWeight = 256 << 10, kMostWork = 1 << 17;
  if (l.hidden == 0 || l.batch == 0 || l.hidden > kMostUnits) return false;
  const int64_t weights = l.gates * l.hidden;
  if (weights * l.element_size() > kMostWeight) return false;
  const int64_t together = kSequences * l.device().attribute(kMultiprocessors);
  return divided(l.batch, together) * weights <= kMostWork;
}

void run_sequence(const RecurrentLayer& l) {
  const rb::Args& a = l.a;
  Call call(l, a.tensor(4), false);
  void *gates = a.tensor(1).data, *h0 = l.h0.data, *c0 = data_of(a.optional_tensor(3)),
       *weight = call.weight(), *bias = data_of(a.optional_tensor(5)), *output = a.ret(0).data,
       *hn = a.ret(1).data, *cn = a.ret(2).data, *cells = a.ret(3).data, *saved = a.ret(4).data;
  void* arguments[] = {&gates, &h0, &c0,    &weight, &bias,          &output,
                       &hn,    &cn, &cells, &saved,  call.sequence()};
  call.launch_with(l.mode.sequence, arguments);
}

void run_sequence_backward(const RecurrentLayer& l, void* dproduct, void* before) {
  const rb::Args& a = l.a;
  Call call(l, a.tensor(11), true);
  RecurrentResults results = results_of(a);
  void *dx = a.ret(0).data, *dh0 = a.ret(1).data, *dc0 = a.ret(2).data,
       *grad_hn = data_of(a.optional_tensor(2)), *grad_cn = data_of(a.optional_tensor(3)),
       *weight = call.weight();
  void* arguments[] = {&dx,      &dproduct, &before, &dh0,     &dc0,
                       &grad_hn, &grad_cn,  &weight, &results, call.sequence()};
  call.launch_with(l.mode.sequence_backward, arguments);
}

}  // namespace rbcuda
