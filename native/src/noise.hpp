// The noise of the sampling law: a function of (seed, position, token id) alone (decoding/law.py).
//
// Everything here is static: the kernels are compiled for several instruction sets, and the linker
// must not pick one copy for all.
#pragma once
#include <cstdint>

namespace headstart {

[[maybe_unused]] static inline uint64_t position_key(uint64_t seed, int position) {
  uint64_t z = seed + 0x9E3779B97F4A7C15u * (static_cast<uint64_t>(position) + 1);
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

[[maybe_unused]] static inline uint32_t mix32(uint32_t h) {  // the finaliser of 32-bit MurmurHash3
  h = (h ^ h >> 16) * 0x85EBCA6Bu;
  h = (h ^ h >> 13) * 0xC2B2AE35u;
  return h ^ h >> 16;
}

// 32 bits for a token id under a position's key, of which the first argument is the low half
[[maybe_unused]] static inline uint32_t token_noise(uint32_t low, uint32_t high, uint32_t token) {
  return mix32(mix32((token * 0x9E3779B1u) ^ low) ^ high);
}

[[maybe_unused]] static inline double gumbel(uint32_t bits) {
  return -__builtin_log(-__builtin_log((bits + 0.5) * 0x1p-32));
}

}  // namespace headstart
