// Tile registers of AMX-INT8. A thread must have configured them before each use: an instruction
// on an unconfigured tile is an illegal one.
#pragma once
#include <immintrin.h>

#include <cstdint>

namespace headstart {

struct AmxTiles {
  // Registers: 0 sums, 1 rows and 2 codes of sixty-four inputs, 3 rows and 4 codes of thirty-two.
  static void configure(int rows) {
    struct alignas(64) Shape {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {};
      uint8_t num_rows[16] = {};
    } shape;
    const uint8_t filled = static_cast<uint8_t>(rows);
    set(shape, 0, filled, 64);
    set(shape, 1, filled, 64);
    set(shape, 2, 16, 64);
    set(shape, 3, filled, 32);
    set(shape, 4, 8, 64);
    _tile_loadconfig(&shape);
  }
  static void release() { _tile_release(); }
  static void clear() { _tile_zero(0); }
  static void multiply(const int8_t* rows, int row_stride, const uint8_t* codes) {
    _tile_loadd(1, rows, row_stride);
    _tile_loadd(2, codes, 64);
    _tile_dpbsud(0, 1, 2);
  }
  static void multiply_half(const int8_t* rows, int row_stride, const uint8_t* codes) {
    _tile_loadd(3, rows, row_stride);
    _tile_loadd(4, codes, 64);
    _tile_dpbsud(0, 3, 4);
  }
  static void store(int32_t* out) { _tile_stored(0, out, 64); }

 private:
  template <class Shape>
  static void set(Shape& shape, int tile, uint8_t rows, uint16_t bytes) {
    shape.num_rows[tile] = rows;
    shape.row_bytes[tile] = bytes;
  }
};

}  // namespace headstart
