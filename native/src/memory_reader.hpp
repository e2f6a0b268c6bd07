// How fast this machine's memory can be read at all: what a plain step is measured against.
#pragma once
#include <cstddef>

#include "kernels.hpp"
#include "memory.hpp"
#include "thread_pool.hpp"

namespace headstart {

class MemoryReader {
 public:
  // takes `num_bytes` of memory; throws std::bad_alloc
  MemoryReader(int num_threads, const Kernels& kernels, size_t num_bytes);
  // seconds to read it once, in order, with all threads
  double time();

 private:
  const Kernels& kernels_;
  ThreadPool pool_;
  size_t num_bytes_;
  Mapping ground_;
};

}  // namespace headstart
