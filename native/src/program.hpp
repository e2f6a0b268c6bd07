// A model as a list of operations over registers, and the walk over it.
//
// A register holds one float vector a row. The list is built once, from the architecture's program
// (src/headstart/runtime/native.py); `forward` walks it with all threads together. Operations on
// single rows need no barrier between them, since a thread keeps its rows; products and attention
// mix rows and columns, and have a barrier on either side.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "attention.hpp"
#include "cache.hpp"
#include "choose.hpp"
#include "kernels.hpp"
#include "matrix.hpp"
#include "rows.hpp"
#include "thread_pool.hpp"

namespace headstart {

// One of the matrices that a linear operation applies to its input.
struct LinearPart {
  int matrix, destination;
  int bias;         // vector, or -1
  bool accumulate;  // adds to what the destination holds
};

enum class OpKind { kEmbed, kNorm, kQuantise, kLinear, kRotate, kStore, kAttention, kGate, kAdd, kSelect };

struct Op {
  explicit Op(OpKind kind) : kind(kind) {}

  OpKind kind;
  int out = -1, in = -1, in2 = -1, in3 = -1;  // registers
  int weight = -1;                            // vector (norm) or matrix (embed)
  int span = 0;                               // norm: inputs a norm takes together; rotate: width of a head
  float eps = 0.0f;
  int layer = 0;
  AttentionShape attention{};
  std::vector<LinearPart> parts;
};

class Program {
 public:
  Program(int num_threads, const Kernels& kernels);

  // ---- building; each returns the index to refer to
  int add_matrix(const Matrix& matrix);
  Arena& arena() { return arena_; }  // where matrices live
  int add_vector(std::span<const float> values);
  int add_register(int width, bool wanted_rows_only);
  void add_op(Op op);
  // logits register, rotary frequencies [rotated / 2] with the factor on cosine and sine
  void finish(int logits_register, std::vector<float> inverse_frequencies, float rotary_factor, CacheShape cache,
              int max_context);

  // ---- running
  void make_cache(int num_pages) { cache_ = Cache(cache_shape_, num_pages); }
  size_t page_bytes() const { return Cache::page_bytes(cache_shape_); }
  Cache& cache() { return cache_; }
  void forward(const RowsView& rows);
  const float* logits(int wanted_index) const;
  int num_wanted() const { return num_wanted_; }
  int vocab_size() const { return logits_register_ < 0 ? 0 : registers_[static_cast<size_t>(logits_register_)].width; }
  const float* register_row(int index, int row) const;
  // runs `each(i, thread)` for i in [0, count) on the threads
  template <class Function>
  void share(int count, Function&& each);
  ChooseScratch& choose_scratch(int thread) { return choose_scratch_[static_cast<size_t>(thread)]; }

  const Kernels& kernels() const { return kernels_; }
  int num_threads() const { return pool_.num_threads(); }
  const Matrix& matrix(int index) const { return matrices_[static_cast<size_t>(index)]; }
  // seconds that passes spent in products, attention and the rest, waiting included, since the last call
  struct Profile {
    double products, attention, rest;
  };
  Profile take_profile();
  // bytes of weights that a step over one row reads
  size_t weight_bytes() const;

 private:
  struct Register {
    int width, stride;
    bool wanted_only;
    LineVector<float> values;
  };
  struct Quantised {
    LineVector<int8_t> codes, row_codes;
    LineVector<float> scales, scaled_sums, row_scales;
    LineVector<int32_t> sums, half_sums, row_sums;
    QuantisedRows view(int k);
  };

  void reserve(int num_rows, int num_wanted);
  void prepare_rotary(const RowPlan& plan);
  void walk(const RowPlan& plan, int thread);
  void run_row_op(const Op& op, const RowPlan& plan, int row);
  void run_linear(const Op& op, int num_rows, std::atomic<int>* taken, int thread);
  void run_tiles(const Op& op, int num_rows, int begin, int end);
  void run_attention(const Op& op, const RowPlan& plan, std::atomic<int>& next, int thread);
  void check_ops() const;
  void add_quantise_ops();
  bool is_row_op(const Op& op) const { return op.kind != OpKind::kLinear && op.kind != OpKind::kAttention; }
  bool on_wanted_rows(const Op& op) const;
  float* row_of(int index, int row) {
    Register& reg = registers_[static_cast<size_t>(index)];
    return reg.values.data() + static_cast<size_t>(row) * reg.stride;
  }

  const Kernels& kernels_;
  ThreadPool pool_;
  Arena arena_;
  std::vector<Matrix> matrices_;
  std::vector<LineVector<float>> vectors_;
  std::vector<Register> registers_;
  std::vector<Op> ops_;
  int widest_quantised_ = 0;
  Quantised quantised_;  // of the register that the last quantise operation took
  std::vector<float> inverse_frequencies_;
  LineVector<float> cosine_, sine_;
  float rotary_factor_ = 1.0f;
  std::unique_ptr<std::atomic<int>[]> taken_;  // pieces of work taken: a counter for each operation and thread
  std::vector<AttentionScratch> scratch_;
  std::vector<ChooseScratch> choose_scratch_;
  Profile profile_{};  // thread 0's
  CacheShape cache_shape_{};
  Cache cache_;
  int logits_register_ = -1, max_context_ = 0, num_wanted_ = 0;
};

template <class Function>
void Program::share(int count, Function&& each) {
  if (count == 1 || num_threads() == 1) {  // not worth waking anyone
    for (int i = 0; i < count; ++i) each(i, 0);
    return;
  }
  std::atomic<int> next{0};
  pool_.run([&](int thread) {
    for (int i = next.fetch_add(1); i < count; i = next.fetch_add(1)) each(i, thread);
  });
}

}  // namespace headstart
