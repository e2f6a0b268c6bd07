// The arithmetic of the core behind one table of functions for each instruction set.
//
// Contract: a row's result has the same bits whatever other rows, tiles or threads are at work,
// and whichever instruction set runs it.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "matrix.hpp"

namespace headstart {

// Rows quantised to 8 bits: in groups of 32 inputs (group_*), and, where asked, as a whole (row_*).
struct QuantisedRows {
  int k = 0;
  int8_t* codes = nullptr;       // [R, k]
  float* scales = nullptr;       // [R, k / 32]
  float* scaled_sums = nullptr;  // [R, k / 32] scale * sum of codes
  int32_t* sums = nullptr;       // [R, k / 32] sum of codes
  int32_t* half_sums = nullptr;  // [R, k / 16]
  int8_t* row_codes = nullptr;   // [R, k]
  float* row_scales = nullptr;   // [R]
  int32_t* row_sums = nullptr;   // [R]
};

// Where a matrix product goes: out[r, column] (=|+=) bias + product.
struct Destination {
  float* out;
  int stride;         // floats between rows
  const float* bias;  // [tiles * 16] or null
  bool accumulate;
};

constexpr int kMaximumRows = 64;  // values of a lane that have one maximum

struct Kernels {
  const char* name;

  // tiles [tile_begin, tile_end) of the product of rows [0, num_rows)
  void (*matmul)(const MatrixView& weights, const QuantisedRows& quantised, const float* rows, int row_stride,
                 int num_rows, int tile_begin, int tile_end, const Destination& to);
  void (*quantise_groups)(const float* row, int k, int r, const QuantisedRows& to);
  void (*quantise_row)(const float* row, int k, int r, const QuantisedRows& to);

  // out = x / sqrt(mean(x^2) + eps) * weight; k a multiple of 16
  void (*rms_norm)(const float* x, const float* weight, float eps, int k, float* out);
  void (*silu)(const float* x, int k, float* out);
  void (*silu_gate)(const float* gate, const float* up, int k, float* out);
  void (*add)(const float* x, const float* y, int k, float* out);
  // rotates pairs (i, i + half) of one head
  void (*rotate)(float* head, const float* cosine, const float* sine, int half);

  void (*floats_to_halves)(const float* in, int count, uint16_t* out);
  void (*halves_to_floats)(const uint16_t* in, int count, float* out);
  // scores[q * score_stride + lane] = queries[q] . keys[:, lane]; keys are [head_dim][16], f16 if `half`
  void (*score_block)(const float* queries, int num_queries, int query_stride, const void* keys, bool half,
                      int head_dim, float* scores, int score_stride);
  // In place: weights of a softmax over scores[begin, end); the rest of the blocks is set to 0.
  // Returns the sum of weights, whose addition follows the lanes of the blocks.
  float (*softmax)(float* scores, int begin, int end);
  // outs[q] += sum over lanes [begin, end) of weights[q, lane] * values[lane]; values are [16][head_dim],
  // f16 if `half`
  void (*mix_block)(const float* weights, int num_queries, int weight_stride, const void* values, bool half,
                    int head_dim, int begin, int end, float* outs, int out_stride);
  void (*scale)(float* x, int k, float factor);
  // index of the highest value, the lowest such index in a tie; -1 if any value is NaN
  int (*argmax)(const float* x, int count);
  // out[i] = x[i] / divisor
  void (*divide)(const double* x, double divisor, int count, double* out);
  // indices, ascending, of what is at least `limit`; returns how many. Fast where they are few.
  int (*at_least)(const double* x, int count, double limit, int32_t* out);
  int (*bits_at_least)(const uint32_t* x, int count, uint32_t limit, int32_t* out);
  // out[i] = e^(x[i] - top), to the last bit or two; returns their sum, eight interleaved sums folded
  double (*exponentials)(const double* x, double top, int count, double* out);
  // out[16 * i + lane]: the highest of lane + 16 * j over the i-th kMaximumRows values j; NaNs are passed over.
  // count a multiple of 16
  void (*lane_maxima)(const float* x, int count, float* out);
  // sum of e^((x[i] - top) * factor), by lanes; NaN if any x is. count a multiple of 16
  float (*exponential_sum)(const float* x, int count, float top, float factor);
  // reads memory in order and returns a sum over it: how fast can it be read at all?
  uint64_t (*read)(const uint8_t* p, size_t num_bytes);
  // the noise of token ids 0 .. count - 1 under a position's key (decoding/law.py)
  void (*noise_bits)(uint64_t key, int count, uint32_t* out);
};

// The tables that this machine can run, best first.
const std::vector<const Kernels*>& available_kernels();
// One of them, or the imitation of tiles; throws std::invalid_argument.
const Kernels& kernels_by_name(std::string_view name);
// The best one, or the one that HEADSTART_ISA names; throws std::invalid_argument.
const Kernels& best_kernels();

// Constants of the program: a constructor would run at load, in instructions that the machine may lack.
extern const Kernels kPortableKernels;
extern const Kernels kEmulatedTileKernels;  // to test tile_products.hpp without AMX
#ifdef HEADSTART_X86
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;
extern const Kernels kAmxKernels;
#endif

}  // namespace headstart
