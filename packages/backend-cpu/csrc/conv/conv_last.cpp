// y and dx of channels-last tensors. For each place of the result and each tap of the window there
// is a pointer to the channels that it sees (an indirection buffer, as in Dukhan, The Indirect
// Convolution Algorithm, 2019), to zeros in the padding. dx of a strided convolution falls into
// phases, one for each remainder of the place modulo the stride, which see different taps.
#include "conv/conv_last.h"

#include <algorithm>
#include <vector>

#include "common/level.h"
#include "common/workspace.h"
#include "conv/conv_last_types.h"

namespace rbcpu {
namespace {

constexpr int64_t kTasks = 8;        // at least, where the sizes allow it
constexpr int64_t kBlockGroups = 8;  // groups of places that follow each other under one panel
constexpr int64_t kFewChannels = 8;  // below, windows are gathered: pointers would cost more
constexpr int64_t kPackBlock = 16;
constexpr double kTaskFlops = 1e6;

const ConvLastTable<float>& table(float) { return RB_PICK_LEVEL(conv_last_table).f32; }
const ConvLastTable<double>& table(double) { return RB_PICK_LEVEL(conv_last_table).f64; }

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// One direction: tap k of the result's place p sees the source's place
// (p * times + shift + k * step) / over, if that is whole and inside.
struct Direction {
  int64_t source, places, taps, times, over, shift, step;
  int64_t pitch = 0;
  std::vector<int64_t> offset = {};  // of what each tap of each place sees in the source; or -1
  std::vector<char> whole = {};      // whether all taps that a place meets lie inside

  void find_offsets(int64_t source_pitch) {
    pitch = source_pitch;
    for (int64_t p = 0; p < places; ++p) {
      whole.push_back(true);
      for (int64_t k = 0; k < taps; ++k) {
        const int64_t far = p * times + shift + k * step;
        const bool inside = far >= 0 && far % over == 0 && far / over < source;
        offset.push_back(inside ? far / over * pitch : -1);
        if (!inside && far % over == 0) whole.back() = false;
      }
    }
  }
  // The same for places and taps that meet, perhaps outside.
  int64_t offset_from(int64_t p, int64_t k) const {
    return (p * times + shift + k * step) / over * pitch;
  }
  // Whether places of the phase see the tap.
  bool meets(int64_t phase, int64_t k) const {
    return (phase * times + shift + k * step) % over == 0;
  }
  int64_t places_of(int64_t phase) const {
    return phase < places ? ceil_div(places - phase, over) : 0;
  }
};

struct Phase {
  int64_t first[3], count[3];     // places
  std::vector<int64_t> tap[3];    // each tap's place in the window
  std::vector<int64_t> offset;    // and what it sees from the first place
  int64_t groups, blocks, begin;  // begin: the first of its blocks
  int64_t weight;                 // where its taps are in the packed weight
};

// A place of the result, in the order of its phase.
struct Place {
  int64_t image, index[3];

  Place(const Phase& phase, int64_t number) {
    for (int d = 2; d >= 0; --d) {
      index[d] = number % phase.count[d];
      number /= phase.count[d];
    }
    image = number;
  }
  void advance(const Phase& phase) {
    for (int d = 2; d >= 0; --d) {
      if (++index[d] < phase.count[d]) return;
      index[d] = 0;
    }
    ++image;
  }
};

template <class T>
class Places {
 public:
  Direction at[3];
  int64_t images, depth, channels;  // of the source; of the result
  const T *source, *bias;
  ConvWeightView<T> weight;  // `out`: of the result's channels, `in`: of the source's
  T* result;

  void run();

 private:
  int64_t panels_, parts_, image_step_, weight_size_;
  std::vector<Phase> phases_;
  T *packed_, *biases_, *zeros_;

