// From the file's formats to the kernels' layouts. Block formats: ggml's published definitions.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "half.hpp"
#include "matrix.hpp"

namespace headstart {
namespace {

// 32 inputs of one output, decoded as far as a layout needs: value = scale * (code - zero) + minimum.
struct Group {
  uint8_t codes[kGroup];
  float scales[2];  // of each 16 inputs
  float minimum;
  uint16_t half_scale, half_minimum;  // the stored bits, for layouts that keep them
};

struct FileKind {
  const char* name;
  Layout layout;
  int zero_point;
  int block_inputs;  // of the file's blocks
  int block_bytes;
  void (*read)(const uint8_t* block, int group_of_block, Group& out);  // null for float kinds
};

uint16_t read_u16(const uint8_t* p) {
  uint16_t v;
  std::memcpy(&v, p, 2);
  return v;
}

uint32_t read_u32(const uint8_t* p) {
  uint32_t v;
  std::memcpy(&v, p, 4);
  return v;
}

void split_nibbles(const uint8_t* packed, uint8_t* codes) {
  for (int i = 0; i < 16; ++i) {
    codes[i] = packed[i] & 15;
    codes[i + 16] = packed[i] >> 4;
  }
}

void add_fifth_bits(uint32_t bits, uint8_t* codes) {
  for (int i = 0; i < kGroup; ++i) codes[i] |= static_cast<uint8_t>((bits >> i & 1u) << 4);
}

void read_q8_0(const uint8_t* b, int, Group& g) {
  g.half_scale = read_u16(b);
  for (int i = 0; i < kGroup; ++i) g.codes[i] = static_cast<uint8_t>(b[2 + i] ^ 0x80);  // signed + 128
}

void read_q4_0(const uint8_t* b, int, Group& g) {
  g.half_scale = read_u16(b);
  split_nibbles(b + 2, g.codes);
}

void read_q4_1(const uint8_t* b, int, Group& g) {
  g.half_scale = read_u16(b);
  g.half_minimum = read_u16(b + 2);
  split_nibbles(b + 4, g.codes);
}

void read_q5_0(const uint8_t* b, int, Group& g) {
  g.half_scale = read_u16(b);
  split_nibbles(b + 6, g.codes);
  add_fifth_bits(read_u32(b + 2), g.codes);
}

void read_q5_1(const uint8_t* b, int, Group& g) {
  g.half_scale = read_u16(b);
  g.half_minimum = read_u16(b + 2);
  split_nibbles(b + 8, g.codes);
  add_fifth_bits(read_u32(b + 4), g.codes);
}

// Q4_K and Q5_K: eight 6-bit scales and minima in twelve bytes
void read_k_scale(const uint8_t* b, int j, Group& g) {
  const uint8_t* packed = b + 4;
  int scale, minimum;
  if (j < 4) {
    scale = packed[j] & 63;
    minimum = packed[j + 4] & 63;
  } else {
    scale = (packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4;
    minimum = packed[j + 4] >> 4 | (packed[j] >> 6) << 4;
  }
  g.scales[0] = g.scales[1] = half_to_float(read_u16(b)) * static_cast<float>(scale);
  g.minimum = -(half_to_float(read_u16(b + 2)) * static_cast<float>(minimum));
}

void read_k_nibbles(const uint8_t* quants, int j, uint8_t* codes) {
  const uint8_t* packed = quants + j / 2 * 32;
  for (int i = 0; i < kGroup; ++i) codes[i] = j % 2 ? packed[i] >> 4 : packed[i] & 15;
}

void read_q4_k(const uint8_t* b, int j, Group& g) {
  read_k_scale(b, j, g);
  read_k_nibbles(b + 16, j, g.codes);
}

void read_q5_k(const uint8_t* b, int j, Group& g) {
  read_k_scale(b, j, g);
  read_k_nibbles(b + 48, j, g.codes);
  for (int i = 0; i < kGroup; ++i) g.codes[i] |= static_cast<uint8_t>((b[16 + i] >> j & 1) << 4);
}

void read_q6_k(const uint8_t* b, int j, Group& g) {
  const int half = j / 4, quarter = j % 4;  // 128 inputs share 64 low and 32 high bytes
  const uint8_t* low = b + half * 64 + quarter % 2 * 32;
  const uint8_t* high = b + 128 + half * 32;
  for (int i = 0; i < kGroup; ++i) {
    const int nibble = quarter < 2 ? low[i] & 15 : low[i] >> 4;
    g.codes[i] = static_cast<uint8_t>(nibble | (high[i] >> 2 * quarter & 3) << 4);
  }
  const float d = half_to_float(read_u16(b + 208));
  for (int s = 0; s < 2; ++s) {
    g.scales[s] = d * static_cast<float>(static_cast<int8_t>(b[192 + half * 8 + quarter * 2 + s]));
  }
}

constexpr FileKind kKinds[] = {
    {"Q4_0", Layout::kNibbleHalf, 8, 32, 18, read_q4_0},
    {"Q4_1", Layout::kNibbleHalfMin, 0, 32, 20, read_q4_1},
    {"Q5_0", Layout::kByteHalf, 16, 32, 22, read_q5_0},
    {"Q5_1", Layout::kByteHalfMin, 0, 32, 24, read_q5_1},
    {"Q8_0", Layout::kByteHalf, 128, 32, 34, read_q8_0},
    {"Q4_K", Layout::kNibbleFloatMin, 0, 256, 144, read_q4_k},
    {"Q5_K", Layout::kByteFloatMin, 0, 256, 176, read_q5_k},
    {"Q6_K", Layout::kByteFloatPair, 32, 256, 210, read_q6_k},
    {"F32", Layout::kFloat, 0, 1, 4, nullptr},
    {"F16", Layout::kHalf, 0, 1, 2, nullptr},
    {"BF16", Layout::kBfloat, 0, 1, 2, nullptr},
};

const FileKind& find_kind(std::string_view name) {
  for (const FileKind& kind : kKinds) {
    if (name == kind.name) return kind;
  }
  throw std::invalid_argument("weight format '" + std::string(name) + "' is not supported");
}

Matrix empty_matrix(Layout layout, int zero_point, int n, int k, Arena& arena) {
  Matrix m{};
  m.layout = layout;
  m.n = n;
  m.k = k;
  m.num_tiles = (n + kTile - 1) / kTile;
  m.zero_point = zero_point;
  if (m.quantised()) {
    const GroupShape shape = group_shape(layout);
    const size_t num_groups = static_cast<size_t>(k / kGroup);
    m.scale_bytes = static_cast<size_t>(shape.scale_bytes + shape.min_bytes);
    m.code_bytes = static_cast<size_t>(shape.code_bytes);
    m.tile_bytes = (num_groups + 1) / 2 * 2 * (m.scale_bytes + m.code_bytes);
  } else {
    m.code_bytes = kTile * (layout == Layout::kFloat ? 4 : 2);
    m.tile_bytes = m.code_bytes * static_cast<size_t>(k);
  }
  m.data = arena.allocate(m.num_bytes());
  if (m.by_row()) {
    m.row_scales = reinterpret_cast<float*>(arena.allocate(static_cast<size_t>(m.num_tiles) * kTile * sizeof(float)));
  }
  return m;
}

// `at` is the lane's place in a group's codes; four inputs make a word
void put_codes(const uint8_t* codes, bool nibbles, uint8_t* at) {
  for (int step = 0; step < (nibbles ? 4 : 8); ++step) {
    uint32_t word = read_u32(codes + 4 * step);
    if (nibbles) word |= read_u32(codes + 4 * step + 16) << 4;
    std::memcpy(at + step * 64, &word, 4);
  }
}

void put_group(const Group& g, Matrix& m, int output, int group) {
  const GroupShape shape = group_shape(m.layout);
  const int lane = output % kTile;
  uint8_t* tile = m.data + static_cast<size_t>(output / kTile) * m.tile_bytes;
  uint8_t* scales = tile + m.scales_at(group);
  uint8_t* minima = scales + shape.scale_bytes;
  switch (m.layout) {
    case Layout::kNibbleHalfMin:
    case Layout::kByteHalfMin:
      std::memcpy(minima + 2 * lane, &g.half_minimum, 2);
      [[fallthrough]];
    case Layout::kNibbleHalf:
    case Layout::kByteHalf:
      std::memcpy(scales + 2 * lane, &g.half_scale, 2);
      break;
    case Layout::kNibbleFloatMin:
    case Layout::kByteFloatMin:
      std::memcpy(minima + 4 * lane, &g.minimum, 4);
      std::memcpy(scales + 4 * lane, &g.scales[0], 4);
      break;
    case Layout::kByteFloatPair:
      std::memcpy(scales + 4 * lane, &g.scales[0], 4);
      std::memcpy(scales + 64 + 4 * lane, &g.scales[1], 4);
      break;
    default:
      break;
  }
  put_codes(g.codes, shape.code_bytes == 256, tile + m.codes_at(group) + 4 * lane);
}

void pack_quantised(const FileKind& kind, const uint8_t* row, int output, Matrix& m) {
  const int groups_of_block = kind.block_inputs / kGroup;
  Group group{};
  for (int g = 0; g < m.k / kGroup; ++g) {
    kind.read(row + static_cast<size_t>(g / groups_of_block) * kind.block_bytes, g % groups_of_block, group);
    put_group(group, m, output, g);
  }
}

void pack_floats(const uint8_t* row, int output, Matrix& m) {
  const size_t width = m.code_bytes / kTile;
  uint8_t* tile = m.data + static_cast<size_t>(output / kTile) * m.tile_bytes;
  for (int i = 0; i < m.k; ++i) {
    std::memcpy(tile + static_cast<size_t>(i) * m.code_bytes + static_cast<size_t>(output % kTile) * width,
                row + static_cast<size_t>(i) * width, width);
  }
}

void decode_floats(Layout layout, const uint8_t* row, int k, float* out) {
  for (int i = 0; i < k; ++i) {
    if (layout == Layout::kFloat) {
      std::memcpy(out + i, row + 4 * static_cast<size_t>(i), 4);
    } else {
      const uint16_t bits = read_u16(row + 2 * static_cast<size_t>(i));
      out[i] = layout == Layout::kHalf ? half_to_float(bits) : bfloat_to_float(bits);
    }
  }
}

float largest_magnitude(const float* x, int count) {
  float largest = 0.0f;
  for (int i = 0; i < count; ++i) largest = std::max(largest, std::fabs(x[i]));
  return largest;
}

// codes of nearest integers in [-127, 127], stored + 128; what is not a number becomes 0
void quantise_codes(const float* x, int count, float scale, uint8_t* codes) {
  for (int i = 0; i < count; ++i) {
    const float ratio = scale > 0.0f ? std::nearbyintf(x[i] / scale) : 0.0f;
    const float code = std::isnan(ratio) ? 0.0f : ratio;
    codes[i] = static_cast<uint8_t>(static_cast<int>(std::clamp(code, -127.0f, 127.0f)) + 128);
  }
}

void quantise_output(const float* x, int output, Matrix& m) {
  float scale = 0.0f;
  if (m.by_row()) m.row_scales[output] = scale = largest_magnitude(x, m.k) / 127.0f;
  Group group{};
  for (int g = 0; g < m.k / kGroup; ++g) {
    const float* inputs = x + g * kGroup;
    if (!m.by_row()) {
      group.half_scale = float_to_half(largest_magnitude(inputs, kGroup) / 127.0f);
      scale = half_to_float(group.half_scale);
    }
    quantise_codes(inputs, kGroup, scale, group.codes);
    put_group(group, m, output, g);
  }
}

}  // namespace

size_t file_row_bytes(std::string_view name, int k) {
  const FileKind& kind = find_kind(name);
  if (k <= 0 || k % kind.block_inputs != 0) {
    throw std::invalid_argument("rows of " + std::to_string(k) + " inputs do not fit blocks of " +
                                std::to_string(kind.block_inputs) + " (" + kind.name + ")");
  }
  return static_cast<size_t>(k / kind.block_inputs) * static_cast<size_t>(kind.block_bytes);
}

Packing::Packing(std::string_view kind_name, std::string_view target, int n, int k, std::span<const uint8_t> data,
                 std::span<const int32_t> row_order, Arena& arena)
    : kind_name_(kind_name), data_(data), row_order_(row_order), row_bytes_(file_row_bytes(kind_name, k)) {
  const FileKind& kind = find_kind(kind_name);
  if (k % kGroup != 0) throw std::invalid_argument("the input width " + std::to_string(k) + " is not a multiple of 32");
  if (n <= 0 || data.size() % row_bytes_ != 0) throw std::invalid_argument("the data does not hold whole rows");
  const size_t file_rows = data.size() / row_bytes_;
  if (row_order.empty() ? file_rows != static_cast<size_t>(n) : row_order.size() != static_cast<size_t>(n)) {
    throw std::invalid_argument("the data holds " + std::to_string(file_rows) + " rows, not " + std::to_string(n));
  }
  for (const int32_t row : row_order) {
    if (row < 0 || static_cast<size_t>(row) >= file_rows) {
      throw std::invalid_argument("the row order names row " + std::to_string(row) + ", which the data does not have");
    }
  }
  requantise_ = !target.empty() && kind.read == nullptr;
  if (requantise_ && target != "int8" && target != "int8-row") {
    throw std::invalid_argument("unknown quantisation '" + std::string(target) + "'");
  }
  const Layout layout = !requantise_ ? kind.layout : target == "int8" ? Layout::kByteHalf : Layout::kByteRow;
  matrix_ = empty_matrix(layout, requantise_ ? 128 : kind.zero_point, n, k, arena);
}

void Packing::pack_tile(int tile) {
  const FileKind& kind = find_kind(kind_name_);
  std::vector<float> floats(requantise_ ? static_cast<size_t>(matrix_.k) : 0);
  for (int output = tile * kTile; output < std::min((tile + 1) * kTile, matrix_.n); ++output) {
    const size_t from = row_order_.empty() ? static_cast<size_t>(output) : static_cast<size_t>(row_order_[output]);
    const uint8_t* row = data_.data() + from * row_bytes_;
    if (requantise_) {
      decode_floats(kind.layout, row, matrix_.k, floats.data());
      quantise_output(floats.data(), output, matrix_);
    } else if (kind.read == nullptr) {
      pack_floats(row, output, matrix_);
    } else {
      pack_quantised(kind, row, output, matrix_);
    }
  }
}

}  // namespace headstart
