#include "choose.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "noise.hpp"

namespace headstart {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();

// never below gumbel(bits): -log(-log u) <= -log(1 - u), and 1 - u = (~bits + 0.5) / 2^32
double gumbel_bound(uint32_t bits) { return (std::countl_zero(~bits) + 1) * 0.6931471805599454; }

// the lowest index of the highest value; of a NaN, if there is one
int32_t highest_of(const std::vector<double>& values) {
  constexpr size_t kLanes = 8;  // independent, so that the compiler can keep them in vectors
  double highest[kLanes];
  std::fill_n(highest, kLanes, kNothing);
  int broken = 0;
  const size_t whole = values.size() / kLanes * kLanes;
  for (size_t i = 0; i < whole; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const double value = values[i + lane];
      highest[lane] = value > highest[lane] ? value : highest[lane];
      broken |= value != value;
    }
  }
  double top = *std::max_element(highest, highest + kLanes);
  for (size_t i = whole; i < values.size(); ++i) {
    top = std::max(top, values[i]);
    broken |= values[i] != values[i];
  }
  const auto sought = [&](double value) { return broken ? value != value : value == top; };
  return static_cast<int32_t>(std::find_if(values.begin(), values.end(), sought) - values.begin());
}

[[noreturn]] void refuse_logits(const float* logits, int vocab_size) {
  int token = 0;
  while (token + 1 < vocab_size && !std::isnan(logits[token]) && logits[token] != INFINITY) ++token;
  throw LogitsError("The model's logit for token id " + std::to_string(token) + " is " + std::to_string(logits[token]) +
                    "; logits must be finite or -inf. Its weights are damaged or overflow in this format: check the "
                    "file, or load it with wider weights.");
}

void check_highest(double highest) {
  if (highest == kNothing) {
    throw LawError(
        "No token can be chosen: logit_bias, allowed_tokens and min_tokens bar all of them. Allow at least "
        "one token that does not end the text, or lower min_tokens.");
  }
  if (!(highest < -kNothing)) {
    throw LawError(
        "The logits overflow under these parameters; they must stay finite. Use a higher temperature (or "
        "0), or smaller biases and penalties.");
  }
}

}  // namespace

void Chooser::check_ids(const char* name, std::span<const int32_t> ids) const {
  for (const int32_t token : ids) {
    if (token < 0 || token >= law_.vocab_size) {
      throw LawError(std::string(name) + ": token id " + std::to_string(token) +
                     " is not in the vocabulary; ids are 0 to " + std::to_string(law_.vocab_size - 1) +
                     ". Take ids from this model's own tokenizer.");
    }
  }
}

Chooser::Chooser(Law law, std::span<const int32_t> prompt) : law_(std::move(law)) {
  const size_t vocab = static_cast<size_t>(law_.vocab_size);
  std::erase_if(law_.end_tokens, [&](int32_t token) { return token >= law_.vocab_size; });
  check_ids("end token", law_.end_tokens);
  check_ids("allowed_tokens", law_.allowed);
  check_ids("prompt", prompt);
  for (const auto& biased : law_.bias) check_ids("logit_bias", {&biased.first, 1});
  if (!law_.allowed.empty()) {
    barred_.assign(vocab, true);
    for (const int32_t token : law_.allowed) barred_[static_cast<size_t>(token)] = false;
  }
  if (law_.penalises()) {
    counts_.assign(vocab, 0);
    in_prompt_.assign(vocab, false);
    for (const int32_t token : prompt) {
      if (!in_prompt_[static_cast<size_t>(token)]) seen_.push_back(token);
      in_prompt_[static_cast<size_t>(token)] = true;
    }
  }
}

void Chooser::extend(std::span<const int32_t> tokens) {
  check_ids("written", tokens);
  num_written_ += tokens.size();
  if (!law_.penalises()) return;
  for (const int32_t token : tokens) {
    int32_t& count = counts_[static_cast<size_t>(token)];
    if (count++ == 0 && !in_prompt_[static_cast<size_t>(token)]) seen_.push_back(token);
  }
}

bool Chooser::leaves_logits_alone(size_t num_written) const {
  return !law_.penalises() && law_.bias.empty() && barred_.empty() &&
         num_written >= static_cast<size_t>(law_.min_tokens);
}

void Chooser::penalise_token(int32_t token, int count, std::vector<double>& adjusted) const {
  double& value = adjusted[static_cast<size_t>(token)];
  value = value > 0 ? value / law_.repetition_penalty : value * law_.repetition_penalty;
  if (count > 0) {
    value -= law_.presence_penalty;
    value -= law_.frequency_penalty * count;
  }
}

