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
#include <vector>

#include "attention.hpp"
#include "cache.hpp"
#include "machine.hpp"
#include "rows.hpp"
#include "states.hpp"
#include "weights.hpp"

namespace headstart {

// One of the matrices that a linear operation applies to its input.
struct LinearPart {
  int matrix, destination;
  int bias;         // vector, or -1
  bool accumulate;  // adds to what the destination holds
};

enum class OpKind {
  kEmbed,
  kState,  // what was kept for the token before
  kCopy,   // into a part of a wider register
  kNorm,
  kQuantise,
  kLinear,
  kRotate,
  kStore,
  kAttention,
  kSilu,
  kGate,
  kAdd,
  kSelect,
  kKeep,  // for the rows that follow
};

struct Op {
  explicit Op(OpKind kind) : kind(kind) {}

  OpKind kind;
  int out = -1, in = -1, in2 = -1, in3 = -1;  // registers
  int weight = -1;                            // vector (norm) or matrix (embed)
  int span = 0;                               // norm: inputs a norm takes together; rotate: width of a head
  int at = 0;                                 // first float of a part: of a state, a register, what is kept
  float eps = 0.0f;
  int layer = 0;
  AttentionShape attention{};
  std::vector<LinearPart> parts;
};

// What a pass runs over: its rows, where their keys and values lie, the states they read, and where they keep theirs.
struct Pass {
  const RowPlan& plan;
  const Cache& cache;
  const StateStore* states;  // may be null if the program reads none
  const StateStore* kept;    // may be null if it keeps nothing
};

class Program {
 public:
  explicit Program(std::shared_ptr<Weights> weights);

  // ---- building; `add_register` returns the index to refer to
  int add_register(int width, bool wanted_rows_only);
  void add_op(Op op);
  // logits register, rotary frequencies [rotated / 2] with the factor on cosine and sine
  void finish(int logits_register, std::vector<float> inverse_frequencies, float rotary_factor, CacheShape cache,
              int max_context);

  // ---- running over a cache of its own, as a trunk
  void make_cache(int num_pages);
  size_t page_bytes() const;
  int num_pages() const { return cache_.num_pages(); }
  const StateStore& taps() const { return taps_; }
  void forward(const RowsView& rows);
  // copies slots of a sequence to slots, keys, values and taps, as if all at once
  void move(std::span<const int32_t> page_table, std::span<const int32_t> sources,
            std::span<const int32_t> destinations);

  // ---- running over another's
  void run(const Pass& pass);
  const float* logits(int wanted_index) const;
  int num_wanted() const { return num_wanted_; }
  int vocab_size() const { return logits_register_ < 0 ? 0 : registers_[static_cast<size_t>(logits_register_)].width; }

  const std::shared_ptr<Weights>& weights() const { return weights_; }
  Machine& machine() const { return machine_; }
  const CacheShape& cache_shape() const { return cache_shape_; }
  int max_context() const { return max_context_; }
  int kept_width() const { return kept_width_; }    // floats that it keeps a row
  int state_width() const { return state_width_; }  // floats of a state that it reads
  int num_embeddings() const;                       // tokens that every embedding of it knows
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
  void walk(const Pass& pass, int thread);
  void run_row_op(const Op& op, const Pass& pass, int row);
  void run_state(const Op& op, const Pass& pass, int row);
  void run_linear(const Op& op, int num_rows, std::atomic<int>* taken, int thread);
  void run_tiles(const Op& op, int num_rows, int begin, int end);
  void run_attention(const Op& op, const Pass& pass, std::atomic<int>& next, int thread);
  void check_ops() const;
  void add_quantise_ops();
  bool is_row_op(const Op& op) const { return op.kind != OpKind::kLinear && op.kind != OpKind::kAttention; }
  bool on_wanted_rows(const Op& op) const;
  float* row_of(int index, int row) {
    Register& reg = registers_[static_cast<size_t>(index)];
    return reg.values.data() + static_cast<size_t>(row) * reg.stride;
  }

  const Matrix& matrix(int index) const { return weights_->matrix(index); }
  int num_threads() const { return machine_.num_threads(); }

  const std::shared_ptr<Weights> weights_;
  Machine& machine_;
  const Kernels& kernels_;
  std::vector<Register> registers_;
  std::vector<Op> ops_;
  int widest_quantised_ = 0;
  Quantised quantised_;  // of the register that the last quantise operation took
  std::vector<float> inverse_frequencies_;
  LineVector<float> cosine_, sine_;
  float rotary_factor_ = 1.0f;
  std::unique_ptr<std::atomic<int>[]> taken_;  // pieces of work taken: a counter for each operation and thread
  Profile profile_{};                          // thread 0's
  CacheShape cache_shape_{};
  Cache cache_;
  StateStore taps_;
  int logits_register_ = -1, max_context_ = 0, num_wanted_ = 0, kept_width_ = 0, state_width_ = 0;
};

}  // namespace headstart
