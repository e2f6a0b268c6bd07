// Storage of states: one float vector a slot, paged like keys and values (cache.hpp). A trunk keeps
// its taps so, heads what they recycle.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "memory.hpp"

namespace headstart {

class StateStore {
 public:
  StateStore() = default;
  // `half`: bf16, which has the range of floats; hidden layers have outliers that f16 cannot hold. Throws
  // std::bad_alloc.
  StateStore(int width, bool half, int num_pages);

  int width() const { return width_; }
  static size_t page_bytes(int width, bool half);

  // `count` floats of a slot, from `offset` on
  void write(int page, int lane, int offset, int count, const float* from) const;
  void read(int page, int lane, int offset, int count, float* out) const;

  // Copies slots of a sequence to slots, as if all at once.
  void move(std::span<const int32_t> page_table, std::span<const int32_t> sources,
            std::span<const int32_t> destinations) const;

 private:
  uint8_t* at(int page, int lane) const;

  int width_ = 0;
  size_t element_bytes_ = 4;
  Mapping storage_;
};

}  // namespace headstart
