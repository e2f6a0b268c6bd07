#include "states.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "cache.hpp"
#include "half.hpp"

namespace headstart {

size_t StateStore::page_bytes(int width, bool half) {
  return static_cast<size_t>(kPageTokens) * static_cast<size_t>(width) * (half ? 2 : 4);
}

StateStore::StateStore(int width, bool half, int num_pages)
    : width_(width),
      element_bytes_(half ? 2 : 4),
      storage_(affordable(page_bytes(width, half) * static_cast<size_t>(num_pages))) {}

uint8_t* StateStore::at(int page, int lane) const {
  const size_t slot = static_cast<size_t>(page) * kPageTokens + static_cast<size_t>(lane);
  return storage_.data() + slot * static_cast<size_t>(width_) * element_bytes_;
}

void StateStore::write(int page, int lane, int offset, int count, const float* from) const {
  if (element_bytes_ == 4) {
    std::copy_n(from, count, reinterpret_cast<float*>(at(page, lane)) + offset);
    return;
  }
  auto* to = reinterpret_cast<uint16_t*>(at(page, lane)) + offset;
  for (int i = 0; i < count; ++i) to[i] = float_to_bfloat(from[i]);
}

void StateStore::read(int page, int lane, int offset, int count, float* out) const {
  if (element_bytes_ == 4) {
    std::copy_n(reinterpret_cast<const float*>(at(page, lane)) + offset, count, out);
    return;
  }
  const auto* from = reinterpret_cast<const uint16_t*>(at(page, lane)) + offset;
  for (int i = 0; i < count; ++i) out[i] = bfloat_to_float(from[i]);
}

void StateStore::move(std::span<const int32_t> page_table, std::span<const int32_t> sources,
                      std::span<const int32_t> destinations) const {
  const size_t slot_bytes = static_cast<size_t>(width_) * element_bytes_;
  const auto start = [&](int slot) { return at(page_table[slot / kPageTokens], slot % kPageTokens); };
  std::vector<uint8_t> held(sources.size() * slot_bytes);  // so that overlapping moves do no harm
  for (size_t i = 0; i < sources.size(); ++i) std::memcpy(held.data() + i * slot_bytes, start(sources[i]), slot_bytes);
  for (size_t i = 0; i < destinations.size(); ++i) {
    std::memcpy(start(destinations[i]), held.data() + i * slot_bytes, slot_bytes);
  }
}

}  // namespace headstart
