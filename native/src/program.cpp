#include "program.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <stdexcept>
#include <utility>

namespace headstart {
namespace {

using Clock = std::chrono::steady_clock;

int round_up(int value, int multiple) { return (value + multiple - 1) / multiple * multiple; }

template <class T>
void grow(LineVector<T>& buffer, size_t size) {
  if (buffer.size() < size) buffer.resize(size);
}

}  // namespace

Program::Program(std::shared_ptr<Weights> weights)
    : weights_(std::move(weights)), machine_(*weights_->machine()), kernels_(machine_.kernels()) {}

int Program::add_register(int width, bool wanted_rows_only) {
  registers_.push_back({width, round_up(width, kTile), wanted_rows_only, {}});
  return static_cast<int>(registers_.size()) - 1;
}

void Program::add_op(Op op) { ops_.push_back(std::move(op)); }

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
  const auto end_of_part = [&](int reg, const Op& op) { return op.at + registers_[static_cast<size_t>(reg)].width; };
  for (const Op& op : ops_) {
    if (op.kind == OpKind::kState) state_width_ = std::max(state_width_, end_of_part(op.out, op));
    if (op.kind == OpKind::kKeep) kept_width_ = std::max(kept_width_, end_of_part(op.in, op));
  }
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

int Program::num_embeddings() const {
  int most = INT32_MAX;
  for (const Op& op : ops_) {
    if (op.kind == OpKind::kEmbed) most = std::min(most, matrix(op.weight).n);
  }
  return most;
}

size_t Program::page_bytes() const {
  return Cache::page_bytes(cache_shape_) + StateStore::page_bytes(kept_width_, cache_shape_.half);
}

void Program::make_cache(int num_pages) {
  affordable(page_bytes() * static_cast<size_t>(num_pages));
  cache_ = Cache(cache_shape_, num_pages);
  if (kept_width_ > 0) taps_ = StateStore(kept_width_, cache_shape_.half, num_pages);
}

void Program::move(std::span<const int32_t> page_table, std::span<const int32_t> sources,
                   std::span<const int32_t> destinations) {
  cache_.move(page_table, sources, destinations);
  if (kept_width_ > 0) taps_.move(page_table, sources, destinations);
}

void Program::forward(const RowsView& rows) {
  const RowPlan plan(rows, {vocab_size(), max_context_, cache_.num_pages()});
  run({plan, cache_, nullptr, &taps_});
}

void Program::run(const Pass& pass) {
  if (taken_ == nullptr) throw std::invalid_argument("the program is not finished");
  if (state_width_ > 0 && pass.states == nullptr) throw std::invalid_argument("the program reads another's states");
  const RowPlan& plan = pass.plan;
  reserve(plan.num_rows(), plan.num_wanted());
  prepare_rotary(plan);
  num_wanted_ = plan.num_wanted();
  for (size_t i = 0; i < ops_.size() * static_cast<size_t>(num_threads()); ++i) {
    taken_[i].store(0, std::memory_order_relaxed);
  }
  machine_.pool().run([&](int thread) { walk(pass, thread); });
}

bool Program::on_wanted_rows(const Op& op) const {
  const int reg = op.out >= 0 ? op.out : op.in;
  return registers_[static_cast<size_t>(reg)].wanted_only;
}

void Program::walk(const Pass& pass, int thread) {
  const RowPlan& plan = pass.plan;
  ThreadPool& pool = machine_.pool();
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
        pool.wait();
      }
      for (int r = thread; r < num_rows; r += num_threads()) run_row_op(op, pass, r);
      barrier_due = true;
      continue;
    }
    if (barrier_due) pool.wait();
    account(profile_.rest);
    if (op.kind == OpKind::kLinear) {
      run_linear(op, num_rows, taken, thread);
    } else {
      run_attention(op, pass, taken[0], thread);
    }
    pool.wait();
    account(op.kind == OpKind::kLinear ? profile_.products : profile_.attention);
    barrier_due = false;
  }
  account(profile_.rest);
}

Program::Profile Program::take_profile() { return std::exchange(profile_, Profile{}); }

void Program::run_row_op(const Op& op, const Pass& pass, int row) {
  const RowPlan& plan = pass.plan;
  const auto width = [&](int reg) { return registers_[static_cast<size_t>(reg)].width; };
  switch (op.kind) {
    case OpKind::kEmbed:
      unpack_row(matrix(op.weight), plan.rows().tokens[static_cast<size_t>(row)], row_of(op.out, row));
      break;
    case OpKind::kState:
    case OpKind::kKeep:
      run_state(op, pass, row);
      break;
    case OpKind::kCopy:
      std::copy_n(row_of(op.in, row), width(op.in), row_of(op.out, row) + op.at);
      break;
    case OpKind::kNorm:
      for (int at = 0; at < width(op.in); at += op.span) {
        kernels_.rms_norm(row_of(op.in, row) + at, weights_->vector(op.weight).data(), op.eps, op.span,
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
      store_row(plan, op.attention, pass.cache, op.layer, kernels_, row, row_of(op.in, row), row_of(op.in2, row));
      break;
    case OpKind::kSilu:
      kernels_.silu(row_of(op.in, row), width(op.in), row_of(op.out, row));
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

// From the slot of the token before the row, or to the row's own.
void Program::run_state(const Op& op, const Pass& pass, int row) {
  const int32_t sequence = pass.plan.rows().sequences[static_cast<size_t>(row)];
  const int reg = op.kind == OpKind::kState ? op.out : op.in;
  const int width = registers_[static_cast<size_t>(reg)].width;
  if (op.kind == OpKind::kKeep) {
    const int slot = pass.plan.place(row).slot;
    pass.kept->write(pass.plan.page(sequence, slot), slot % kPageTokens, op.at, width, row_of(reg, row));
    return;
  }
  const int slot = pass.plan.place(row).slot_before;
  if (slot < 0) {
    std::fill_n(row_of(reg, row), width, 0.0f);
  } else {
    pass.states->read(pass.plan.page(sequence, slot), slot % kPageTokens, op.at, width, row_of(reg, row));
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
      const float* bias = part.bias >= 0 ? weights_->vector(part.bias).data() : nullptr;
      const Destination destination{row_of(part.destination, 0),
                                    registers_[static_cast<size_t>(part.destination)].stride, bias, part.accumulate};
      kernels_.matmul(weights.view(), quantised, input.values.data(), input.stride, num_rows, from, to, destination);
    }
    first += weights.num_tiles;
  }
}

void Program::run_attention(const Op& op, const Pass& pass, std::atomic<int>& next, int thread) {
  const int count = num_attention_items(pass.plan, op.attention, num_threads());
  for (int item = next.fetch_add(1); item < count; item = next.fetch_add(1)) {
    attend(pass.plan, op.attention, pass.cache, op.layer, kernels_, num_threads(), item, row_of(op.in, 0),
           row_of(op.out, 0), machine_.attention_scratch(thread));
  }
}

const float* Program::logits(int wanted_index) const {
  const Register& reg = registers_[static_cast<size_t>(logits_register_)];
  return reg.values.data() + static_cast<size_t>(wanted_index) * reg.stride;
}

}  // namespace headstart
