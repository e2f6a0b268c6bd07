// A tree of guesses while it grows: which nodes are worth another row, and which are given out.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "draft_tree.hpp"
#include "guesses.hpp"

namespace headstart {

// One sequence's wish for a tree. It is the caller's to have run the text before `tokens` by earlier jobs.
struct DraftJob {
  std::span<const int32_t> page_table;  // of the trunk's cache
  std::span<const int32_t> tokens;      // of the text, from position `first` to the root
  int first;
  const Law* law;  // null: greedy
  int max_nodes;   // 0: run the text, guess nothing
  int max_depth;
  int breadth;                    // rows of a depth at most
  double min_path_probability;    // nodes below are left out, but for the best one
  double min_parent_probability;  // nodes below get no children

  int root_position() const { return first + static_cast<int>(tokens.size()) - 1; }
};

struct DraftNode {
  int32_t token;
  int parent;  // -1: the root
  int depth;
  double path_probability;
  int slot = -1;       // of its row, if it was given one
  int last_stage = 0;  // of heads that ran over its row
};

class Growth {
 public:
  explicit Growth(const DraftJob& job) : job_(job) {}

  const DraftJob& job() const { return job_; }
  DraftNode& node(int index) { return nodes_[static_cast<size_t>(index)]; }
  const DraftNode& node(int index) const { return nodes_[static_cast<size_t>(index)]; }
  // nodes to be given rows at the next depth
  const std::vector<int>& frontier() const { return frontier_; }

  // Guesses of what follows a node, -1 for the root.
  void add(int parent, const std::vector<Guess>& guesses);
  // Of the nodes of a depth those that are among the best so far and likely enough; none from `max_depth` on.
  void set_frontier(int depth, int max_depth);
  // One node after `parent`, whatever its probability, as the whole frontier; returns its index.
  int force(int parent, int32_t token);
  DraftTree tree() const;

 private:
  std::vector<int> best() const;

  const DraftJob& job_;
  std::vector<DraftNode> nodes_;
  std::vector<int> frontier_;
};

// The likeliest combinations of guesses that do not know of each other; `by_depth[d]` are those of depth d + 1.
DraftTree combine(const DraftJob& job, std::span<const std::vector<Guess>> by_depth);

}  // namespace headstart
