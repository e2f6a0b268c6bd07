// Weight matrices as the kernels read them.
//
// A matrix [n, k] (output, input) is cut into tiles of 16 outputs. A quantised tile is a run of
// blocks, one for each two groups of 32 inputs, each a whole number of cache lines:
//
//   | scales of group 0, its minima if any | the same of group 1 | codes of group 0 | of group 1 |
//
// so a product reads memory strictly in order. With an odd number of groups the last block is half
// empty. (Q6_K has a scale for each 16 inputs: 2 x 16 of them in a group.)
//
// Codes are unsigned and stand as [step of 4 inputs][output][4 inputs], so one 64-byte load is
// four inputs of sixteen outputs, which is what an integer dot product wants. Two steps share the
// bytes of 4-bit codes: step s in the low nibbles, step s + 4 in the high ones. The value of a
// code is scale * (code - zero_point) or scale * code + minimum: exactly the file's number.
//
// Float tiles are [input][16 outputs]. Outputs past n are zero.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "memory.hpp"

namespace headstart {

constexpr int kTile = 16;   // outputs of a tile, and lanes of a kernel
constexpr int kGroup = 32;  // inputs that share an activation scale

enum class Layout {
  kNibbleHalf,      // 4-bit codes, f16 scale, zero point          Q4_0
  kNibbleHalfMin,   // 4-bit codes, f16 scale and minimum          Q4_1
  kByteHalf,        // 8-bit codes, f16 scale, zero point          Q8_0, Q5_0
  kByteHalfMin,     // 8-bit codes, f16 scale and minimum          Q5_1
  kNibbleFloatMin,  // 4-bit codes, f32 scale and minimum          Q4_K
  kByteFloatMin,    // 8-bit codes, f32 scale and minimum          Q5_K
  kByteFloatPair,   // 8-bit codes, two f32 scales, zero point     Q6_K
  kByteRow,         // 8-bit codes, one f32 scale for an output    int8 rows, made at load
  kFloat,
  kHalf,
  kBfloat,
};

// What kernels see. Plain data: code compiled for a wider instruction set must not instantiate
// library templates, or the linker could pick its copy for everyone.
struct MatrixView {
  Layout layout;
  int k;
  int zero_point;
  size_t tile_bytes;
  const uint8_t* data;
  const float* row_scales;
};

struct Matrix {
  Layout layout;
  int n, k;
  int num_tiles;
  int zero_point;      // of the codes, where the layout has no minimum
  size_t scale_bytes;  // of the scales and minima of a group
  size_t code_bytes;   // of a group; of one input in a float tile
  size_t tile_bytes;
  uint8_t* data;      // in an arena
  float* row_scales;  // kByteRow only, [num_tiles * 16], in the same

  bool quantised() const { return layout < Layout::kFloat; }
  bool by_row() const { return layout == Layout::kByteRow; }
  // where in a quantised tile a group's scales and codes begin
  size_t scales_at(int group) const {
    return static_cast<size_t>(group / 2) * 2 * (scale_bytes + code_bytes) +
           static_cast<size_t>(group % 2) * scale_bytes;
  }
  size_t codes_at(int group) const {
    return static_cast<size_t>(group / 2 + 1) * 2 * scale_bytes + static_cast<size_t>(group) * code_bytes;
  }
  MatrixView view() const { return {layout, k, zero_point, tile_bytes, data, row_scales}; }
  size_t num_bytes() const { return tile_bytes * static_cast<size_t>(num_tiles); }
};

// bytes of a group of 32 inputs of a tile, for quantised layouts
struct GroupShape {
  int code_bytes, scale_bytes, min_bytes;
};
GroupShape group_shape(Layout layout);

// Packs rows of a tensor in one of the file kinds ("Q4_1", "F32", ...) or, for float kinds,
// quantises them on the way (`target` "int8" in groups of 32 or "int8-row"; "" keeps the kind).
// `row_order`, if not empty, gives for each output the row of `data` it comes from.
// The constructor throws std::invalid_argument for a kind or size that does not fit; after it,
// tiles may be packed in any order by several threads.
class Packing {
 public:
  Packing(std::string_view kind, std::string_view target, int n, int k, std::span<const uint8_t> data,
          std::span<const int32_t> row_order, Arena& arena);
  int num_tiles() const { return matrix_.num_tiles; }
  void pack_tile(int tile);
  const Matrix& matrix() const { return matrix_; }

 private:
  std::string kind_name_;
  std::span<const uint8_t> data_;
  std::span<const int32_t> row_order_;
  size_t row_bytes_;
  bool requantise_ = false;
  Matrix matrix_{};
};

// Bytes of one row of k inputs in a file kind; throws std::invalid_argument.
size_t file_row_bytes(std::string_view kind, int k);

// One output's weights as floats, for embedding look-ups. `out` has k floats.
void unpack_row(const Matrix& matrix, int row, float* out);

}  // namespace headstart
