#include "lookup_tree.hpp"

#include <algorithm>
#include <queue>

namespace headstart {
namespace {

// The chance that something new follows a context of m tokens counts as kNovelty / m^2 occurrences: the longer the
// match, the likelier its continuation, as in the escapes of prediction by partial matching.
constexpr double kNovelty = 4.0;

// Contexts that are asked at a node: the longest match and, for what it leaves open, the next shorter one.
constexpr int kMaxContexts = 2;

// Continuations looked at in one context. A lone comma may have hundreds, none of which is likely.
constexpr size_t kMaxContinuations = 32;

// Guesses below this path probability are not built; no cost curve makes them pay.
constexpr double kMinPathProbability = 0.05;

struct Candidate {
  double path_probability;
  int32_t latest_end;
  int32_t order;  // of discovery
  int32_t token;
  int32_t parent;
  int depth;
  Match match;  // of the text that ends with it
};

// Likelier ones are better, then those that were seen later, then those that were found earlier.
struct IsWorse {
  bool operator()(const Candidate& a, const Candidate& b) const {
    if (a.path_probability != b.path_probability) return a.path_probability < b.path_probability;
    if (a.latest_end != b.latest_end) return a.latest_end < b.latest_end;
    return a.order > b.order;
  }
};

class LookupGrowth {
 public:
  LookupGrowth(const SuffixAutomaton& automaton, const LookupLimits& limits) : automaton_(automaton), limits_(limits) {}

  DraftTree grow(Match match) {
    open(-1, 0, 1.0, match);
    DraftTree tree;
    while (!waiting_.empty() && static_cast<int>(tree.tokens.size()) < limits_.max_nodes) {
      const Candidate best = waiting_.top();
      if (!tree.tokens.empty() && best.path_probability < limits_.min_path_probability) break;
      waiting_.pop();
      tree.tokens.push_back(best.token);
      tree.parents.push_back(best.parent);
      tree.path_probabilities.push_back(best.path_probability);
      open(static_cast<int32_t>(tree.tokens.size()) - 1, best.depth, best.path_probability, best.match);
    }
    return tree;
  }

 private:
  // Make candidates of what may follow a node. The longest context speaks first; the probability it leaves to
  // something new is shared out by the next shorter one that knows more.
  void open(int32_t node, int depth, double left, Match context) {
    if (depth >= limits_.max_depth) return;
    guessed_.clear();
    int contexts = 0;
    while (context.length >= limits_.min_match && contexts < kMaxContexts && left >= kMinPathProbability) {
      automaton_.continuations(context.state, kMaxContinuations, continuations_);
      std::erase_if(continuations_, [&](const Continuation& known) {
        return std::find(guessed_.begin(), guessed_.end(), known.token) != guessed_.end();
      });
      if (!continuations_.empty()) {
        ++contexts;
        int64_t count = 0;
        for (const Continuation& next : continuations_) count += next.count;
        const double length = context.length, novelty = kNovelty / (length * length);
        const double share = left / (static_cast<double>(count) + novelty);
        for (const Continuation& next : continuations_) {
          guessed_.push_back(next.token);
          const double path_probability = share * next.count;
          if (path_probability < kMinPathProbability) continue;
          waiting_.push({path_probability,
                         next.latest_end,
                         num_found_++,
                         next.token,
                         node,
                         depth + 1,
                         {next.state, context.length + 1}});
        }
        left = share * novelty;
      }
      context = automaton_.link(context.state);
    }
  }

  const SuffixAutomaton& automaton_;
  const LookupLimits& limits_;
  std::priority_queue<Candidate, std::vector<Candidate>, IsWorse> waiting_;
  int32_t num_found_ = 0;
  // of the node that is being opened
  std::vector<Continuation> continuations_;
  std::vector<int32_t> guessed_;
};

}  // namespace

DraftTree grow_lookup_tree(const SuffixAutomaton& automaton, Match match, const LookupLimits& limits) {
  return LookupGrowth(automaton, limits).grow(match);
}

}  // namespace headstart
