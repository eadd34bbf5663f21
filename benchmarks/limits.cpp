// What the machine can do: multiply-add peak and memory bandwidth with the given number of threads.
// Prints one line of JSON: flop/s in float32, bytes/s of a + b -> c on large arrays.
#include <sys/mman.h>
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#if defined(__AVX512F__)
constexpr int kBytes = 64;
#elif defined(__AVX2__)
constexpr int kBytes = 32;
#else
constexpr int kBytes = 16;
#endif
typedef float V __attribute__((vector_size(kBytes)));
constexpr int kLanes = kBytes / 4;

static double seconds(int threads, const std::function<void(int)>& body) {
  std::vector<std::thread> team;
  const auto began = std::chrono::steady_clock::now();
  for (int t = 1; t < threads; ++t) team.emplace_back(body, t);
  body(0);
  for (auto& t : team) t.join();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

static float* map(size_t n) {
  void* p =
      mmap(nullptr, n * 4 + (2 << 20), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  p = reinterpret_cast<void*>((reinterpret_cast<size_t>(p) + (2 << 20) - 1) &
                              ~size_t{(2 << 20) - 1});
  madvise(p, n * 4, MADV_HUGEPAGE);
  std::fill_n(static_cast<float*>(p), n, 1.0f);
  return static_cast<float*>(p);
}

static void multiply_add(long rounds, float* out) {
  constexpr int kChains = kBytes == 64 ? 24 : 12;
  V sum[kChains], x, y;
  for (int i = 0; i < kLanes; ++i) x[i] = 0.999f, y[i] = 1e-3f;
  for (int c = 0; c < kChains; ++c) sum[c] = x;
  for (long r = 0; r < rounds; ++r) {
#pragma GCC unroll 24
    for (int c = 0; c < kChains; ++c) sum[c] = sum[c] * x + y;
  }
  for (int c = 0; c < kChains; ++c) *out += sum[c][0];
}

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
  constexpr long kRounds = 100000;
  constexpr int kChains = kBytes == 64 ? 24 : 12;
  std::vector<float> sums(threads * 64);
  double compute = 1e9, memory = 1e9;
  for (int i = 0; i < 60; ++i)
    compute =
        std::min(compute, seconds(threads, [&](int t) { multiply_add(kRounds, &sums[t * 64]); }));
  const size_t n = 30000000;
  float *a = map(n), *b = map(n), *c = map(n);
  for (int i = 0; i < 20; ++i) {
    memory = std::min(memory, seconds(threads, [&](int t) {
                        const size_t begin = n / kLanes * t / threads * kLanes,
                                     end = n / kLanes * (t + 1) / threads * kLanes;
                        for (size_t k = begin; k < end; k += kLanes) {
                          const V sum = *reinterpret_cast<V*>(a + k) + *reinterpret_cast<V*>(b + k);
#if defined(__AVX512F__)
                          _mm512_stream_ps(c + k, (__m512)sum);
#else
        *reinterpret_cast<V*>(c + k) = sum;
#endif
                        }
                      }));
  }
  std::printf("{\"flops\": %.4g, \"bytes\": %.4g}\n",
              2.0 * kLanes * kChains * kRounds * threads / compute,
              12.0 * static_cast<double>(n) / memory);
  return sums[0] == 12345.0f;
}
