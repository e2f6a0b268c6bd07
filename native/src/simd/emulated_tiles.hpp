// Tile registers in plain C++: what simd/amx.hpp does, for machines without them.
#pragma once
#include <cstdint>

namespace headstart {

struct EmulatedTiles {
  static inline thread_local int num_rows = 0;
  static inline thread_local int32_t sums[16][16] = {};

  static void configure(int rows) { num_rows = rows; }
  static void release() { num_rows = 0; }
  static void clear() {
    for (auto& row : sums) {
      for (int32_t& sum : row) sum = 0;
    }
  }
  static void multiply(const int8_t* rows, int row_stride, const uint8_t* codes) {
    multiply_steps(rows, row_stride, codes, 16);
  }
  static void multiply_half(const int8_t* rows, int row_stride, const uint8_t* codes) {
    multiply_steps(rows, row_stride, codes, 8);
  }
  static void store(int32_t* out) {
    for (int r = 0; r < num_rows; ++r) {
      for (int output = 0; output < 16; ++output) out[r * 16 + output] = sums[r][output];
    }
  }

 private:
  static void multiply_steps(const int8_t* rows, int row_stride, const uint8_t* codes, int num_steps) {
    for (int r = 0; r < num_rows; ++r) {
      for (int step = 0; step < num_steps; ++step) {
        for (int output = 0; output < 16; ++output) {
          for (int i = 0; i < 4; ++i) {
            sums[r][output] += rows[r * row_stride + step * 4 + i] * codes[(step * 16 + output) * 4 + i];
          }
        }
      }
    }
  }
};

}  // namespace headstart
