#include "growth.hpp"

#include <algorithm>
#include <numeric>
#include <queue>

namespace headstart {

void Growth::add(int parent, const std::vector<Guess>& guesses) {
  const int depth = parent < 0 ? 1 : node(parent).depth + 1;
  const double before = parent < 0 ? 1.0 : node(parent).path_probability;
  for (const Guess& guess : guesses) nodes_.push_back({guess.token, parent, depth, before * guess.probability});
}

int Growth::force(int parent, int32_t token) {
  nodes_.push_back({token, parent, parent < 0 ? 1 : node(parent).depth + 1, 1.0});
  frontier_ = {static_cast<int>(nodes_.size()) - 1};
  return frontier_[0];
}

// The best nodes, best first. Ties go to the older one, so that a parent is never behind its child.
std::vector<int> Growth::best() const {
  std::vector<int> order(nodes_.size());
  std::iota(order.begin(), order.end(), 0);
  const size_t kept = std::min(order.size(), static_cast<size_t>(job_.max_nodes));
  std::partial_sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(kept), order.end(), [&](int a, int b) {
    const double x = node(a).path_probability, y = node(b).path_probability;
    return x > y || (x == y && a < b);
  });
  order.resize(kept);
  while (order.size() > 1 && node(order.back()).path_probability < job_.min_path_probability) order.pop_back();
  return order;
}

void Growth::set_frontier(int depth, int max_depth) {
  // children of a node that is left out would be left out with it
  const double least = std::max(job_.min_path_probability, job_.min_parent_probability);
  frontier_.clear();
  if (depth >= max_depth) return;
  for (const int index : best()) {
    const DraftNode& candidate = node(index);
    if (candidate.depth != depth || candidate.path_probability < least) continue;
    if (static_cast<int>(frontier_.size()) < job_.breadth) frontier_.push_back(index);
  }
}

DraftTree Growth::tree() const {
  DraftTree tree;
  std::vector<int32_t> place(nodes_.size(), -1);
  for (const int index : best()) {
    const DraftNode& taken = node(index);
    place[static_cast<size_t>(index)] = static_cast<int32_t>(tree.tokens.size());
    tree.tokens.push_back(taken.token);
    tree.parents.push_back(taken.parent < 0 ? -1 : place[static_cast<size_t>(taken.parent)]);
    tree.path_probabilities.push_back(taken.path_probability);
  }
  return tree;
}

DraftTree combine(const DraftJob& job, std::span<const std::vector<Guess>> by_depth) {
  struct Candidate {
    double path_probability, parent_probability;
    int order;  // of discovery
    int32_t parent;
    size_t depth, rank;
  };
  const auto worse = [](const Candidate& a, const Candidate& b) {
    return a.path_probability < b.path_probability || (a.path_probability == b.path_probability && a.order > b.order);
  };
  std::priority_queue<Candidate, std::vector<Candidate>, decltype(worse)> waiting(worse);
  int found = 0;
  const auto offer = [&](int32_t parent, double before, size_t depth, size_t rank) {
    if (depth >= by_depth.size() || rank >= by_depth[depth].size()) return;
    waiting.push({before * by_depth[depth][rank].probability, before, found++, parent, depth, rank});
  };
  DraftTree tree;
  offer(-1, 1.0, 0, 0);
  while (!waiting.empty() && static_cast<int>(tree.tokens.size()) < job.max_nodes) {
    const Candidate next = waiting.top();
    waiting.pop();
    if (!tree.tokens.empty() && next.path_probability < job.min_path_probability) break;
    const int32_t index = static_cast<int32_t>(tree.tokens.size());
    tree.tokens.push_back(by_depth[next.depth][next.rank].token);
    tree.parents.push_back(next.parent);
    tree.path_probabilities.push_back(next.path_probability);
    if (next.path_probability >= job.min_parent_probability)
      offer(index, next.path_probability, next.depth + 1, 0);                // what may follow it
    offer(next.parent, next.parent_probability, next.depth, next.rank + 1);  // what may stand beside it
  }
  return tree;
}

}  // namespace headstart
