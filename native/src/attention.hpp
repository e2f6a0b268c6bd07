// Attention of rows over their sequences' pages and their own ancestors.
//
// A row's keys are added up in the order of their positions, whatever slots they lie in and
// whatever rows are at work beside it: scores are lane-wise dot products, so a key's lane does not
// matter; softmax and the sum of values follow the positions.
#pragma once
#include <vector>

#include "cache.hpp"
#include "kernels.hpp"
#include "memory.hpp"
#include "rows.hpp"

namespace headstart {

struct AttentionShape {
  int num_heads, num_kv_heads, head_dim;
  int window;   // positions a row sees, itself included; 0: all
  float scale;  // of the scores
};

// Buffers of one thread, kept between calls.
struct AttentionScratch {
  LineVector<float> scores, queries, page, mixed, totals;
};

// Work is cut into items that threads take in any order.
int num_attention_items(const RowPlan& plan, const AttentionShape& shape, int num_threads);
void attend(const RowPlan& plan, const AttentionShape& shape, const Cache& cache, int layer, const Kernels& kernels,
            int num_threads, int item, const float* queries, float* out, AttentionScratch& scratch);

// Writes a row's key and value ([num_kv_heads * head_dim]) to its slot.
void store_row(const RowPlan& plan, const AttentionShape& shape, const Cache& cache, int layer, const Kernels& kernels,
               int row, const float* keys, const float* values);

}  // namespace headstart
