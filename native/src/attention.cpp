#include "attention.hpp"

#include <algorithm>

namespace headstart {
namespace {

constexpr int kAhead = 4;  // pages that are asked of memory before they are read

// Heads that share keys read them together, unless that would leave threads without work.
int heads_of_item(const RowPlan& plan, const AttentionShape& shape, int num_threads) {
  const int group = shape.num_heads / shape.num_kv_heads;
  return static_cast<int>(plan.blocks().size()) * shape.num_kv_heads < num_threads ? 1 : group;
}

// One item: some query heads of a key head, for the rows of a block.
class Item {
 public:
  Item(const RowPlan& plan, const AttentionShape& shape, const Cache& cache, int layer, const Kernels& kernels,
       const RowBlock& block, int first_head, int num_heads, AttentionScratch& scratch)
      : plan_(plan),
        shape_(shape),
        cache_(cache),
        layer_(layer),
        kernels_(kernels),
        block_(block),
        first_head_(first_head),
        num_heads_(num_heads),
        kv_head_(first_head / (shape.num_heads / shape.num_kv_heads)),
        scratch_(scratch) {
    int end_slot = 0, begin = INT32_MAX;
    for (int r = 0; r < block.num_rows; ++r) {
      end_slot = std::max(end_slot, plan.place(block.first_row + r).slot + 1);
      begin = std::min(begin, first_position(r));
    }
    begin_page_ = begin / kPageTokens;
    end_page_ = (end_slot + kPageTokens - 1) / kPageTokens;
    stride_ = (end_page_ - begin_page_) * kPageTokens;
    origin_ = begin_page_ * kPageTokens;
    const size_t num_queries = static_cast<size_t>(block.num_rows * num_heads);
    if (scratch.scores.size() < num_queries * stride_) scratch.scores.resize(num_queries * stride_);
    scratch.queries.resize(num_queries * shape.head_dim);
    scratch.mixed.assign(num_queries * shape.head_dim, 0.0f);
    scratch.totals.resize(num_queries);
  }

  void run(const float* queries, float* out) {
    score(queries);
    weigh();
    mix();
    finish(out);
  }

 private:
  int row(int r) const { return block_.first_row + r; }
  int position(int r) const { return plan_.rows().positions[static_cast<size_t>(row(r))]; }
  int committed() const { return plan_.rows().committed[static_cast<size_t>(block_.sequence)]; }
  int first_position(int r) const { return shape_.window > 0 ? std::max(0, position(r) + 1 - shape_.window) : 0; }
  float* scores(int r, int h) { return scratch_.scores.data() + static_cast<size_t>(r * num_heads_ + h) * stride_; }
  float* mixed(int r) { return scratch_.mixed.data() + static_cast<size_t>(r * num_heads_) * shape_.head_dim; }

  int stored_at(int page) const { return plan_.page(block_.sequence, page * kPageTokens); }

  // Pages lie far apart, so the processor does not foresee the next one.
  void ask_for(const void* stored) const {
    const auto* line = static_cast<const char*>(stored);
    for (size_t at = 0; at < cache_.head_bytes(); at += 64) __builtin_prefetch(line + at, 0, 2);
  }

  struct Page {
    const void* data;
    bool half;
  };
  // A page as the kernels shall read it: widening halves takes a third of the time that few queries take,
  // so with more queries it is done once for all.
  Page page_of(const void* stored) {
    if (!cache_.shape().half || block_.num_rows * num_heads_ <= 8) return {stored, cache_.shape().half};
    const int count = kPageTokens * shape_.head_dim;
    scratch_.page.resize(static_cast<size_t>(count));
    kernels_.halves_to_floats(static_cast<const uint16_t*>(stored), count, scratch_.page.data());
    return {scratch_.page.data(), false};
  }

  // scores of every query against every slot of the pages, in slot order
  void score(const float* queries) {
    const int dim = shape_.head_dim;
    float* query = scratch_.queries.data();
    for (int r = 0; r < block_.num_rows; ++r) {
      for (int h = 0; h < num_heads_; ++h, query += dim) {
        const float* from = queries + (static_cast<size_t>(row(r)) * shape_.num_heads + first_head_ + h) * dim;
        std::copy_n(from, dim, query);
        kernels_.scale(query, dim, shape_.scale);
      }
    }
    for (int page = begin_page_; page < end_page_; ++page) {
      if (page + kAhead < end_page_) ask_for(cache_.keys(stored_at(page + kAhead), layer_, kv_head_));
      const Page keys = page_of(cache_.keys(stored_at(page), layer_, kv_head_));
      kernels_.score_block(scratch_.queries.data(), block_.num_rows * num_heads_, dim, keys.data, keys.half, dim,
                           scratch_.scores.data() + (page - begin_page_) * kPageTokens, stride_);
    }
  }

  // scores to position order, then to weights
  void weigh() {
    for (int r = 0; r < block_.num_rows; ++r) {
      for (int h = 0; h < num_heads_; ++h) {
        float* s = scores(r, h);
        int target = committed();
        for (const int32_t slot : plan_.tail(row(r))) {
          // a tail's slots ascend and never lie before their positions, so nothing is overwritten too soon
          if (target >= origin_) s[target - origin_] = s[slot - origin_];
          ++target;
        }
        scratch_.totals[static_cast<size_t>(r * num_heads_ + h)] =
            kernels_.softmax(s, first_position(r) - origin_, position(r) + 1 - origin_);
      }
    }
  }

