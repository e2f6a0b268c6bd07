// Heads at work beside their trunk: they follow the text, and draft trees.
//
// A head's row stands for a token, like a trunk's, and reads the state of the token before it: the
// trunk's taps, or what another stage kept. Heads have a cache of their own whose pages have the
// trunk's numbers, and scratch pages after those for the rows of guesses. Rows of guesses begin right
// after the root; once the root's page is full they go on in scratch pages.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "growth.hpp"
#include "guesses.hpp"
#include "program.hpp"

namespace headstart {

// The program of a depth. Store 0 holds the trunk's taps.
struct Stage {
  std::shared_ptr<Program> program;
  int reads, writes;  // stores; writes: -1 for none
  bool on_text;       // runs over every token of the text, not only where guesses are wanted
};

class Heads {
 public:
  // `recurrent`: a guess of depth 2 or more is a row of its own, after the guess before it; if not, all stages run
  // over the root. `vocabulary`: the trunk's id of each logit; empty: they are the same. Throws
  // std::invalid_argument if things do not fit together.
  Heads(std::shared_ptr<Program> trunk, std::vector<Stage> stages, bool recurrent, std::vector<int32_t> vocabulary);

  // Depths that can be asked for.
  int max_depth() const;
  // Bytes of the heads' own cache and stores that one page of the trunk's takes.
  size_t page_bytes() const;
  // A tree for each job, empty where none was wanted. A sequence's tree does not depend on the other jobs. Throws
  // std::invalid_argument for jobs that break the rules, std::bad_alloc.
  std::vector<DraftTree> draft(std::span<const DraftJob> jobs);
  // The logits of depths 1, 2, ... if the text went on so: recurrent heads are fed the continuation, one token a depth
  // after the first; others need none.
  std::vector<std::vector<float>> logits(const DraftJob& job, std::span<const int32_t> continuation);

 private:
  struct Drafting;
  struct PassRows;
  // Where guesses are to be made: the wanted rows of a program's last pass, each of which stands for a node (-1: the
  // root) of a job's tree.
  struct Place {
    Drafting* drafting;
    int node;
  };
  struct Places {
    const Program* program;
    std::vector<Place> places;
  };

  void prepare();
  void check(const DraftJob& job) const;
  int depth_limit(const DraftJob& job) const;
  int scratch_pages(const DraftJob& job) const;
  void draft_together(std::span<const DraftJob> jobs, std::vector<DraftTree>& trees);
  void run(size_t stage, const RowPlan& plan);
  void follow_text(std::vector<Drafting>& all);
  Places run_depth(std::vector<Drafting>& all, int depth);
  void give_slots(Drafting& drafting, int& next_page);
  void guess(const Places& asking, int depth);
  size_t stage_of(int depth) const;

  const std::shared_ptr<Program> trunk_;
  const std::vector<Stage> stages_;
  const bool recurrent_;
  const Guesser guesser_;
  CacheShape cache_shape_;
  std::vector<int> widths_;  // of the heads' own stores, from store 1 on
  int num_trunk_pages_ = 0;
  Cache cache_;
  std::vector<StateStore> stores_;
  std::vector<GuessScratch> guess_scratch_;
};

}  // namespace headstart
