// Storage of keys and values in pages. Who owns which page is decided above (engine/cache.py).
//
// A page holds 16 consecutive slots of one sequence, for every layer and key head:
//   keys   [layer][head][head_dim][16]   so that one load is a dimension of sixteen keys
//   values [layer][head][16][head_dim]
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "memory.hpp"

namespace headstart {

constexpr int kPageTokens = 16;

struct CacheShape {
  int num_layers, num_kv_heads, head_dim;
  bool half;  // f16 storage, else f32
};

class Cache {
 public:
  Cache() = default;
  Cache(const CacheShape& shape, int num_pages);  // throws std::bad_alloc

  const CacheShape& shape() const { return shape_; }
  int num_pages() const { return num_pages_; }
  static size_t page_bytes(const CacheShape& shape);
  size_t head_bytes() const { return head_bytes_; }  // of a page's keys, or values, of one layer and head

  // start of a page's keys or values of one layer and head, in elements of the stored type
  void* keys(int page, int layer, int head) const { return at(page, layer, head, false); }
  void* values(int page, int layer, int head) const { return at(page, layer, head, true); }

  // Copies slots of a sequence to slots, as if all at once.
  void move(std::span<const int32_t> page_table, std::span<const int32_t> sources,
            std::span<const int32_t> destinations);

 private:
  void* at(int page, int layer, int head, bool values) const;
  template <class Element>
  void move_as(std::span<const int32_t> page_table, std::span<const int32_t> sources,
               std::span<const int32_t> destinations);

  CacheShape shape_{};
  int num_pages_ = 0;
  size_t element_bytes_ = 0, head_bytes_ = 0, page_bytes_ = 0;
  Mapping storage_;
};

}  // namespace headstart
