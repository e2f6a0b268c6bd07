// A tree of guesses as it is given out.
#pragma once
#include <cstdint>
#include <vector>

namespace headstart {

// As `records.Tree`: parents before children, best first; -1 is the root.
struct DraftTree {
  std::vector<int32_t> tokens, parents;
  std::vector<double> path_probabilities;
};

}  // namespace headstart
