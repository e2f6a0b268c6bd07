#include "cache.hpp"

#include <cstring>
#include <vector>

namespace headstart {

size_t Cache::page_bytes(const CacheShape& shape) {
  return static_cast<size_t>(shape.num_layers) * shape.num_kv_heads * 2 * kPageTokens * shape.head_dim *
         (shape.half ? 2 : 4);
}

Cache::Cache(const CacheShape& shape, int num_pages)
    : shape_(shape),
      num_pages_(num_pages),
      element_bytes_(shape.half ? 2 : 4),
      head_bytes_(static_cast<size_t>(kPageTokens) * shape.head_dim * element_bytes_),
      page_bytes_(page_bytes(shape)),
      storage_(affordable(page_bytes_ * static_cast<size_t>(num_pages))) {}

void* Cache::at(int page, int layer, int head, bool values) const {
  const size_t block = (static_cast<size_t>(layer) * shape_.num_kv_heads + head) * 2 + (values ? 1 : 0);
  return storage_.data() + static_cast<size_t>(page) * page_bytes_ + block * head_bytes_;
}

void Cache::move(std::span<const int32_t> page_table, std::span<const int32_t> sources,
                 std::span<const int32_t> destinations) {
  if (shape_.half) {
    move_as<uint16_t>(page_table, sources, destinations);
  } else {
    move_as<uint32_t>(page_table, sources, destinations);
  }
}

template <class Element>
void Cache::move_as(std::span<const int32_t> page_table, std::span<const int32_t> sources,
                    std::span<const int32_t> destinations) {
  const int dim = shape_.head_dim;
  // one head's share of all the slots, gathered first so that overlapping moves do no harm
  std::vector<Element> held(sources.size() * static_cast<size_t>(dim));
  for (int layer = 0; layer < shape_.num_layers; ++layer) {
    for (int head = 0; head < shape_.num_kv_heads; ++head) {
      for (const bool values : {false, true}) {
        const int stride = values ? 1 : kPageTokens;  // between the dimensions of a slot
        const auto start = [&](int slot) {
          auto* block = static_cast<Element*>(at(page_table[slot / kPageTokens], layer, head, values));
          return block + slot % kPageTokens * (values ? dim : 1);
        };
        Element* kept = held.data();
        for (const int32_t source : sources) {
          const Element* from = start(source);
          for (int d = 0; d < dim; ++d) *kept++ = from[d * stride];
        }
        kept = held.data();
        for (const int32_t destination : destinations) {
          Element* to = start(destination);
          for (int d = 0; d < dim; ++d) to[d * stride] = *kept++;
        }
      }
    }
  }
}

}  // namespace headstart
