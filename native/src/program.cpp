#include "program.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

namespace headstart {
namespace {

using Clock = std::chrono::steady_clock;

// Rows that share a walk over pages in attention: many, so that keys are read seldom, but few
// where there are few, so that all threads have work.
int rows_of_block(size_t num_rows) { return num_rows <= 1 ? 1 : num_rows <= 16 ? 2 : num_rows <= 64 ? 4 : 8; }

int round_up(int value, int multiple) { return (value + multiple - 1) / multiple * multiple; }

template <class T>
void grow(LineVector<T>& buffer, size_t size) {
  if (buffer.size() < size) buffer.resize(size);
}

}  // namespace

Program::Program(int num_threads, const Kernels& kernels) : kernels_(kernels), pool_(num_threads) {
  scratch_.resize(static_cast<size_t>(num_threads));
  choose_scratch_.resize(static_cast<size_t>(num_threads));
}

int Program::add_matrix(const Matrix& matrix) {
  matrices_.push_back(matrix);
  return static_cast<int>(matrices_.size()) - 1;
}

int Program::add_vector(std::span<const float> values) {
  LineVector<float> padded(values.begin(), values.end());
  padded.resize(static_cast<size_t>(round_up(static_cast<int>(values.size()), kTile)), 0.0f);
  vectors_.push_back(std::move(padded));
  return static_cast<int>(vectors_.size()) - 1;
}

int Program::add_register(int width, bool wanted_rows_only) {
  registers_.push_back({width, round_up(width, kTile), wanted_rows_only, {}});
  return static_cast<int>(registers_.size()) - 1;
}

void Program::add_op(Op op) { ops_.push_back(std::move(op)); }

// A list that fits together cannot reach outside its registers, whatever rows come.
void Program::check_ops() const {
  const auto demand = [](bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(std::string("the program does not fit together: ") + what);
  };
  const auto reg = [&](int index) -> const Register& {
    demand(index >= 0 && static_cast<size_t>(index) < registers_.size(), "unknown register");
    return registers_[static_cast<size_t>(index)];
  };
  const auto weights = [&](int index) -> const Matrix& {
    demand(index >= 0 && static_cast<size_t>(index) < matrices_.size(), "unknown matrix");
    return matrix(index);
  };
  const auto vector_of = [&](int index, int width) {
    demand(index >= 0 && static_cast<size_t>(index) < vectors_.size(), "unknown vector");
    demand(static_cast<int>(vectors_[static_cast<size_t>(index)].size()) >= width, "a vector is too short");
  };
  const auto alike = [&](int a, int b) {
    demand(reg(a).width == reg(b).width && reg(a).wanted_only == reg(b).wanted_only, "registers differ");
  };
  demand(reg(logits_register_).wanted_only, "logits are of wanted rows");
  for (const Op& op : ops_) {
    const AttentionShape& shape = op.attention;
    switch (op.kind) {
      case OpKind::kEmbed:
        demand(weights(op.weight).k == reg(op.out).width && !reg(op.out).wanted_only, "embedding");
        demand(weights(op.weight).n >= vocab_size(), "the embedding has fewer rows than there are logits");
        break;
      case OpKind::kNorm:
        alike(op.out, op.in);
        demand(op.span > 0 && op.span % kTile == 0 && reg(op.in).width % op.span == 0, "norm");
        vector_of(op.weight, op.span);
        break;
      case OpKind::kLinear:
        for (const LinearPart& part : op.parts) {
          demand(weights(part.matrix).k == reg(op.in).width && matrix(part.matrix).n == reg(part.destination).width,
                 "a matrix has another shape than its registers");
          demand(reg(op.in).wanted_only == reg(part.destination).wanted_only, "registers differ in rows");
          if (part.bias >= 0) vector_of(part.bias, reg(part.destination).width);
        }
        break;
      case OpKind::kRotate:
        demand(op.span > 0 && reg(op.in).width % op.span == 0 && !reg(op.in).wanted_only, "rotation");
        demand(static_cast<int>(inverse_frequencies_.size()) * 2 <= op.span, "more frequencies than a head has pairs");
        break;
      case OpKind::kStore:
      case OpKind::kAttention:
        demand(op.layer >= 0 && op.layer < cache_shape_.num_layers, "layer");
        demand(shape.num_kv_heads == cache_shape_.num_kv_heads && shape.head_dim == cache_shape_.head_dim &&
                   shape.num_kv_heads > 0 && shape.num_heads % shape.num_kv_heads == 0 && shape.head_dim % kTile == 0,
               "attention's heads differ from the cache's");
        if (op.kind == OpKind::kStore) {
          alike(op.in, op.in2);
          demand(reg(op.in).width == shape.num_kv_heads * shape.head_dim && !reg(op.in).wanted_only, "keys");
        } else {
          alike(op.in, op.out);
          demand(reg(op.in).width == shape.num_heads * shape.head_dim && !reg(op.in).wanted_only, "queries");
        }
        break;
      case OpKind::kGate:
      case OpKind::kAdd:
        alike(op.in, op.in2);
        alike(op.in, op.out);
        demand(reg(op.in).width % kTile == 0, "width");
        break;
      case OpKind::kSelect:
        demand(reg(op.in).width == reg(op.out).width && reg(op.out).wanted_only && !reg(op.in).wanted_only, "select");
        break;
      case OpKind::kQuantise:
        break;
    }
  }
}

// Before a product whose matrices want 8-bit rows, unless its input was just quantised.
void Program::add_quantise_ops() {
  std::vector<Op> with;
  for (Op& op : ops_) {
    if (op.kind == OpKind::kLinear && std::any_of(op.parts.begin(), op.parts.end(),
                                                  [&](const LinearPart& p) { return matrix(p.matrix).quantised(); })) {
      Op quantise{OpKind::kQuantise};
      quantise.in = op.in;
      widest_quantised_ = std::max(widest_quantised_, registers_[static_cast<size_t>(op.in)].width);
      quantise.parts = op.parts;  // they tell which kinds of scale are wanted
      with.push_back(std::move(quantise));
    }
    with.push_back(std::move(op));
  }
  ops_ = std::move(with);
}

void Program::finish(int logits_register, std::vector<float> inverse_frequencies, float rotary_factor, CacheShape cache,
                     int max_context) {
  logits_register_ = logits_register;
  inverse_frequencies_ = std::move(inverse_frequencies);
  rotary_factor_ = rotary_factor;
  cache_shape_ = cache;
  max_context_ = max_context;
  check_ops();
  add_quantise_ops();
  taken_ = std::make_unique<std::atomic<int>[]>(ops_.size() * static_cast<size_t>(num_threads()));
}

size_t Program::weight_bytes() const {
  size_t bytes = 0;
  for (const Op& op : ops_) {
    if (op.kind != OpKind::kLinear) continue;
    for (const LinearPart& part : op.parts) bytes += matrix(part.matrix).num_bytes();
  }
  return bytes;
}

QuantisedRows Program::Quantised::view(int k) {
  return {k,
          codes.data(),
          scales.data(),
          scaled_sums.data(),
          sums.data(),
          half_sums.data(),
          row_codes.data(),
          row_scales.data(),
          row_sums.data()};
}

void Program::reserve(int num_rows, int num_wanted) {
  for (Register& reg : registers_) {
    grow(reg.values, static_cast<size_t>(reg.wanted_only ? num_wanted : num_rows) * reg.stride);
  }
  const size_t rows = static_cast<size_t>(std::max(num_rows, num_wanted));
  const size_t widest = static_cast<size_t>(widest_quantised_);
  grow(quantised_.codes, rows * widest);
  grow(quantised_.row_codes, rows * widest);
  for (auto* floats : {&quantised_.scales, &quantised_.scaled_sums}) grow(*floats, rows * widest / kGroup);
  grow(quantised_.row_scales, rows);
  grow(quantised_.row_sums, rows);
  grow(quantised_.sums, rows * widest / kGroup);
  grow(quantised_.half_sums, rows * widest / kGroup * 2);
}

void Program::prepare_rotary(const RowPlan& plan) {
  const size_t half = inverse_frequencies_.size();
  grow(cosine_, static_cast<size_t>(plan.num_rows()) * half);
  grow(sine_, static_cast<size_t>(plan.num_rows()) * half);
  for (int r = 0; r < plan.num_rows(); ++r) {
    const float position = static_cast<float>(plan.rows().positions[static_cast<size_t>(r)]);
    for (size_t i = 0; i < half; ++i) {
      // the angle in single precision, as models were trained
      const double angle = static_cast<double>(position * inverse_frequencies_[i]);
      cosine_[static_cast<size_t>(r) * half + i] = static_cast<float>(std::cos(angle)) * rotary_factor_;
      sine_[static_cast<size_t>(r) * half + i] = static_cast<float>(std::sin(angle)) * rotary_factor_;
    }
  }
}

void Program::forward(const RowsView& rows) {
  if (taken_ == nullptr) throw std::invalid_argument("the program is not finished");
  const RowPlan plan(rows, {vocab_size(), max_context_, cache_.num_pages()}, rows_of_block(rows.tokens.size()));
  reserve(plan.num_rows(), plan.num_wanted());
  prepare_rotary(plan);
  num_wanted_ = plan.num_wanted();
  for (size_t i = 0; i < ops_.size() * static_cast<size_t>(num_threads()); ++i) {
    taken_[i].store(0, std::memory_order_relaxed);
  }
  pool_.run([&](int thread) { walk(plan, thread); });
}

bool Program::on_wanted_rows(const Op& op) const {
  const int reg = op.out >= 0 ? op.out : op.in;
  return registers_[static_cast<size_t>(reg)].wanted_only;
}

void Program::walk(const RowPlan& plan, int thread) {
  bool barrier_due = false;  // something since the last barrier that another thread may need
  Clock::time_point since = Clock::now();
  const auto account = [&](double& seconds) {
    if (thread != 0) return;
    const Clock::time_point now = Clock::now();
    seconds += std::chrono::duration<double>(now - since).count();
    since = now;
  };
  for (size_t i = 0; i < ops_.size(); ++i) {
    const Op& op = ops_[i];
    std::atomic<int>* taken = taken_.get() + i * static_cast<size_t>(num_threads());
    const int num_rows = on_wanted_rows(op) ? plan.num_wanted() : plan.num_rows();
    if (num_rows == 0) break;  // nothing is wanted: the rest serves logits alone
    if (is_row_op(op)) {
      if (op.kind == OpKind::kSelect) {  // its rows are other threads' rows
        pool_.wait();
      }
      for (int r = thread; r < num_rows; r += num_threads()) run_row_op(op, plan, r);
      barrier_due = true;
      continue;
    }
    if (barrier_due) pool_.wait();
    account(profile_.rest);
    if (op.kind == OpKind::kLinear) {
      run_linear(op, num_rows, taken, thread);
    } else {
      run_attention(op, plan, taken[0], thread);
    }
    pool_.wait();
    account(op.kind == OpKind::kLinear ? profile_.products : profile_.attention);
    barrier_due = false;
  }
  account(profile_.rest);
}

Program::Profile Program::take_profile() { return std::exchange(profile_, Profile{}); }

void Program::run_row_op(const Op& op, const RowPlan& plan, int row) {
  const auto width = [&](int reg) { return registers_[static_cast<size_t>(reg)].width; };
  switch (op.kind) {
    case OpKind::kEmbed:
      unpack_row(matrix(op.weight), plan.rows().tokens[static_cast<size_t>(row)], row_of(op.out, row));
      break;
    case OpKind::kNorm:
      for (int at = 0; at < width(op.in); at += op.span) {
        kernels_.rms_norm(row_of(op.in, row) + at, vectors_[static_cast<size_t>(op.weight)].data(), op.eps, op.span,
                          row_of(op.out, row) + at);
      }
      break;
    case OpKind::kQuantise: {
      const QuantisedRows to = quantised_.view(width(op.in));
      bool groups = false, rows = false;
      for (const LinearPart& part : op.parts) {
        (matrix(part.matrix).by_row() ? rows : groups) |= matrix(part.matrix).quantised();
      }
      if (groups) kernels_.quantise_groups(row_of(op.in, row), to.k, row, to);
      if (rows) kernels_.quantise_row(row_of(op.in, row), to.k, row, to);
      break;
    }
    case OpKind::kRotate: {
      const size_t half = inverse_frequencies_.size();
      for (int at = 0; at < width(op.in); at += op.span) {
        kernels_.rotate(row_of(op.in, row) + at, cosine_.data() + static_cast<size_t>(row) * half,
                        sine_.data() + static_cast<size_t>(row) * half, static_cast<int>(half));
      }
      break;
    }
    case OpKind::kStore:
      store_row(plan, op.attention, cache_, op.layer, kernels_, row, row_of(op.in, row), row_of(op.in2, row));
      break;
    case OpKind::kGate:
      kernels_.silu_gate(row_of(op.in, row), row_of(op.in2, row), width(op.in), row_of(op.out, row));
      break;
    case OpKind::kAdd:
      kernels_.add(row_of(op.in, row), row_of(op.in2, row), width(op.in), row_of(op.out, row));
      break;
    case OpKind::kSelect:
      std::copy_n(row_of(op.in, plan.rows().wanted[static_cast<size_t>(row)]), width(op.in), row_of(op.out, row));
      break;
    case OpKind::kLinear:
    case OpKind::kAttention:
      break;
  }
}

// Each thread has a run of tiles of its own, so that it reads memory in one long stream, and takes
// pieces of it; a thread that is through helps the others.
void Program::run_linear(const Op& op, int num_rows, std::atomic<int>* taken, int thread) {
  constexpr int kPiece = 4;  // tiles; float kernels take four at once
  int num_tiles = 0;
  for (const LinearPart& part : op.parts) num_tiles += matrix(part.matrix).num_tiles;
  const int num_pieces = (num_tiles + kPiece - 1) / kPiece;
  for (int turn = 0; turn < num_threads(); ++turn) {
    const int owner = (thread + turn) % num_threads();
    const int first = num_pieces * owner / num_threads(), last = num_pieces * (owner + 1) / num_threads();
    for (int piece = first + taken[owner].fetch_add(1); piece < last; piece = first + taken[owner].fetch_add(1)) {
      run_tiles(op, num_rows, piece * kPiece, std::min((piece + 1) * kPiece, num_tiles));
    }
  }
}

// tiles [begin, end) of an operation's matrices, counted through
void Program::run_tiles(const Op& op, int num_rows, int begin, int end) {
  const Register& input = registers_[static_cast<size_t>(op.in)];
  const QuantisedRows quantised = quantised_.view(input.width);
  int first = 0;  // tile of a part's first output
  for (const LinearPart& part : op.parts) {
    const Matrix& weights = matrix(part.matrix);
    const int from = std::max(begin, first) - first, to = std::min(end, first + weights.num_tiles) - first;
    if (from < to) {
      const float* bias = part.bias >= 0 ? vectors_[static_cast<size_t>(part.bias)].data() : nullptr;
      const Destination destination{row_of(part.destination, 0),
                                    registers_[static_cast<size_t>(part.destination)].stride, bias, part.accumulate};
      kernels_.matmul(weights.view(), quantised, input.values.data(), input.stride, num_rows, from, to, destination);
    }
    first += weights.num_tiles;
  }
}

void Program::run_attention(const Op& op, const RowPlan& plan, std::atomic<int>& next, int thread) {
  const int count = num_attention_items(plan, op.attention, num_threads());
  for (int item = next.fetch_add(1); item < count; item = next.fetch_add(1)) {
    attend(plan, op.attention, cache_, op.layer, kernels_, num_threads(), item, row_of(op.in, 0), row_of(op.out, 0),
           scratch_[static_cast<size_t>(thread)]);
  }
}

const float* Program::logits(int wanted_index) const { return register_row(logits_register_, wanted_index); }

const float* Program::register_row(int index, int row) const {
  const Register& reg = registers_[static_cast<size_t>(index)];
  return reg.values.data() + static_cast<size_t>(row) * reg.stride;
}

}  // namespace headstart
