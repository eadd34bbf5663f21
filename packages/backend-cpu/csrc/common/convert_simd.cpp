// Loops that convert or select elements, once per instruction-set level (convert.h).
#include "common/convert.h"
#include "common/dtype.h"
#include "common/half_runs.h"
#include "common/level.h"

namespace {

using rbcpu::BF16;
using rbcpu::F16;
using rbcpu::HalfContext;
using rbcpu::LoopArgs;

template <class To, class From>
int cast(const LoopArgs* a) {
  const int64_t n = a->n, si = a->in_stride[0], so = a->out_stride;
  const char* x = a->in[0];
  char* r = a->out;
  if (so == sizeof(To) && si == sizeof(From)) {
    const From* from = reinterpret_cast<const From*>(x);
    To* __restrict to = reinterpret_cast<To*>(r);
    if constexpr (std::is_same_v<From, float> && rbcpu::is_half_v<To>)
      convert_run(from, to, n);
    else
      for (int64_t i = 0; i < n; ++i) to[i] = rbcpu::convert<To>(from[i]);
    return 0;
  }
  for (int64_t i = 0; i < n; ++i, x += si, r += so)
    *reinterpret_cast<To*>(r) = rbcpu::convert<To>(*reinterpret_cast<const From*>(x));
  return 0;
}
template <class To, class From>
constexpr rbcpu::Loop pick_cast() {
  if constexpr (std::is_same_v<To, From>)
    return nullptr;
  else
    return &cast<To, From>;
}

template <class H>
int half_loop(const LoopArgs* a) {
  constexpr int64_t kChunk = 512;
  const HalfContext& half = *static_cast<const HalfContext*>(a->ctx);
  alignas(64) float in[rbcpu::kMaxInputs][kChunk];
  alignas(64) float out[kChunk];
  int status = 0;
  for (int64_t done = 0; done < a->n; done += kChunk) {
    LoopArgs b;
    b.n = a->n - done < kChunk ? a->n - done : kChunk;
    b.ctx = half.ctx;
    for (int k = 0; k < half.nin; ++k) {
      b.in[k] = reinterpret_cast<const char*>(in[k]);
      const int64_t stride = a->in_stride[k];
      const char* from = a->in[k] + done * stride;
      if (half.numbers >> k & 1) {
        b.in[k] = from;
        b.in_stride[k] = 0;
      } else if (stride == 0) {
        in[k][0] = *reinterpret_cast<const H*>(from);
        b.in_stride[k] = 0;
      } else {
        if (stride == sizeof(H)) {
          convert_run(reinterpret_cast<const H*>(from), in[k], b.n);
        } else {
          for (int64_t i = 0; i < b.n; ++i)
            in[k][i] = *reinterpret_cast<const H*>(from + i * stride);
        }
        b.in_stride[k] = sizeof(float);
      }
    }
    char* to = a->out + done * a->out_stride;
    if (half.narrow) {
      b.out = reinterpret_cast<char*>(out);
      b.out_stride = sizeof(float);
      status |= half.loop(&b);
      if (a->out_stride == sizeof(H)) {
        convert_run(out, reinterpret_cast<H*>(to), b.n);
      } else {
        for (int64_t i = 0; i < b.n; ++i) *reinterpret_cast<H*>(to + i * a->out_stride) = H(out[i]);
      }
    } else {
      b.out = to;
      b.out_stride = a->out_stride;
      status |= half.loop(&b);
    }
  }
  return status;
}

template <class T>
int select(const LoopArgs* a) {
  const int64_t n = a->n, sc = a->in_stride[0], sx = a->in_stride[1], sy = a->in_stride[2],
                so = a->out_stride;
  const char *c = a->in[0], *x = a->in[1], *y = a->in[2];
  char* r = a->out;
  {
    if (sc == 1 && so == sizeof(T) && (sx == 0 || sx == sizeof(T)) &&
        (sy == 0 || sy == sizeof(T))) {
      const uint8_t* cc = reinterpret_cast<const uint8_t*>(c);
      const T* xx = reinterpret_cast<const T*>(x);
      const T* yy = reinterpret_cast<const T*>(y);
      T* rr = reinterpret_cast<T*>(r);
      if (sx != 0 && sy != 0) {
#pragma GCC ivdep
        for (int64_t i = 0; i < n; ++i) {
          const T u = xx[i], v = yy[i];
          rr[i] = cc[i] ? u : v;
        }
      } else {
        const int64_t ix = sx != 0, iy = sy != 0;
#pragma GCC ivdep
        for (int64_t i = 0; i < n; ++i) {
          const T u = xx[i * ix], v = yy[i * iy];
          rr[i] = cc[i] ? u : v;
        }
      }
      return 0;
    }
  }
  for (int64_t i = 0; i < n; ++i, c += sc, x += sx, y += sy, r += so) {
    *reinterpret_cast<T*>(r) = *reinterpret_cast<const T*>(*c ? x : y);
  }
  return 0;
}

template <class T>
void reverse(char* to, const char* from, int64_t n) {
  const T* __restrict x = reinterpret_cast<const T*>(from);
  T* __restrict r = reinterpret_cast<T*>(to);
  for (int64_t i = 0; i < n; ++i) r[i] = x[n - 1 - i];
}

}  // namespace

namespace rbcpu {
// In the order of kCastDTypes.
#define RB_CASTS(T)                                                              \
  {                                                                              \
      pick_cast<T, bool>(),    pick_cast<T, uint8_t>(), pick_cast<T, int32_t>(), \
      pick_cast<T, int64_t>(), pick_cast<T, F16>(),     pick_cast<T, BF16>(),    \
      pick_cast<T, float>(),   pick_cast<T, double>()}
extern const ConvertTable RB_LEVEL_NAME(convert_table) = {
    {RB_CASTS(bool), RB_CASTS(uint8_t), RB_CASTS(int32_t), RB_CASTS(int64_t), RB_CASTS(F16),
     RB_CASTS(BF16), RB_CASTS(float), RB_CASTS(double)},
    &half_loop<F16>,
    &half_loop<BF16>,
    {&select<uint8_t>, &select<uint16_t>, &select<uint32_t>, &select<uint64_t>},
    {&reverse<uint8_t>, &reverse<uint16_t>, &reverse<uint32_t>, &reverse<uint64_t>}};
}  // namespace rbcpu
