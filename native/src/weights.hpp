// Weights by index: matrices in the kernels' layout, and vectors. Several programs may run over the same.
#pragma once
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "machine.hpp"
#include "matrix.hpp"

namespace headstart {

class Weights {
 public:
  explicit Weights(std::shared_ptr<Machine> machine) : machine_(std::move(machine)) {}

  // Each returns the index to refer to. Packs with all threads; as `Packing` throws.
  int add_matrix(std::string_view kind, std::string_view target, int n, int k, std::span<const uint8_t> data,
                 std::span<const int32_t> row_order);
  int add_vector(std::span<const float> values);
  // the same memory under an index of this; throws std::invalid_argument
  int borrow_matrix(const std::shared_ptr<const Weights>& owner, int index);
  int borrow_vector(const Weights& owner, int index);

  const std::shared_ptr<Machine>& machine() const { return machine_; }
  bool has_matrix(int index) const { return index >= 0 && static_cast<size_t>(index) < matrices_.size(); }
  bool has_vector(int index) const { return index >= 0 && static_cast<size_t>(index) < vectors_.size(); }
  const Matrix& matrix(int index) const { return matrices_[static_cast<size_t>(index)]; }
  // padded with zeros to whole tiles
  const LineVector<float>& vector(int index) const { return vectors_[static_cast<size_t>(index)]; }

 private:
  std::shared_ptr<Machine> machine_;
  Arena arena_;
  std::vector<Matrix> matrices_;
  std::vector<LineVector<float>> vectors_;
  std::vector<std::shared_ptr<const Weights>> owners_;  // of what is borrowed
};

}  // namespace headstart