  void mix() {
    for (int page = begin_page_; page < end_page_; ++page) {
      const int base = page * kPageTokens;
      if (page + kAhead < end_page_) ask_for(cache_.values(stored_at(page + kAhead), layer_, kv_head_));
      const Page values = page_of(cache_.values(stored_at(page), layer_, kv_head_));
      if (all_see(base)) {
        add_values(0, block_.num_rows, base, base + kPageTokens, 0, base, values);
      } else {
        for (int r = 0; r < block_.num_rows; ++r) mix_page(r, base, values);
      }
    }
  }

  // where a row's tokens cease to lie at the slots of their positions
  int own_end(int r) const { return plan_.place(row(r)).in_place ? position(r) + 1 : committed(); }

  // whether every row sees the whole page at `base`
  bool all_see(int base) const {
    for (int r = 0; r < block_.num_rows; ++r) {
      if (first_position(r) > base || own_end(r) < base + kPageTokens) return false;
    }
    return true;
  }

  // what a row sees of the page at `base`: first tokens at their own slots, then its tail
  void mix_page(int r, int base, const Page& values) {
    add_values(r, 1, std::max(first_position(r), base), std::min(own_end(r), base + kPageTokens), 0, base, values);
    const std::span<const int32_t> tail = plan_.tail(row(r));
    for (size_t i = 0; i < tail.size(); ++i) {
      const int at = committed() + static_cast<int>(i);
      if (tail[i] < base || tail[i] >= base + kPageTokens || at < first_position(r)) continue;
      add_values(r, 1, at, at + 1, tail[i] - at, base, values);
    }
  }

  // for some rows, positions [begin, end), which lie `shift` slots further on, all in the page at `base`
  void add_values(int r, int num_rows, int begin, int end, int shift, int base, const Page& values) {
    if (begin >= end) return;
    // weights[lane] is then the weight of the position whose value is in that lane
    const float* weights = scores(r, 0) + (base - shift - origin_);
    kernels_.mix_block(weights, num_rows * num_heads_, stride_, values.data, values.half, shape_.head_dim,
                       begin + shift - base, end + shift - base, mixed(r), shape_.head_dim);
  }

  void finish(float* out) {
    const int dim = shape_.head_dim;
    for (int r = 0; r < block_.num_rows; ++r) {
      for (int h = 0; h < num_heads_; ++h) {
        kernels_.scale(mixed(r) + h * dim, dim, 1.0f / scratch_.totals[static_cast<size_t>(r * num_heads_ + h)]);
      }
      std::copy_n(mixed(r), num_heads_ * dim,
                  out + (static_cast<size_t>(row(r)) * shape_.num_heads + first_head_) * dim);
    }
  }

  const RowPlan& plan_;
  const AttentionShape& shape_;
  const Cache& cache_;
  const int layer_;
  const Kernels& kernels_;
  const RowBlock block_;
  const int first_head_, num_heads_, kv_head_;
  AttentionScratch& scratch_;
  int begin_page_, end_page_, stride_, origin_;
};

}  // namespace

int num_attention_items(const RowPlan& plan, const AttentionShape& shape, int num_threads) {
  return static_cast<int>(plan.blocks().size()) * (shape.num_heads / heads_of_item(plan, shape, num_threads));
}

void attend(const RowPlan& plan, const AttentionShape& shape, const Cache& cache, int layer, const Kernels& kernels,
            int num_threads, int item, const float* queries, float* out, AttentionScratch& scratch) {
  const int heads = heads_of_item(plan, shape, num_threads);
  const int items_of_block = shape.num_heads / heads;
  const RowBlock& block = plan.blocks()[static_cast<size_t>(item / items_of_block)];
  Item(plan, shape, cache, layer, kernels, block, item % items_of_block * heads, heads, scratch).run(queries, out);
}

void store_row(const RowPlan& plan, const AttentionShape& shape, const Cache& cache, int layer, const Kernels& kernels,
               int row, const float* keys, const float* values) {
  const int slot = plan.place(row).slot, lane = slot % kPageTokens, dim = shape.head_dim;
  const int page = plan.page(plan.rows().sequences[static_cast<size_t>(row)], slot);
  for (int head = 0; head < shape.num_kv_heads; ++head, keys += dim, values += dim) {
    void* key_page = cache.keys(page, layer, head);
    void* value_page = cache.values(page, layer, head);
    if (cache.shape().half) {
      auto* key = static_cast<uint16_t*>(key_page) + lane;
      auto* value = static_cast<uint16_t*>(value_page) + static_cast<size_t>(lane) * dim;
      kernels.floats_to_halves(keys, dim, value);  // the value's place serves as scratch
      for (int d = 0; d < dim; ++d) key[d * kPageTokens] = value[d];
      kernels.floats_to_halves(values, dim, value);
    } else {
      auto* key = static_cast<float*>(key_page) + lane;
      for (int d = 0; d < dim; ++d) key[d * kPageTokens] = keys[d];
      std::copy_n(values, dim, static_cast<float*>(value_page) + static_cast<size_t>(lane) * dim);
    }
  }
}

}  // namespace headstart
