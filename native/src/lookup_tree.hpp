// A tree of what followed the same words before: the likeliest tokens first, branching where several followed.
#pragma once
#include "draft_tree.hpp"
#include "suffix_automaton.hpp"

namespace headstart {

struct LookupLimits {
  int min_match;                // shorter contexts are not asked
  int max_nodes;                // at least 1
  int max_depth;                // at least 1
  double min_path_probability;  // nodes below are left out, but for the best one
};

// What may follow the text whose end is `match`.
DraftTree grow_lookup_tree(const SuffixAutomaton& automaton, Match match, const LookupLimits& limits);

}  // namespace headstart