  void plan();
  void pack(const Phase& phase, int64_t tap) const;
  void block(const Phase& phase, int64_t block, int64_t part) const;
  void look(const Phase& phase, const Place& p, const T** seen, T** out) const;
  int64_t keep(int64_t taps, const T** seen, int64_t* tap) const;
  void gather(const Phase& phase, const T** seen, T* window) const;
};

template <class T>
void Places<T>::plan() {
  const int64_t rows = table(T()).rows;
  panels_ = ceil_div(channels, table(T()).panel);
  image_step_ = depth;
  for (int d = 2; d >= 0; --d) {
    at[d].find_offsets(image_step_);
    image_step_ *= at[d].source;
  }
  int64_t blocks = 0, taps = 0;
  for (int64_t z = 0; z < at[0].over; ++z) {
    for (int64_t y = 0; y < at[1].over; ++y) {
      for (int64_t x = 0; x < at[2].over; ++x) {
        Phase phase;
        const int64_t first[] = {z, y, x};
        for (int d = 0; d < 3; ++d) {
          phase.first[d] = first[d];
          phase.count[d] = at[d].places_of(first[d]);
        }
        for (int64_t k = 0; k < at[0].taps; ++k) {
          for (int64_t i = 0; at[0].meets(z, k) && i < at[1].taps; ++i) {
            for (int64_t j = 0; at[1].meets(y, i) && j < at[2].taps; ++j) {
              if (!at[2].meets(x, j)) continue;
              phase.tap[0].push_back(k);
              phase.tap[1].push_back(i);
              phase.tap[2].push_back(j);
              phase.offset.push_back(at[0].offset_from(z, k) + at[1].offset_from(y, i) +
                                     at[2].offset_from(x, j));
            }
          }
        }
        phase.groups = ceil_div(images * phase.count[0] * phase.count[1] * phase.count[2], rows);
        if (!phase.groups) continue;
        phase.blocks = ceil_div(phase.groups, kBlockGroups);
        phase.begin = blocks;
        phase.weight = taps;
        blocks += phase.blocks;
        taps += static_cast<int64_t>(phase.tap[0].size());
        phases_.push_back(std::move(phase));
      }
    }
  }
  weight_size_ = taps * depth * table(T()).panel;
  parts_ = std::clamp<int64_t>(ceil_div(kTasks, blocks), 1, panels_);
}

// The weights of one tap: panels of channels, zero beyond the last one.
template <class T>
void Places<T>::pack(const Phase& phase, int64_t tap) const {
  const int64_t panel = table(T()).panel;
  const T* from = weight.data;
  for (int d = 0; d < 3; ++d) from += phase.tap[d][tap] * weight.tap[d];
  for (int64_t q = 0; q < panels_; ++q) {
    T* to = packed_ + q * weight_size_ + (phase.weight + tap) * depth * panel;
    const T* column = from + q * panel * weight.out;
    const int64_t used = std::min(panel, channels - q * panel);
    if (used < panel) std::fill_n(to, depth * panel, T(0));
    if (weight.out == 1) {
      for (int64_t k = 0; k < depth; ++k) std::copy_n(column + k * weight.in, used, to + k * panel);
    } else {
      // Block by block: either side alone would stride through memory.
      for (int64_t k0 = 0; k0 < depth; k0 += kPackBlock) {
        const int64_t end = std::min(k0 + kPackBlock, depth);
        for (int64_t lane = 0; lane < used; ++lane) {
          for (int64_t k = k0; k < end; ++k)
            to[k * panel + lane] = column[lane * weight.out + k * weight.in];
        }
      }
    }
  }
}

// What a place sees, and where it is.
template <class T>
void Places<T>::look(const Phase& phase, const Place& p, const T** seen, T** out) const {
  const int64_t rows = table(T()).rows, taps = static_cast<int64_t>(phase.tap[0].size());
  int64_t number = p.image, first = 0;
  const int64_t* offset[3];
  bool whole = true;
  for (int d = 0; d < 3; ++d) {
    const int64_t place = phase.first[d] + p.index[d] * at[d].over;
    number = number * at[d].places + place;
    first += p.index[d] * at[d].times * at[d].pitch;
    offset[d] = at[d].offset.data() + place * at[d].taps;
    whole = whole && at[d].whole[place];
  }
  *out = result + number * channels;
  const T* image = source + p.image * image_step_;
  if (whole) {
    for (int64_t t = 0; t < taps; ++t) seen[t * rows] = image + (first + phase.offset[t]);
    return;
  }
  for (int64_t t = 0; t < taps; ++t) {
    const int64_t z = offset[0][phase.tap[0][t]], y = offset[1][phase.tap[1][t]],
                  x = offset[2][phase.tap[2][t]];
    seen[t * rows] = (z | y | x) < 0 ? zeros_ : image + z + y + x;
  }
}

// The taps under which a group sees anything; `seen` then holds those alone.
template <class T>
int64_t Places<T>::keep(int64_t taps, const T** seen, int64_t* tap) const {
  const int64_t rows = table(T()).rows;
  int64_t kept = 0;
  for (int64_t t = 0; t < taps; ++t) {
    const T** from = seen + t * rows;
    if (std::all_of(from, from + rows, [&](const T* p) { return p == zeros_; })) continue;
    if (kept < t) std::copy_n(from, rows, seen + kept * rows);
    tap[kept++] = t;
  }
  return kept;
}

// The windows of a group side by side; `seen` then holds where each begins.
template <class T>
void Places<T>::gather(const Phase& phase, const T** seen, T* window) const {
  const int64_t rows = table(T()).rows, taps = static_cast<int64_t>(phase.tap[0].size());
  for (int64_t r = 0; r < rows; ++r) {
    T* to = window + r * taps * depth;
    for (int64_t t = 0; t < taps; ++t) {
      for (int64_t k = 0; k < depth; ++k) to[t * depth + k] = seen[t * rows + r][k];
    }
  }
  for (int64_t r = 0; r < rows; ++r) seen[r] = window + r * taps * depth;
}

template <class T>
void Places<T>::block(const Phase& phase, int64_t block, int64_t part) const {
  const int64_t rows = table(T()).rows, panel = table(T()).panel,
                taps = static_cast<int64_t>(phase.tap[0].size());
  const int64_t places = images * phase.count[0] * phase.count[1] * phase.count[2];
  const int64_t first = block * kBlockGroups, groups = std::min(kBlockGroups, phase.groups - first);
  const bool gathers = depth < kFewChannels && taps > 1;
  const Workspace<const T*> seen(groups * taps * rows + rows);
  const Workspace<T*> out(groups * rows);
  const Workspace<T> windows(gathers ? groups * rows * taps * depth : 0);
  const Workspace<int64_t> tap(groups * taps + 1), kept(groups);
  Place place(phase, first * rows);
  for (int64_t i = 0; i < groups; ++i) {
    const T** group_seen = seen.data() + i * taps * rows;
    for (int64_t r = 0; r < rows; ++r) {
      look(phase, place, group_seen + r, out.data() + i * rows + r);
      if ((first + i) * rows + r + 1 < places) place.advance(phase);
    }
    if (gathers) {
      gather(phase, group_seen, windows.data() + i * rows * taps * depth);
      tap[i * taps] = 0;
      kept[i] = 1;
    } else {
      kept[i] = keep(taps, group_seen, tap.data() + i * taps);
    }
  }
  ConvPlaces<T> s;
  s.depth = gathers ? taps * depth : depth;
  for (int64_t q = panels_ * part / parts_; q < panels_ * (part + 1) / parts_; ++q) {
    s.weight = packed_ + q * weight_size_ + phase.weight * depth * panel;
    s.bias = biases_ + q * panel;
    s.begin = q * panel;
    s.used = std::min(panel, channels - q * panel);
    for (int64_t i = 0; i < groups; ++i) {
      s.source = seen.data() + i * taps * rows;
      s.tap = tap.data() + i * taps;
      s.taps = kept[i];
      s.out = out.data() + i * rows;
      s.count = std::min(rows, places - (first + i) * rows);
      table(T()).places(s);
    }
  }
}

template <class T>
void Places<T>::run() {
  plan();
  const int64_t panel = table(T()).panel;
  const Workspace<T> packed(panels_ * weight_size_), biases(panels_ * panel), zeros(depth);
  packed_ = packed.data();
  biases_ = biases.data();
  zeros_ = zeros.data();
  std::fill_n(zeros_, depth, T(0));
  std::fill_n(biases_, panels_ * panel, T(0));
  if (bias) std::copy_n(bias, channels, biases_);
  for (const Phase& phase : phases_) {
    const int64_t taps = static_cast<int64_t>(phase.tap[0].size());
    rb::parallel_for(taps, std::max<int64_t>(1, 32768 / (depth * channels)),
                     [&](int64_t begin, int64_t end) {
                       for (int64_t t = begin; t < end; ++t) pack(phase, t);
                     });
  }
  const int64_t blocks = phases_.empty() ? 0 : phases_.back().begin + phases_.back().blocks,
                tasks = blocks * parts_;
  double flops = 0;
  for (const Phase& phase : phases_)
    flops += 2.0 * static_cast<double>(phase.groups * table(T()).rows * panels_ * panel) *
             static_cast<double>(depth * static_cast<int64_t>(phase.tap[0].size()));
  const int64_t grain = std::max<int64_t>(
      1, static_cast<int64_t>(kTaskFlops / (flops / static_cast<double>(tasks) + 1)));
  rb::parallel_for(tasks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t at_block = task / parts_;
      const auto after = std::find_if(phases_.begin(), phases_.end(), [&](const Phase& phase) {
        return at_block < phase.begin + phase.blocks;
      });
      block(*after, at_block - after->begin, task % parts_);
    }
  });
}

}  // namespace

