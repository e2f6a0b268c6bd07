// Memory as the kernels like it: aligned to cache lines, and weights on large pages, without which
// reading them is bound by address translation rather than by the memory's speed.
#pragma once
#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

namespace headstart {

template <class T>
struct LineAllocator {
  using value_type = T;
  LineAllocator() = default;
  template <class U>
  LineAllocator(const LineAllocator<U>&) {}
  T* allocate(size_t count) { return static_cast<T*>(::operator new(count * sizeof(T), std::align_val_t{64})); }
  void deallocate(T* p, size_t) { ::operator delete(p, std::align_val_t{64}); }
  bool operator==(const LineAllocator&) const { return true; }
};

// a vector whose data begins a cache line
template <class T>
using LineVector = std::vector<T, LineAllocator<T>>;

// Zeroed memory straight from the system, on large pages where it has them; it takes physical
// memory only where it is touched. Throws std::bad_alloc.
class Mapping {
 public:
  Mapping() = default;
  explicit Mapping(size_t num_bytes);
  ~Mapping();
  Mapping(Mapping&& other) noexcept { swap(other); }
  Mapping& operator=(Mapping&& other) noexcept {
    swap(other);
    return *this;
  }
  uint8_t* data() const { return data_; }

 private:
  void swap(Mapping& other) noexcept;

  uint8_t* data_ = nullptr;  // at a multiple of a large page
  void* mapped_ = nullptr;
  size_t mapped_bytes_ = 0;
};

// `num_bytes` themselves. The system would promise any amount and kill the process once it is used, so
// more than the machine or its container has throws std::bad_alloc.
size_t affordable(size_t num_bytes);

// Hands out pieces that live as long as the arena, one after the other.
class Arena {
 public:
  // zeroed, at a multiple of 64
  uint8_t* allocate(size_t num_bytes);

 private:
  std::vector<Mapping> chunks_;
  size_t used_ = 0, capacity_ = 0;  // of the last chunk
};

}  // namespace headstart
