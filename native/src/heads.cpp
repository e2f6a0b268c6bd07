#include "heads.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

namespace headstart {
namespace {

constexpr int kDeepest = 64;        // an unrolled stage could go on for ever
constexpr int kMostGuesses = 64;    // of one row
constexpr int kScratchPages = 512;  // memory is taken only where they are used

void demand(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(std::string("the heads do not fit together: ") + what);
}

}  // namespace

// A job at work.
struct Heads::Drafting {
  explicit Drafting(const DraftJob& job)
      : growth(job),
        pages(job.page_table.begin(), job.page_table.begin() + job.root_position() / kPageTokens + 1),
        next_slot(job.root_position() + 1) {}

  Growth growth;
  std::vector<std::vector<Guess>> by_depth;  // of heads that are not recurrent
  std::vector<int32_t> pages;                // of the text up to the root, then scratch
  int next_slot;
};

// The rows of a pass, of any number of jobs.
struct Heads::PassRows {
  std::vector<int32_t> tokens, positions, parents, sequences, committed, wanted, path_slots;
  std::vector<int> path_ends;
  std::vector<std::span<const int32_t>> page_tables;

  void begin_sequence(std::span<const int32_t> page_table, int num_committed) {
    page_tables.push_back(page_table);
    committed.push_back(num_committed);
  }
  void add(int32_t token, int position, int32_t parent) {
    tokens.push_back(token);
    positions.push_back(position);
    parents.push_back(parent);
    sequences.push_back(static_cast<int32_t>(page_tables.size()) - 1);
  }
  int32_t last() const { return static_cast<int32_t>(tokens.size()) - 1; }
  RowsView view(bool with_wanted) const {
    return {tokens,     positions, parents,
            sequences,  committed, with_wanted ? std::span<const int32_t>(wanted) : std::span<const int32_t>(),
            page_tables};
  }
};

Heads::Heads(std::shared_ptr<Program> trunk, std::vector<Stage> stages, bool recurrent, std::vector<int32_t> vocabulary)
    : trunk_(std::move(trunk)),
      stages_(std::move(stages)),
      recurrent_(recurrent),
      guesser_(stages_.empty() ? 0 : stages_[0].program->vocab_size(), vocabulary) {
  demand(!stages_.empty(), "there is no stage");
  const Program& first = *stages_[0].program;
  cache_shape_ = first.cache_shape();
  for (const Stage& stage : stages_) {
    const Program& program = *stage.program;
    const CacheShape& shape = program.cache_shape();
    demand(&program.machine() == &trunk_->machine(), "a stage has other threads than the trunk");
    demand(shape.num_layers == cache_shape_.num_layers && shape.num_kv_heads == cache_shape_.num_kv_heads &&
               shape.head_dim == cache_shape_.head_dim && shape.half == cache_shape_.half,
           "stages have caches of different shapes");
    demand(program.max_context() == trunk_->max_context(), "a stage has another context than the trunk");
    demand(program.num_embeddings() >= trunk_->vocab_size(), "a stage knows fewer tokens than the trunk");
    demand(program.vocab_size() == first.vocab_size(), "stages guess different numbers of tokens");
    demand(stage.writes < 0 ? program.kept_width() == 0 : stage.writes > 0, "a store to keep states in");
    if (stage.writes < 0) continue;
    widths_.resize(std::max(widths_.size(), static_cast<size_t>(stage.writes)));
    int& width = widths_[static_cast<size_t>(stage.writes) - 1];
    demand(program.kept_width() > 0 && (width == 0 || width == program.kept_width()), "the width of a store");
    width = program.kept_width();
  }
  for (const Stage& stage : stages_) {
    demand(stage.reads >= 0 && static_cast<size_t>(stage.reads) <= widths_.size(), "a store to read states from");
    const int width = stage.reads == 0 ? trunk_->kept_width() : widths_[static_cast<size_t>(stage.reads) - 1];
    demand(stage.program->state_width() <= width, "a stage reads wider states than are kept");
  }
  demand(static_cast<int>(vocabulary.empty() ? static_cast<size_t>(trunk_->vocab_size()) : vocabulary.size()) ==
             first.vocab_size(),
         "the vocabulary has not one id for each logit");
  for (const int32_t token : vocabulary) demand(token >= 0 && token < trunk_->vocab_size(), "an id of the vocabulary");
  guess_scratch_.resize(static_cast<size_t>(trunk_->machine().num_threads()));
}

int Heads::max_depth() const {
  const Stage& last = stages_.back();
  return recurrent_ && last.reads == last.writes ? kDeepest : static_cast<int>(stages_.size());
}

size_t Heads::page_bytes() const {
  size_t bytes = Cache::page_bytes(cache_shape_);
  for (const int width : widths_) bytes += StateStore::page_bytes(width, cache_shape_.half);
  return bytes;
}

// A cache as large as the trunk's; what it held is run anew if the trunk's was made anew.
void Heads::prepare() {
  if (num_trunk_pages_ == trunk_->num_pages()) return;
  const int num_pages = trunk_->num_pages() + kScratchPages;
  affordable(page_bytes() * static_cast<size_t>(num_pages));
  num_trunk_pages_ = 0;
  cache_ = Cache(cache_shape_, num_pages);
  stores_.clear();
  for (const int width : widths_) stores_.emplace_back(width, cache_shape_.half, num_pages);
  num_trunk_pages_ = trunk_->num_pages();
}

void Heads::check(const DraftJob& job) const {
  const auto require = [](bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(what);
  };
  require(!job.tokens.empty(), "a job needs at least the root's token");
  require(job.first >= 0 && job.first < trunk_->max_context() &&
              job.tokens.size() <= static_cast<size_t>(trunk_->max_context() - job.first),
          "the text is past the context");
  require(static_cast<size_t>(job.root_position() / kPageTokens) < job.page_table.size(),
          "the root's slot is past the page table");
  require(job.max_nodes >= 0, "max_nodes must be 0 or more");
  if (job.max_nodes > 0) {
    require(job.max_depth >= 1, "max_depth must be 1 or more");
    require(job.breadth >= 1 && job.breadth <= kMostGuesses, "breadth must be between 1 and 64");
  }
}

// A row for the guess before it must lie within the context.
int Heads::depth_limit(const DraftJob& job) const {
  return std::min({job.max_depth, max_depth(), trunk_->max_context() - job.root_position()});
}

int Heads::scratch_pages(const DraftJob& job) const {
  if (!recurrent_ || job.max_nodes == 0) return 0;
  return (job.breadth * (depth_limit(job) - 1) + kPageTokens - 1) / kPageTokens;
}

std::vector<DraftTree> Heads::draft(std::span<const DraftJob> jobs) {
  for (const DraftJob& job : jobs) check(job);
  prepare();
  std::vector<DraftTree> trees;
  // as many together as there are scratch pages for
  for (size_t begin = 0, end = 0; begin < jobs.size(); begin = end) {
    for (int pages = 0; end < jobs.size() && pages + scratch_pages(jobs[end]) <= kScratchPages; ++end) {
      pages += scratch_pages(jobs[end]);
    }
    draft_together(jobs.subspan(begin, end - begin), trees);
  }
  return trees;
}

void Heads::draft_together(std::span<const DraftJob> jobs, std::vector<DraftTree>& trees) {
  std::vector<Drafting> all(jobs.begin(), jobs.end());
  follow_text(all);
  int next_page = num_trunk_pages_;
  for (int depth = 2; recurrent_; ++depth) {
    bool any = false;
    for (Drafting& drafting : all) {
      drafting.growth.set_frontier(depth - 1, depth_limit(drafting.growth.job()));
      give_slots(drafting, next_page);
      any |= !drafting.growth.frontier().empty();
    }
    if (!any) break;
    guess(run_depth(all, depth), depth);
  }
  for (const Drafting& drafting : all) {
    const DraftJob& job = drafting.growth.job();
    trees.push_back(recurrent_ ? drafting.growth.tree() : combine(job, drafting.by_depth));
  }
}

std::vector<std::vector<float>> Heads::logits(const DraftJob& job, std::span<const int32_t> continuation) {
  check(job);
  prepare();
  for (const int32_t token : continuation) {
    if (token < 0 || token >= trunk_->vocab_size()) throw std::invalid_argument("a token is not in the vocabulary");
  }
  const int depths = recurrent_ ? static_cast<int>(continuation.size()) + 1 : max_depth();
  if (job.max_nodes < 1 || depths > depth_limit(job)) throw std::invalid_argument("the job is not for so many depths");
  std::vector<Drafting> all(1, Drafting(job));
  follow_text(all);
  std::vector<std::vector<float>> found;
  const auto take = [&](const Program& program) {
    found.emplace_back(program.logits(0), program.logits(0) + program.vocab_size());
  };
  take(*stages_[0].program);
  int next_page = num_trunk_pages_;
  for (int depth = 2, parent = -1; depth <= depths; ++depth) {
    if (recurrent_) {
      parent = all[0].growth.force(parent, continuation[static_cast<size_t>(depth) - 2]);
      give_slots(all[0], next_page);
      run_depth(all, depth);
    }
    take(*stages_[stage_of(depth)].program);
  }
  return found;
}

size_t Heads::stage_of(int depth) const { return std::min(static_cast<size_t>(depth), stages_.size()) - 1; }

void Heads::run(size_t stage, const RowPlan& plan) {
  const auto store = [&](int number) { return &stores_[static_cast<size_t>(number) - 1]; };
  const Stage& at = stages_[stage];
  at.program->run(
      {plan, cache_, at.reads == 0 ? &trunk_->taps() : store(at.reads), at.writes < 0 ? nullptr : store(at.writes)});
}

// Every stage over what it has to know of the text, and the guesses that follow the roots.
void Heads::follow_text(std::vector<Drafting>& all) {
  PassRows text, roots;
  Places asking;
  int deepest = 0;
  for (Drafting& drafting : all) {
    const DraftJob& job = drafting.growth.job();
    text.begin_sequence(job.page_table, job.first);
    for (size_t i = 0; i < job.tokens.size(); ++i) {
      text.add(job.tokens[i], job.first + static_cast<int>(i), i == 0 ? -1 : text.last());
    }
    if (job.max_nodes == 0) continue;
    text.wanted.push_back(text.last());
    roots.begin_sequence(job.page_table, job.root_position());
    roots.add(job.tokens.back(), job.root_position(), -1);
    roots.wanted.push_back(roots.last());
    asking.places.push_back({&drafting, -1});
    deepest = std::max(deepest, depth_limit(job));
  }
  const RowLimits limits{trunk_->vocab_size(), trunk_->max_context(), num_trunk_pages_};
  for (size_t stage = 0; stage < stages_.size(); ++stage) {
    const bool guesses = recurrent_ ? stage == 0 && deepest > 0 : static_cast<int>(stage) < deepest;
    if (!stages_[stage].on_text && !guesses) continue;
    run(stage, RowPlan((stages_[stage].on_text ? text : roots).view(guesses), limits));
    if (!guesses) continue;
    asking.program = stages_[stage].program.get();
    guess(asking, static_cast<int>(stage) + 1);
  }
}

// Slots for the rows of a job's frontier, in pages of its own where the root's is full.
void Heads::give_slots(Drafting& drafting, int& next_page) {
  for (const int index : drafting.growth.frontier()) {
    drafting.growth.node(index).slot = drafting.next_slot++;
    if (static_cast<size_t>(drafting.growth.node(index).slot / kPageTokens) == drafting.pages.size()) {
      drafting.pages.push_back(next_page++);
    }
  }
}

// The stage of a depth over all frontiers, and over those of their ancestors that an earlier stage has run: its own
// keys of them are what its rows see.
Heads::Places Heads::run_depth(std::vector<Drafting>& all, int depth) {
  const size_t stage = stage_of(depth);
  PassRows rows;
  Places places{stages_[stage].program.get(), {}};
  for (Drafting& drafting : all) {
    Growth& growth = drafting.growth;
    if (growth.frontier().empty()) continue;
    const int root = growth.job().root_position();
    std::vector<int> nodes;
    for (const int index : growth.frontier()) {
      for (int at = index; at >= 0 && growth.node(at).last_stage < static_cast<int>(stage);
           at = growth.node(at).parent) {
        growth.node(at).last_stage = static_cast<int>(stage);
        nodes.push_back(at);
      }
    }
    const auto by_slot = [&](int a, int b) { return growth.node(a).slot < growth.node(b).slot; };
    std::sort(nodes.begin(), nodes.end(), by_slot);
    rows.begin_sequence(drafting.pages, root + 1);
    for (const int index : nodes) {
      const DraftNode& node = growth.node(index);
      rows.add(node.token, root + node.depth, -1);
      if (node.depth == depth - 1) {
        rows.wanted.push_back(rows.last());
        places.places.push_back({&drafting, index});
      }
      rows.path_slots.resize(rows.path_slots.size() + static_cast<size_t>(node.depth));
      auto to = rows.path_slots.end();
      for (int at = index; at >= 0; at = growth.node(at).parent) *--to = growth.node(at).slot;
      rows.path_ends.push_back(static_cast<int>(rows.path_slots.size()));
    }
  }
  run(stage, RowPlan(rows.view(true), rows.path_slots, rows.path_ends));
  return places;
}

// Guesses of a depth, added to the trees of their places.
void Heads::guess(const Places& asking, int depth) {
  const int count = static_cast<int>(asking.places.size());
  std::vector<std::vector<Guess>> guesses(asking.places.size());
  Machine& machine = trunk_->machine();
  machine.share(count, [&](int i, int thread) {
    const DraftJob& job = asking.places[static_cast<size_t>(i)].drafting->growth.job();
    guesses[static_cast<size_t>(i)] = guesser_.guess(asking.program->logits(i), job.law, job.root_position() + depth,
                                                     std::min(job.max_nodes, kMostGuesses), machine.kernels(),
                                                     guess_scratch_[static_cast<size_t>(thread)]);
  });
  for (size_t i = 0; i < guesses.size(); ++i) {
    const auto [drafting, node] = asking.places[i];
    if (recurrent_) {
      drafting->growth.add(node, guesses[i]);
    } else if (depth <= depth_limit(drafting->growth.job())) {
      drafting->by_depth.push_back(std::move(guesses[i]));
    }
  }
}

}  // namespace headstart
