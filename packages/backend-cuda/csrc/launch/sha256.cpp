#include "launch/sha256.h"

#include <cmath>
#include <cstdint>
#include <cstring>

namespace rbcuda {
namespace {

// The first 32 bits of the fractions of the square or cube roots of the first primes.
struct Constants {
  uint32_t start[8], rounds[64];
  Constants() {
    int found = 0;
    for (int n = 2; found < 64; ++n) {
      bool prime = true;
      for (int d = 2; d * d <= n; ++d) prime = prime && n % d != 0;
      if (!prime) continue;
      if (found < 8) start[found] = fraction(std::sqrt(static_cast<long double>(n)));
      rounds[found++] = fraction(std::cbrt(static_cast<long double>(n)));
    }
  }
  static uint32_t fraction(long double x) {
    return static_cast<uint32_t>((x - std::floor(x)) * 4294967296.0L);
  }
};

uint32_t turn(uint32_t x, int by) { return x >> by | x << (32 - by); }

void add_block(uint32_t (&state)[8], const unsigned char* block, const Constants& constants) {
  uint32_t w[64];
  for (int i = 0; i < 16; ++i)
    w[i] = static_cast<uint32_t>(block[4 * i]) << 24 | block[4 * i + 1] << 16 |
           block[4 * i + 2] << 8 | block[4 * i + 3];
  for (int i = 16; i < 64; ++i) {
    const uint32_t a = w[i - 15], b = w[i - 2];
    w[i] = w[i - 16] + (turn(a, 7) ^ turn(a, 18) ^ a >> 3) + w[i - 7] +
           (turn(b, 17) ^ turn(b, 19) ^ b >> 10);
  }
  uint32_t s[8];
  std::memcpy(s, state, sizeof s);
  for (int i = 0; i < 64; ++i) {
    const uint32_t e = s[4], a = s[0];
    const uint32_t first = s[7] + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) +
                           ((e & s[5]) ^ (~e & s[6])) + constants.rounds[i] + w[i];
    const uint32_t second =
        (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));
    std::memmove(s + 1, s, 7 * sizeof *s);
    s[4] += first;
    s[0] = first + second;
  }
  for (int i = 0; i < 8; ++i) state[i] += s[i];
}

}  // namespace

std::string sha256(const void* data, size_t size) {
  static const Constants constants;
  uint32_t state[8];
  std::memcpy(state, constants.start, sizeof state);
  const auto* at = static_cast<const unsigned char*>(data);
  size_t left = size;
  for (; left >= 64; at += 64, left -= 64) add_block(state, at, constants);
  unsigned char last[128] = {};
  if (left) std::memcpy(last, at, left);
  last[left] = 0x80;
  const size_t blocks = left < 56 ? 64 : 128;
  for (int i = 0; i < 8; ++i)
    last[blocks - 1 - i] = static_cast<unsigned char>(static_cast<uint64_t>(size) * 8 >> 8 * i);
  for (size_t i = 0; i < blocks; i += 64) add_block(state, last + i, constants);
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const uint32_t word : state) {
    for (int shift = 28; shift >= 0; shift -= 4) text += kDigits[word >> shift & 15];
  }
  return text;
}

}  // namespace rbcuda
