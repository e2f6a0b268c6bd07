#include "memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "limits.hpp"

namespace headstart {
namespace {

constexpr size_t kLargePage = size_t{2} << 20;
constexpr size_t kChunk = size_t{64} << 20;

}  // namespace

Mapping::Mapping(size_t num_bytes) : mapped_bytes_(num_bytes + kLargePage) {
  mapped_ = mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped_ == MAP_FAILED) {
    mapped_ = nullptr;
    throw std::bad_alloc();
  }
  const auto address = reinterpret_cast<uintptr_t>(mapped_);
  data_ = reinterpret_cast<uint8_t*>((address + kLargePage - 1) / kLargePage * kLargePage);
  madvise(data_, num_bytes, MADV_HUGEPAGE);  // advice: a system without large pages is slower, not wrong
}

Mapping::~Mapping() {
  if (mapped_ != nullptr) munmap(mapped_, mapped_bytes_);
}

void Mapping::swap(Mapping& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(mapped_, other.mapped_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
}

size_t affordable(size_t num_bytes) {
  size_t memory = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGE_SIZE));
  if (const size_t limit = container_limits().bytes; limit > 0) memory = std::min(memory, limit);
  if (num_bytes > memory) throw std::bad_alloc();
  return num_bytes;
}

uint8_t* Arena::allocate(size_t num_bytes) {
  const size_t rounded = (num_bytes + 63) / 64 * 64;
  if (used_ + rounded > capacity_) {
    const size_t capacity = std::max(kChunk, rounded);
    chunks_.emplace_back(capacity);
    capacity_ = capacity;
    used_ = 0;
  }
  uint8_t* piece = chunks_.back().data() + used_;
  used_ += rounded;
  return piece;
}

}  // namespace headstart
