#include "thread_pool.hpp"

#include <unistd.h>

#ifdef HEADSTART_X86
#include <immintrin.h>
#endif

#include <stdexcept>

#include "cpu.hpp"

namespace headstart {
namespace {

inline void relax() {
#ifdef HEADSTART_X86
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

constexpr int kSpins = 600;      // about ten microseconds: longer than most phases are apart
constexpr int kYields = 50;      // then let others run here: the awaited thread may need this very core
constexpr int kRunYields = 400;  // some 200 microseconds: a text's next pass is that near, and waking takes as long

}  // namespace

ThreadPool::ThreadPool(int num_threads)
    : num_threads_(num_threads), spins_(num_threads <= usable_cores() ? kSpins : 0), process_(getpid()) {
  threads_.reserve(static_cast<size_t>(num_threads - 1));
  try {
    for (int t = 1; t < num_threads; ++t) threads_.emplace_back([this, t] { work(t); });
  } catch (...) {  // the system gives no more of them
    stop();
    throw;
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  if (process_ != getpid()) {  // a fork has this memory, but not the threads
    for (std::thread& thread : threads_) thread.detach();
    return;
  }
  stopping_ = true;
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::wait_while(std::atomic<uint32_t>& word, uint32_t value, int yields) {
  for (int i = 0; i < spins_; ++i) {
    if (word.load(std::memory_order_acquire) != value) return;
    relax();
  }
  for (int i = 0; i < yields; ++i) {
    if (word.load(std::memory_order_acquire) != value) return;
    std::this_thread::yield();
  }
  while (word.load(std::memory_order_acquire) == value) word.wait(value, std::memory_order_acquire);
}

void ThreadPool::wait() {
  if (num_threads_ == 1) return;
  const uint32_t phase = phase_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<uint32_t>(num_threads_)) {
    arrived_.store(0, std::memory_order_relaxed);
    phase_.fetch_add(1, std::memory_order_release);
    phase_.notify_all();
  } else {
    wait_while(phase_, phase, kYields);
  }
}

void ThreadPool::run_erased(Task task, void* argument) {
  if (num_threads_ > 1 && process_ != getpid()) {
    throw std::runtime_error(
        "this process was forked after the model was loaded, and has not its threads: load the model after forking");
  }
  task_ = task;
  argument_ = argument;
  if (num_threads_ > 1) {
    generation_.fetch_add(1, std::memory_order_release);
    generation_.notify_all();
  }
  task(argument, 0);
  wait();  // the workers' last act of a run
}

void ThreadPool::work(int thread) {
  uint32_t seen = 0;
  while (true) {
    wait_while(generation_, seen, spins_ > 0 ? kRunYields : 0);
    ++seen;
    if (stopping_) return;
    task_(argument_, thread);
    wait();
  }
}

}  // namespace headstart
