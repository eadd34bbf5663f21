// Philox-4x32-10 for one counter per 64-bit lane. The lower half of a lane holds a 32-bit word, and
// the upper half is ignored.
#include "common/level.h"
#include "common/scalar.h"
#include "common/vector.h"
#include "rabbet/philox.h"
#include "random/words.h"

namespace {

typedef uint64_t Lanes __attribute__((vector_size(kVectorBytes)));
constexpr int kCounters = kVectorBytes / 8;

// Multiply the lower halves of lanes.
RB_ALWAYS Lanes multiply(Lanes a, Lanes b) {
#if defined(__AVX512F__)
  return reinterpret_cast<Lanes>(
      _mm512_mul_epu32(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#elif defined(__AVX2__)
  return reinterpret_cast<Lanes>(
      _mm256_mul_epu32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#elif defined(__x86_64__)
  return reinterpret_cast<Lanes>(
      _mm_mul_epu32(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)));
#else
  return (a & 0xffffffffu) * (b & 0xffffffffu);
#endif
}

void philox(uint64_t seed, uint64_t first, int64_t n, uint32_t* words) {
  constexpr uint64_t kLow = 0xffffffffu;
  int64_t i = 0;
  for (; i + kCounters <= n; i += kCounters) {
    Lanes c0, c1, c2 = {}, c3 = {};
    for (int l = 0; l < kCounters; ++l) c0[l] = first + static_cast<uint64_t>(i + l);
    c1 = c0 >> 32;
    uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round) {
      const Lanes p0 = multiply(c0, Lanes{} + 0xD2511F53u),
                  p1 = multiply(c2, Lanes{} + 0xCD9E8D57u);
      c0 = (p1 >> 32) ^ c1 ^ (Lanes{} + uint64_t{k0});
      c2 = (p0 >> 32) ^ c3 ^ (Lanes{} + uint64_t{k1});
      c1 = p1;
      c3 = p0;
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    const Lanes low = (c0 & kLow) | (c1 << 32), high = (c2 & kLow) | (c3 << 32);
    for (int l = 0; l < kCounters; ++l) {
      const uint64_t pair[2] = {low[l], high[l]};
      __builtin_memcpy(words + 4 * (i + l), pair, sizeof pair);
    }
  }
  for (; i < n; ++i) {
    const RbPhilox r = rb_philox(seed, first + static_cast<uint64_t>(i));
    __builtin_memcpy(words + 4 * i, r.w, sizeof r.w);
  }
}

// The same as rb_uniform_f32, converted from int32, which vector instructions support.
RB_ALWAYS float uniform(uint32_t word) {
  return static_cast<float>(static_cast<int32_t>(word >> 8)) * 5.9604644775390625e-8f;
}

void normal(const uint32_t* words, int64_t pairs, float* r) {
  using V = Pack<float, 1>;
  constexpr int64_t kRun = 64;
  alignas(64) float radius[kRun], angle[kRun], even[kRun], odd[kRun];
  for (int64_t begin = 0; begin < pairs; begin += kRun) {
    const int64_t n = pairs - begin < kRun ? pairs - begin : kRun;
    for (int64_t i = 0; i < kRun; ++i) {  // results beyond the end are discarded
      const int64_t k = 2 * (begin + (i < n ? i : 0));
      radius[i] = 1.0f - uniform(words[k]);
      angle[i] = 6.2831853071795865f * uniform(words[k + 1]);
    }
    for (int64_t i = 0; i < kRun; i += kLanesOf<V>) {
      const V length = vm_sqrt(V(-2.0f) * vm_log(pack_load<V>(radius + i)));
      const V turn = pack_load<V>(angle + i);
      pack_store(even + i, length * vm_sincos(turn, 1));
      pack_store(odd + i, length * vm_sincos(turn, 0));
    }
    for (int64_t i = 0; i < n; ++i) {
      r[2 * (begin + i)] = even[i];
      r[2 * (begin + i) + 1] = odd[i];
    }
  }
}

}  // namespace

namespace rbcpu {
extern const WordTable RB_LEVEL_NAME(word_table) = {philox, normal};
}