template <class T>
void conv_last_forward(const ConvGeometry& g, const T* x, const ConvWeightView<T>& w, const T* bias,
                       T* y) {
  Places<T> job;
  for (int d = 0; d < 3; ++d)
    job.at[d] = {g.in[d], g.out[d], g.kernel[d], g.stride[d], 1, -g.padding[d], g.dilation[d]};
  job.images = g.n;
  job.depth = g.c;
  job.channels = g.o;
  job.source = x;
  job.bias = bias;
  job.weight = w;
  job.result = y;
  job.run();
}

template <class T>
void conv_last_input_gradient(const ConvGeometry& g, const T* dy, const ConvWeightView<T>& w,
                              T* dx) {
  Places<T> job;
  for (int d = 0; d < 3; ++d)
    job.at[d] = {g.out[d], g.in[d], g.kernel[d], 1, g.stride[d], g.padding[d], -g.dilation[d]};
  job.images = g.n;
  job.depth = g.o;
  job.channels = g.c;
  job.source = dy;
  job.bias = nullptr;
  job.weight = w;
  std::swap(job.weight.out, job.weight.in);
  job.result = dx;
  job.run();
}

template void conv_last_forward(const ConvGeometry&, const float*, const ConvWeightView<float>&,
                                const float*, float*);
template void conv_last_forward(const ConvGeometry&, const double*, const ConvWeightView<double>&,
                                const double*, double*);
template void conv_last_input_gradient(const ConvGeometry&, const float*,
                                       const ConvWeightView<float>&, float*);
template void conv_last_input_gradient(const ConvGeometry&, const double*,
                                       const ConvWeightView<double>&, double*);

}  // namespace rbcpu