void Chooser::penalise(std::span<const int32_t> path, std::vector<double>& adjusted) const {
  std::vector<int32_t> fresh(path.begin(), path.end());  // the path's ids, each once
  std::sort(fresh.begin(), fresh.end());
  fresh.erase(std::unique(fresh.begin(), fresh.end()), fresh.end());
  const auto on_path = [&](int32_t token) { return static_cast<int>(std::count(path.begin(), path.end(), token)); };
  for (const int32_t token : seen_) {
    if (!std::binary_search(fresh.begin(), fresh.end(), token)) penalise_token(token, counts_[token], adjusted);
  }
  for (const int32_t token : fresh) penalise_token(token, counts_[token] + on_path(token), adjusted);
}

void Chooser::adjust(const float* logits, std::span<const int32_t> path, std::vector<double>& adjusted) const {
  adjusted.assign(logits, logits + law_.vocab_size);
  for (const auto& [token, bias] : law_.bias) adjusted[static_cast<size_t>(token)] += bias;
  if (law_.penalises()) penalise(path, adjusted);
  for (size_t token = 0; token < barred_.size(); ++token) {
    if (barred_[token]) adjusted[token] = kNothing;
  }
  if (num_written_ + path.size() < static_cast<size_t>(law_.min_tokens)) {
    for (const int32_t token : law_.end_tokens) adjusted[static_cast<size_t>(token)] = kNothing;
  }
}

Chosen Chooser::choose(const float* logits, int position, std::span<const int32_t> path, const Kernels& kernels,
                       ChooseScratch& scratch) const {
  Chosen chosen;
  const int highest = kernels.argmax(logits, law_.vocab_size);
  if (highest < 0 || logits[highest] == INFINITY) refuse_logits(logits, law_.vocab_size);
  const bool greedy = law_.temperature == 0;
  if (greedy && law_.num_logprobs < 0 && leaves_logits_alone(num_written_ + path.size())) {
    check_highest(logits[highest]);
    chosen.token = highest;
    return chosen;
  }
  adjust(logits, path, scratch.adjusted);
  chosen.token = highest_of(scratch.adjusted);
  check_highest(scratch.adjusted[static_cast<size_t>(chosen.token)]);
  if (!greedy) chosen.token = sample(position, kernels, scratch);
  if (law_.num_logprobs >= 0) report(kernels, scratch, chosen);
  return chosen;
}

