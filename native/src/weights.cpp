#include "weights.hpp"

#include <algorithm>
#include <stdexcept>

namespace headstart {

int Weights::add_matrix(std::string_view kind, std::string_view target, int n, int k, std::span<const uint8_t> data,
                        std::span<const int32_t> row_order) {
  Packing packing(kind, target, n, k, data, row_order, arena_);
  constexpr int kTilesOfPiece = 16;
  machine_->share((packing.num_tiles() + kTilesOfPiece - 1) / kTilesOfPiece, [&](int piece, int) {
    const int end = std::min((piece + 1) * kTilesOfPiece, packing.num_tiles());
    for (int tile = piece * kTilesOfPiece; tile < end; ++tile) packing.pack_tile(tile);
  });
  matrices_.push_back(packing.matrix());
  return static_cast<int>(matrices_.size()) - 1;
}

int Weights::add_vector(std::span<const float> values) {
  LineVector<float> padded(values.begin(), values.end());
  padded.resize((values.size() + kTile - 1) / kTile * kTile, 0.0f);
  vectors_.push_back(std::move(padded));
  return static_cast<int>(vectors_.size()) - 1;
}

int Weights::borrow_matrix(const std::shared_ptr<const Weights>& owner, int index) {
  if (owner == nullptr || !owner->has_matrix(index)) throw std::invalid_argument("there is no such matrix to borrow");
  if (std::find(owners_.begin(), owners_.end(), owner) == owners_.end()) owners_.push_back(owner);
  matrices_.push_back(owner->matrix(index));
  return static_cast<int>(matrices_.size()) - 1;
}

int Weights::borrow_vector(const Weights& owner, int index) {
  if (!owner.has_vector(index)) throw std::invalid_argument("there is no such vector to borrow");
  vectors_.push_back(owner.vector(index));
  return static_cast<int>(vectors_.size()) - 1;
}

}  // namespace headstart
