// A team of threads that walks one function together.
//
// `run` hands the same function to every thread and returns when all are through. Inside, `wait`
// is a barrier. Waiting spins for some microseconds, since the next phase is usually that near,
// then offers its core to others, then sleeps in the kernel; with more threads than cores it does
// not spin, because that would keep the awaited thread from running. Between runs it offers its core
// for some 200 microseconds, since waking takes longer than the next pass is away, then sleeps.
#pragma once
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace headstart {

class ThreadPool {
 public:
  // throws std::system_error: the system does not give so many threads
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }

  // calls function(thread) on every thread, the caller being thread 0; it must not throw
  //
  // throws std::runtime_error: this is a fork of the process that made the team, whose threads it does not have
  template <class Function>
  void run(Function&& function) {
    run_erased([](void* f, int thread) { (*static_cast<std::remove_reference_t<Function>*>(f))(thread); },
               std::addressof(function));
  }

  // inside run: until every thread of the team has come here
  void wait();

 private:
  using Task = void (*)(void*, int);
  void run_erased(Task task, void* argument);
  void work(int thread);
  void stop();
  void wait_while(std::atomic<uint32_t>& word, uint32_t value, int yields);

  const int num_threads_;
  const int spins_;
  const pid_t process_;
  Task task_ = nullptr;
  void* argument_ = nullptr;
  bool stopping_ = false;
  alignas(64) std::atomic<uint32_t> generation_{0};  // of runs
  alignas(64) std::atomic<uint32_t> arrived_{0};
  alignas(64) std::atomic<uint32_t> phase_{0};  // of barriers
  std::vector<std::thread> threads_;
};

}  // namespace headstart
