#include "guesses.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "noise.hpp"

namespace headstart {
namespace {

constexpr size_t kMostCoupled = 64;  // tokens that noise may lift to the top

// ties by lower token id
template <class Score>
bool higher_first(const std::pair<Score, int32_t>& a, const std::pair<Score, int32_t>& b) {
  return a.first > b.first || (a.first == b.first && a.second < b.second);
}

}  // namespace

// Every maximum is some token's logit, so the k-th highest of the maxima is a mark that k tokens reach: only
// where a maximum reaches it need single tokens be looked at.
void Guesser::find_likeliest(const float* logits, size_t most, const Kernels& kernels, GuessScratch& scratch) const {
  const int whole = num_logits_ / kTile * kTile, span = kMaximumRows * kTile;
  scratch.maxima.resize(static_cast<size_t>((whole + span - 1) / span) * kTile);
  kernels.lane_maxima(logits, whole, scratch.maxima.data());
  float mark = -std::numeric_limits<float>::infinity();
  if (scratch.maxima.size() >= most) {
    scratch.sorted_maxima = scratch.maxima;
    const auto kth = scratch.sorted_maxima.begin() + static_cast<ptrdiff_t>(most - 1);
    std::nth_element(scratch.sorted_maxima.begin(), kth, scratch.sorted_maxima.end(), std::greater<>());
    mark = *kth;
  }
  auto& found = scratch.likeliest;
  found.clear();
  const auto look_at = [&](int i) {
    if (logits[i] >= mark) found.emplace_back(logits[i], token_of(i));
  };
  for (size_t m = 0; m < scratch.maxima.size(); ++m) {
    if (!(scratch.maxima[m] >= mark)) continue;
    const int begin = static_cast<int>(m / kTile) * span, end = std::min(whole, begin + span);
    for (int i = begin + static_cast<int>(m % kTile); i < end; i += kTile) look_at(i);
  }
  for (int i = whole; i < num_logits_; ++i) look_at(i);
  const size_t kept = std::min(most, found.size());
  std::partial_sort(found.begin(), found.begin() + static_cast<ptrdiff_t>(kept), found.end(), higher_first<float>);
  found.resize(kept);
}

// sum of e^((logit - top) * factor); NaN if any logit is NaN or +infinity, or all are -infinity
float Guesser::sum_exponentials(const float* logits, float top, float factor, const Kernels& kernels) const {
  const int whole = num_logits_ / kTile * kTile;
  float rest[kTile];
  std::fill_n(rest, kTile, -std::numeric_limits<float>::infinity());
  std::copy(logits + whole, logits + num_logits_, rest);
  const float sum = kernels.exponential_sum(logits, whole, top, factor);
  return whole == num_logits_ ? sum : sum + kernels.exponential_sum(rest, kTile, top, factor);
}

// How many of the likeliest top-k, top-p and min-p leave; scratch.scaled holds their logits over temperature.
size_t Guesser::count_kept(const float* logits, const Law& law, const Kernels& kernels, GuessScratch& scratch) const {
  const std::vector<double>& scaled = scratch.scaled;
  const bool has_top_k = law.top_k > 0 && static_cast<size_t>(law.top_k) <= scaled.size();
  size_t kept = has_top_k ? static_cast<size_t>(law.top_k) : scaled.size();
  scratch.weights.resize(kept);
  double total = kernels.exponentials(scaled.data(), scaled[0], static_cast<int>(kept), scratch.weights.data());
  if (law.top_p < 1) {
    if (!has_top_k) {
      const float top = scratch.likeliest[0].first;
      total =
          std::max<double>(total, sum_exponentials(logits, top, static_cast<float>(1.0 / law.temperature), kernels));
    }
    double cumulative = 0.0;
    size_t nucleus = 0;
    while (nucleus < kept && cumulative < law.top_p * total) cumulative += scratch.weights[nucleus++];
    kept = nucleus;
  }
  while (kept > 1 && std::exp(scaled[kept - 1] - scaled[0]) < law.min_p) --kept;
  return kept;
}

// What the law leaves of the likeliest, with its noise, best first, in scratch.scored.
void Guesser::couple(const float* logits, const Law& law, int position, const Kernels& kernels,
                     GuessScratch& scratch) const {
  scratch.scaled.clear();
  for (const auto& likely : scratch.likeliest) scratch.scaled.push_back(likely.first / law.temperature);
  const size_t kept = count_kept(logits, law, kernels, scratch);
  const uint64_t key = position_key(law.seed, position);
  scratch.scored.clear();
  for (size_t i = 0; i < kept; ++i) {
    const int32_t token = scratch.likeliest[i].second;
    const uint32_t bits =
        token_noise(static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32), static_cast<uint32_t>(token));
    scratch.scored.emplace_back(scratch.scaled[i] + gumbel(bits), token);
  }
  std::sort(scratch.scored.begin(), scratch.scored.end(), higher_first<double>);
}

std::vector<Guess> Guesser::guess(const float* logits, const Law* law, int position, int most, const Kernels& kernels,
                                  GuessScratch& scratch) const {
  const bool greedy = law == nullptr || law->temperature == 0;
  const size_t wanted = static_cast<size_t>(most);
  find_likeliest(logits, greedy ? wanted : std::max(wanted, kMostCoupled), kernels, scratch);
  std::vector<Guess> guesses;
  if (scratch.likeliest.empty()) return guesses;
  const float top = scratch.likeliest[0].first;
  const double total = sum_exponentials(logits, top, 1.0f, kernels);
  if (!(total < std::numeric_limits<double>::infinity())) return guesses;
  if (greedy) {
    for (const auto& [logit, token] : scratch.likeliest) {
      guesses.push_back({token, std::exp(static_cast<double>(logit) - top) / total});
    }
    return guesses;
  }
  if (!std::isfinite(top / law->temperature)) return guesses;  // the law refuses such a row, too
  couple(logits, *law, position, kernels, scratch);
  const double best = scratch.scored[0].first;
  double sum = 0.0;
  for (const auto& [score, token] : scratch.scored) sum += std::exp(score - best);
  for (size_t i = 0; i < std::min(wanted, scratch.scored.size()); ++i) {
    const auto& [score, token] = scratch.scored[i];
    guesses.push_back({token, std::exp(score - best) / sum});
  }
  return guesses;
}

}  // namespace headstart
