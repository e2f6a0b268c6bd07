// The sampling law: which token follows, from logits, parameters, seed and position.
//
// The meaning is written down in src/headstart/decoding/law.py; this is the same at speed. Noise
// is a function of (seed, position, token id) alone, so a choice does not depend on how the
// position was reached.
#pragma once
#include <cstdint>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "kernels.hpp"

namespace headstart {

// The parameters leave nothing to choose, overflow, or name ids that do not exist: the caller's to mend.
struct LawError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// A logit is NaN or +infinity: weights or kernels are broken.
struct LogitsError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Law {
  int vocab_size = 0;
  uint64_t seed = 0;
  double temperature = 0, top_p = 1, min_p = 0;
  double repetition_penalty = 1, presence_penalty = 0, frequency_penalty = 0;
  int top_k = 0, min_tokens = 0, num_logprobs = -1;  // -1: no log-probabilities
  std::vector<std::pair<int32_t, double>> bias;
  std::vector<int32_t> allowed;  // empty: all
  std::vector<int32_t> end_tokens;

  bool penalises() const { return repetition_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0; }
};

struct Chosen {
  int32_t token = -1;
  double logprob = 0;
  std::vector<std::pair<int32_t, double>> top;
};

// Buffers of one thread, kept between calls.
struct ChooseScratch {
  std::vector<double> adjusted, scaled, weights;
  std::vector<uint32_t> noise;
  std::vector<int32_t> ranking, found;
};

class Chooser {
 public:
  // Throws LawError if an id is not in the vocabulary; end tokens past it are ignored.
  Chooser(Law law, std::span<const int32_t> prompt);

  // counts tokens that were written
  void extend(std::span<const int32_t> tokens);
  const Law& law() const { return law_; }

  // The token at `position` given a row's logits [vocab_size]; tokens of `path` count as written.
  // Throws LawError or LogitsError.
  Chosen choose(const float* logits, int position, std::span<const int32_t> path, const Kernels& kernels,
                ChooseScratch& scratch) const;

 private:
  void check_ids(const char* name, std::span<const int32_t> ids) const;
  bool leaves_logits_alone(size_t num_written) const;
  void adjust(const float* logits, std::span<const int32_t> path, std::vector<double>& adjusted) const;
  void penalise(std::span<const int32_t> path, std::vector<double>& adjusted) const;
  void penalise_token(int32_t token, int count, std::vector<double>& adjusted) const;
  int32_t sample(int position, const Kernels& kernels, ChooseScratch& scratch) const;
  void rank(const Kernels& kernels, double top, ChooseScratch& scratch) const;
  void keep_nucleus(const Kernels& kernels, double top, ChooseScratch& scratch) const;
  void report(const Kernels& kernels, ChooseScratch& scratch, Chosen& chosen) const;

  Law law_;
  std::vector<bool> barred_;     // by `allowed`; empty: none
  std::vector<int32_t> counts_;  // of written tokens, if a penalty needs them
  std::vector<bool> in_prompt_;
  std::vector<int32_t> seen_;  // ids in prompt or output, each once
  size_t num_written_ = 0;
};

}  // namespace headstart
