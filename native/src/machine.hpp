// What programs share that run in turn: the kernels, one team of threads, and each thread's scratch.
#pragma once
#include <atomic>
#include <vector>

#include "attention.hpp"
#include "choose.hpp"
#include "kernels.hpp"
#include "thread_pool.hpp"

namespace headstart {

class Machine {
 public:
  Machine(int num_threads, const Kernels& kernels)
      : kernels_(kernels),
        pool_(num_threads),
        attention_scratch_(static_cast<size_t>(num_threads)),
        choose_scratch_(static_cast<size_t>(num_threads)) {}

  const Kernels& kernels() const { return kernels_; }
  int num_threads() const { return pool_.num_threads(); }
  ThreadPool& pool() { return pool_; }
  AttentionScratch& attention_scratch(int thread) { return attention_scratch_[static_cast<size_t>(thread)]; }
  ChooseScratch& choose_scratch(int thread) { return choose_scratch_[static_cast<size_t>(thread)]; }

  // runs `each(i, thread)` for i in [0, count) on the threads
  template <class Function>
  void share(int count, Function&& each) {
    if (count == 1 || num_threads() == 1) {  // not worth waking anyone
      for (int i = 0; i < count; ++i) each(i, 0);
      return;
    }
    std::atomic<int> next{0};
    pool_.run([&](int thread) {
      for (int i = next.fetch_add(1); i < count; i = next.fetch_add(1)) each(i, thread);
    });
  }

 private:
  const Kernels& kernels_;
  ThreadPool pool_;
  std::vector<AttentionScratch> attention_scratch_;
  std::vector<ChooseScratch> choose_scratch_;
};

}  // namespace headstart
