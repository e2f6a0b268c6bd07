// What the files of the binding share: arrays as Python has them.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <span>

namespace headstart {

using Ints = nanobind::ndarray<const int32_t, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;
using FloatRows = nanobind::ndarray<nanobind::numpy, float, nanobind::ndim<2>>;

inline std::span<const int32_t> span_of(const Ints& a) { return {a.data(), a.shape(0)}; }

// an array of its own, uninitialised
inline FloatRows make_rows(size_t num_rows, size_t width) {
  auto* values = new float[num_rows * width];
  return FloatRows(values, {num_rows, width},
                   nanobind::capsule(values, [](void* p) noexcept { delete[] static_cast<float*>(p); }));
}

void bind_heads(nanobind::module_& m);

}  // namespace headstart