// token ids by logit, ties by lower id
static auto by_rank(const std::vector<double>& scaled) {
  return [&scaled](int32_t a, int32_t b) {
    const double x = scaled[static_cast<size_t>(a)], y = scaled[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  };
}

// Shortens the ranking to its shortest beginning that holds `share` of the weight.
template <class Weight>
static void cut_ranking(std::vector<int32_t>& ranking, double share, Weight&& weight_of) {
  double cumulative = 0.0;
  size_t kept = 0;
  while (kept < ranking.size() && cumulative < share) cumulative += weight_of(kept++);
  ranking.resize(kept);
}

// Takes tokens within a growing distance of the top into scratch.ranking, unsorted, until they suffice.
template <class Suffices>
static void take_likeliest(const Kernels& kernels, ChooseScratch& scratch, double top, Suffices&& suffices) {
  const int vocab_size = static_cast<int>(scratch.scaled.size());
  scratch.found.resize(scratch.scaled.size());
  for (double distance = 2.0;; distance *= 2.0) {
    const double limit = distance < 2000.0 ? top - distance : -std::numeric_limits<double>::max();
    const int count = kernels.at_least(scratch.scaled.data(), vocab_size, limit, scratch.found.data());
    scratch.ranking.assign(scratch.found.begin(), scratch.found.begin() + count);
    if (suffices() || distance >= 2000.0) return;
  }
}

// Top-p: of what scratch.ranking holds, or of all tokens if it is empty.
void Chooser::keep_nucleus(const Kernels& kernels, double top, ChooseScratch& scratch) const {
  const std::vector<double>& scaled = scratch.scaled;
  std::vector<int32_t>& ranking = scratch.ranking;
  std::vector<double>& weights = scratch.weights;
  if (!ranking.empty()) {
    weights.resize(ranking.size());
    for (size_t i = 0; i < ranking.size(); ++i) weights[i] = scaled[static_cast<size_t>(ranking[i])];
    const double total = kernels.exponentials(weights.data(), top, static_cast<int>(weights.size()), weights.data());
    return cut_ranking(ranking, law_.top_p * total, [&](size_t i) { return weights[i]; });
  }
  weights.resize(scaled.size());
  const double share = law_.top_p * kernels.exponentials(scaled.data(), top, law_.vocab_size, weights.data());
  // sort only as many as can matter
  const auto hold_share = [&] {
    double held = 0.0;
    for (const int32_t token : ranking) held += weights[static_cast<size_t>(token)];
    return held > share * (1.0 + 1e-9);
  };
  take_likeliest(kernels, scratch, top, hold_share);
  std::sort(ranking.begin(), ranking.end(), by_rank(scaled));
  cut_ranking(ranking, share, [&](size_t i) { return weights[static_cast<size_t>(ranking[i])]; });
}

// The tokens that top-k, top-p and min-p leave, in scratch.ranking; empty if they leave all.
void Chooser::rank(const Kernels& kernels, double top, ChooseScratch& scratch) const {
  const std::vector<double>& scaled = scratch.scaled;
  std::vector<int32_t>& ranking = scratch.ranking;
  ranking.clear();
  if (law_.top_k > 0 && law_.top_k < law_.vocab_size) {
    const size_t k = static_cast<size_t>(law_.top_k);
    take_likeliest(kernels, scratch, top, [&] { return ranking.size() >= k; });
    const size_t kept = std::min(k, ranking.size());  // fewer only if the rest is barred
    std::partial_sort(ranking.begin(), ranking.begin() + static_cast<ptrdiff_t>(kept), ranking.end(), by_rank(scaled));
    ranking.resize(kept);
  }
  if (law_.top_p < 1) keep_nucleus(kernels, top, scratch);
  if (law_.min_p > 0) {
    if (ranking.empty()) {
      const double lowest = top + std::log(law_.min_p) - 1e-6;  // spares most tokens the exponential
      scratch.found.resize(scaled.size());
      const int count = kernels.at_least(scaled.data(), law_.vocab_size, lowest, scratch.found.data());
      ranking.assign(scratch.found.begin(), scratch.found.begin() + count);
    }
    std::erase_if(ranking, [&](int32_t t) { return std::exp(scaled[static_cast<size_t>(t)] - top) < law_.min_p; });
  }
}

int32_t Chooser::sample(int position, const Kernels& kernels, ChooseScratch& scratch) const {
  std::vector<double>& scaled = scratch.scaled;
  scaled.resize(scratch.adjusted.size());
  kernels.divide(scratch.adjusted.data(), law_.temperature, law_.vocab_size, scaled.data());
  const int32_t likeliest = highest_of(scaled);
  const double top = scaled[static_cast<size_t>(likeliest)];
  check_highest(top);
  rank(kernels, top, scratch);
  scratch.noise.resize(scaled.size());
  kernels.noise_bits(position_key(law_.seed, position), law_.vocab_size, scratch.noise.data());

  double best = kNothing;
  int32_t token = likeliest;
  const auto consider = [&](int32_t t) {
    const double logit = scaled[static_cast<size_t>(t)];
    const uint32_t bits = scratch.noise[static_cast<size_t>(t)];
    if (logit + gumbel_bound(bits) < best) return;  // most end here, without a logarithm
    const double score = logit + gumbel(bits);
    if (score > best || (score == best && t < token)) {
      best = score;
      token = t;
    }
  };
  consider(likeliest);  // a high mark to begin with
  if (!scratch.ranking.empty()) {
    for (const int32_t t : scratch.ranking) consider(t);
    return token;
  }
  // Of all tokens only two kinds can reach the mark: those whose noise is rare, one in a thousand,
  // and those so likely that less noise will do.
  constexpr int kRareZeros = 10;
  constexpr uint32_t kRare = ~(UINT32_MAX >> kRareZeros);  // bits from here on begin with ten ones
  scratch.found.resize(scaled.size());
  int32_t* found = scratch.found.data();
  const double likely = best - gumbel_bound(kRare - 1);
  for (int i = 0, count = kernels.at_least(scaled.data(), law_.vocab_size, likely, found); i < count; ++i) {
    consider(found[i]);
  }
  for (int i = 0, count = kernels.bits_at_least(scratch.noise.data(), law_.vocab_size, kRare, found); i < count; ++i) {
    consider(found[i]);
  }
  return token;
}

void Chooser::report(const Kernels& kernels, ChooseScratch& scratch, Chosen& chosen) const {
  const std::vector<double>& adjusted = scratch.adjusted;
  const double top = adjusted[static_cast<size_t>(highest_of(adjusted))];
  scratch.weights.resize(adjusted.size());
  const double log_total =
      std::log(kernels.exponentials(adjusted.data(), top, law_.vocab_size, scratch.weights.data()));
  const auto logprob = [&](int32_t token) { return adjusted[static_cast<size_t>(token)] - top - log_total; };
  chosen.logprob = logprob(chosen.token);
  // the likeliest few, by the same way as top-k
  scratch.scaled = adjusted;
  const size_t wanted = static_cast<size_t>(std::min(law_.num_logprobs, law_.vocab_size));
  std::vector<int32_t>& best = scratch.ranking;
  take_likeliest(kernels, scratch, top, [&] { return best.size() >= wanted; });
  const size_t num_best = std::min(wanted, best.size());
  std::partial_sort(best.begin(), best.begin() + static_cast<ptrdiff_t>(num_best), best.end(), by_rank(adjusted));
  best.resize(num_best);
  for (const int32_t token : best) {
    if (adjusted[static_cast<size_t>(token)] > kNothing) chosen.top.emplace_back(token, logprob(token));
  }
}

}  // namespace headstart
