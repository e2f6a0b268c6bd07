// From a row of a head's logits to guesses: which tokens, and how likely.
//
// Under a law that samples, guesses are coupled: the law's own noise for the position is added to the
// head's logits, so that a head which agrees with the trunk guesses the very token that the trunk draws.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "choose.hpp"
#include "kernels.hpp"
#include "memory.hpp"

namespace headstart {

struct Guess {
  int32_t token;  // of the trunk's vocabulary
  double probability;
};

// Buffers of one thread, kept between calls.
struct GuessScratch {
  std::vector<float> maxima, sorted_maxima;
  std::vector<std::pair<float, int32_t>> likeliest;  // logit and token
  std::vector<double> scaled, weights;
  std::vector<std::pair<double, int32_t>> scored;  // with noise, and token
};

class Guesser {
 public:
  // `vocabulary` gives the token of each logit; empty: they are the trunk's own
  Guesser(int num_logits, std::vector<int32_t> vocabulary)
      : num_logits_(num_logits), vocabulary_(std::move(vocabulary)) {}

  // The likeliest tokens at `position`, best first, ties by lower id; `most` at most. Greedy if `law` is null or its
  // temperature 0. None at all if a logit is NaN or infinite: a broken head guesses nothing.
  std::vector<Guess> guess(const float* logits, const Law* law, int position, int most, const Kernels& kernels,
                           GuessScratch& scratch) const;

 private:
  int32_t token_of(int logit) const { return vocabulary_.empty() ? logit : vocabulary_[static_cast<size_t>(logit)]; }
  void find_likeliest(const float* logits, size_t most, const Kernels& kernels, GuessScratch& scratch) const;
  float sum_exponentials(const float* logits, float top, float factor, const Kernels& kernels) const;
  size_t count_kept(const float* logits, const Law& law, const Kernels& kernels, GuessScratch& scratch) const;

  void couple(const float* logits, const Law& law, int position, const Kernels& kernels, GuessScratch& scratch) const;

  int num_logits_;
  std::vector<int32_t> vocabulary_;
};

}  // namespace headstart
