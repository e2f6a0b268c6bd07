#include "memory_reader.hpp"

#include <atomic>
#include <chrono>
#include <cstring>

namespace headstart {

MemoryReader::MemoryReader(int num_threads, const Kernels& kernels, size_t num_bytes)
    : kernels_(kernels), pool_(num_threads), num_bytes_(num_bytes), ground_(num_bytes) {
  std::memset(ground_.data(), 1, num_bytes);  // untouched memory is not there to be read
}

double MemoryReader::time() {
  using Clock = std::chrono::steady_clock;
  const size_t piece = num_bytes_ / static_cast<size_t>(pool_.num_threads()) / 64 * 64;
  std::atomic<uint64_t> sum{0};  // used, so that no read can be left out
  const Clock::time_point begin = Clock::now();
  pool_.run([&](int thread) { sum += kernels_.read(ground_.data() + static_cast<size_t>(thread) * piece, piece); });
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace headstart
