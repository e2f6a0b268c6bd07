// What happens to a row between the matrix products. Part of kernels_impl.hpp.
#pragma once
#include "lane_math.hpp"

namespace headstart::HEADSTART_LANES {
namespace {

void rms_norm(const float* x, const float* weight, float eps, int k, float* out) {
  Floats squares = splat(0.0f);
  for (int i = 0; i < k; i += 16) {
    const Floats v = load(x + i);
    squares = fma(v, v, squares);
  }
  const float mean = fold_sum(squares) / static_cast<float>(k);
  const Floats factor = splat(1.0f / __builtin_sqrtf(mean + eps));
  for (int i = 0; i < k; i += 16) store(out + i, mul(mul(load(x + i), factor), load(weight + i)));
}

inline Floats silu_of(Floats x) { return div(x, add(splat(1.0f), exponential(sub(splat(0.0f), x)))); }

void silu(const float* x, int k, float* out) {
  for (int i = 0; i < k; i += 16) store(out + i, silu_of(load(x + i)));
}

void silu_gate(const float* gate, const float* up, int k, float* out) {
  for (int i = 0; i < k; i += 16) store(out + i, mul(silu_of(load(gate + i)), load(up + i)));
}

void add_rows(const float* x, const float* y, int k, float* out) {
  for (int i = 0; i < k; i += 16) store(out + i, add(load(x + i), load(y + i)));
}

void scale_row(float* x, int k, float factor) {
  const Floats f = splat(factor);
  for (int i = 0; i < k; i += 16) store(x + i, mul(load(x + i), f));
}

void rotate(float* head, const float* cosine, const float* sine, int half) {
  int i = 0;
  for (; i + 16 <= half; i += 16) {
    const Floats a = load(head + i), b = load(head + half + i), c = load(cosine + i), s = load(sine + i);
    store(head + i, sub(mul(a, c), mul(b, s)));
    store(head + half + i, add(mul(b, c), mul(a, s)));
  }
  for (; i < half; ++i) {
    const float a = head[i], b = head[half + i];
    head[i] = a * cosine[i] - b * sine[i];
    head[half + i] = b * cosine[i] + a * sine[i];
  }
}

void floats_to_halves(const float* in, int count, uint16_t* out) {
  for (int i = 0; i < count; i += 16) store_f16(out + i, load(in + i));
}

void halves_to_floats(const uint16_t* in, int count, float* out) {
  for (int i = 0; i < count; i += 16) store(out + i, load_f16(in + i));
}

}  // namespace
}  // namespace headstart::HEADSTART_LANES
