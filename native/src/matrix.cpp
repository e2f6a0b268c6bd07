#include "matrix.hpp"

#include <cstring>
#include <stdexcept>

#include "half.hpp"

namespace headstart {

GroupShape group_shape(Layout layout) {
  switch (layout) {
    case Layout::kNibbleHalf:
      return {256, 32, 0};
    case Layout::kNibbleHalfMin:
      return {256, 32, 32};
    case Layout::kByteHalf:
      return {512, 32, 0};
    case Layout::kByteHalfMin:
      return {512, 32, 32};
    case Layout::kNibbleFloatMin:
      return {256, 64, 64};
    case Layout::kByteFloatMin:
      return {512, 64, 64};
    case Layout::kByteFloatPair:
      return {512, 128, 0};
    case Layout::kByteRow:
      return {512, 0, 0};
    default:
      throw std::logic_error("a float layout has no groups");
  }
}

namespace {

float stored_float(const uint8_t* p, bool half, int lane) {
  if (half) {
    uint16_t bits;
    std::memcpy(&bits, p + 2 * lane, 2);
    return half_to_float(bits);
  }
  float value;
  std::memcpy(&value, p + 4 * lane, 4);
  return value;
}

bool is_nibble(Layout layout) {
  return layout == Layout::kNibbleHalf || layout == Layout::kNibbleHalfMin || layout == Layout::kNibbleFloatMin;
}

bool has_half_scales(Layout layout) {
  return layout == Layout::kNibbleHalf || layout == Layout::kNibbleHalfMin || layout == Layout::kByteHalf ||
         layout == Layout::kByteHalfMin;
}

void unpack_float_row(const Matrix& matrix, const uint8_t* tile, int lane, float* out) {
  for (int i = 0; i < matrix.k; ++i) {
    if (matrix.layout == Layout::kFloat) {
      std::memcpy(out + i, tile + (static_cast<size_t>(i) * kTile + lane) * 4, 4);
      continue;
    }
    uint16_t bits;
    std::memcpy(&bits, tile + (static_cast<size_t>(i) * kTile + lane) * 2, 2);
    out[i] = matrix.layout == Layout::kHalf ? half_to_float(bits) : bfloat_to_float(bits);
  }
}

}  // namespace

void unpack_row(const Matrix& matrix, int row, float* out) {
  const int lane = row % kTile;
  const uint8_t* tile = matrix.data + static_cast<size_t>(row / kTile) * matrix.tile_bytes;
  if (!matrix.quantised()) return unpack_float_row(matrix, tile, lane, out);
  const GroupShape shape = group_shape(matrix.layout);
  const bool half = has_half_scales(matrix.layout), nibbles = is_nibble(matrix.layout);
  for (int g = 0; g < matrix.k / kGroup; ++g) {
    const uint8_t* scales = tile + matrix.scales_at(g);
    const uint8_t* codes = tile + matrix.codes_at(g);
    const float minimum = shape.min_bytes ? stored_float(scales + shape.scale_bytes, half, lane) : 0.0f;
    for (int i = 0; i < kGroup; ++i) {
      const int step = i / 4;
      const int at = lane * 4 + i % 4;
      const int code = !nibbles   ? codes[step * 64 + at]
                       : step < 4 ? codes[step * 64 + at] & 15
                                  : codes[(step - 4) * 64 + at] >> 4;
      float scale;
      if (matrix.by_row()) {
        scale = matrix.row_scales[row];
      } else if (matrix.layout == Layout::kByteFloatPair) {
        scale = stored_float(scales + (i / 16) * 64, false, lane);
      } else {
        scale = stored_float(scales, half, lane);
      }
      out[g * kGroup + i] = shape.min_bytes ? scale * static_cast<float>(code) + minimum
                                            : scale * static_cast<float>(code - matrix.zero_point);
    }
  }
}

}  // namespace headstart
