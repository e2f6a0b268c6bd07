#include "rows.hpp"

#include <stdexcept>
#include <string>

#include "cache.hpp"

namespace headstart {
namespace {

// Rows that share a walk over pages in attention: many, so that keys are read seldom, but few
// where there are few, so that all threads have work.
int rows_of_block(int num_rows) { return num_rows <= 1 ? 1 : num_rows <= 16 ? 2 : num_rows <= 64 ? 4 : 8; }

[[noreturn]] void refuse(size_t row, const std::string& why) {
  throw std::invalid_argument("row " + std::to_string(row) + ": " + why);
}

}  // namespace

RowPlan::RowPlan(const RowsView& rows, const RowLimits& limits) : rows_(rows) {
  check(limits);
  place_rows();
}

RowPlan::RowPlan(const RowsView& rows, std::span<const int32_t> path_slots, std::span<const int> path_ends)
    : rows_(rows) {
  places_.resize(path_ends.size());
  int begin = 0;
  for (int r = 0; r < num_rows(); ++r) {
    const int end = path_ends[static_cast<size_t>(r)];
    const std::span<const int32_t> path =
        path_slots.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    const int committed = rows_.committed[static_cast<size_t>(rows_.sequences[static_cast<size_t>(r)])];
    RowPlace& place = places_[static_cast<size_t>(r)];
    place.slot = path.back();
    place.slot_before = path.size() > 1 ? path[path.size() - 2] : committed - 1;
    place.in_place = place.slot == committed + static_cast<int>(path.size()) - 1;  // since they ascend
    place.tail_begin = place.tail_end = static_cast<int>(tail_slots_.size());
    if (!place.in_place) {
      tail_slots_.insert(tail_slots_.end(), path.begin(), path.end());
      place.tail_end = static_cast<int>(tail_slots_.size());
    }
    begin = end;
    add_to_blocks(r);
  }
}

void RowPlan::check(const RowLimits& limits) const {
  const size_t num_rows = rows_.tokens.size(), num_sequences = rows_.page_tables.size();
  if (num_rows == 0) throw std::invalid_argument("a pass needs at least one row");
  if (rows_.positions.size() != num_rows || rows_.parents.size() != num_rows || rows_.sequences.size() != num_rows) {
    throw std::invalid_argument("tokens, positions, parents and sequences differ in length");
  }
  if (rows_.committed.size() != num_sequences) throw std::invalid_argument("committed needs one entry a page table");
  for (size_t s = 0; s < num_sequences; ++s) {
    if (rows_.committed[s] < 0) throw std::invalid_argument("committed counts cannot be negative");
    for (const int32_t page : rows_.page_tables[s]) {
      if (page < 0 || page >= limits.num_pages) {
        throw std::invalid_argument("page " + std::to_string(page) + " is not among the cache's " +
                                    std::to_string(limits.num_pages));
      }
    }
  }
  for (size_t r = 0; r < num_rows; ++r) {
    const int32_t token = rows_.tokens[r], sequence = rows_.sequences[r], parent = rows_.parents[r];
    if (token < 0 || token >= limits.vocab_size)
      refuse(r, "token " + std::to_string(token) + " is not in the vocabulary");
    if (sequence < 0 || static_cast<size_t>(sequence) >= num_sequences) refuse(r, "unknown sequence");
    if (r > 0 && sequence < rows_.sequences[r - 1]) refuse(r, "rows of a sequence must be adjacent and in order");
    if (parent < -1 || parent >= static_cast<int32_t>(r)) refuse(r, "a parent must stand before its child");
    if (parent >= 0 && rows_.sequences[static_cast<size_t>(parent)] != sequence)
      refuse(r, "its parent is of another sequence");
    const int32_t expected =
        parent < 0 ? rows_.committed[static_cast<size_t>(sequence)] : rows_.positions[static_cast<size_t>(parent)] + 1;
    if (rows_.positions[r] != expected) refuse(r, "its position must be " + std::to_string(expected));
    if (expected >= limits.max_context) refuse(r, "position " + std::to_string(expected) + " is past the context");
  }
  for (size_t w = 0; w < rows_.wanted.size(); ++w) {
    const int32_t row = rows_.wanted[w];
    if (row < 0 || static_cast<size_t>(row) >= num_rows || (w > 0 && row <= rows_.wanted[w - 1])) {
      throw std::invalid_argument("wanted rows must be ascending row indices");
    }
  }
}

void RowPlan::place_rows() {
  const int num_rows = this->num_rows();
  places_.resize(static_cast<size_t>(num_rows));
  int first_of_sequence = 0;
  for (int r = 0; r < num_rows; ++r) {
    const int32_t sequence = rows_.sequences[static_cast<size_t>(r)];
    if (r > 0 && sequence != rows_.sequences[static_cast<size_t>(r - 1)]) first_of_sequence = r;
    const int32_t parent = rows_.parents[static_cast<size_t>(r)];
    RowPlace& place = places_[static_cast<size_t>(r)];
    place.slot = rows_.committed[static_cast<size_t>(sequence)] + (r - first_of_sequence);
    if (static_cast<size_t>(place.slot / kPageTokens) >= rows_.page_tables[static_cast<size_t>(sequence)].size()) {
      refuse(static_cast<size_t>(r), "its slot is past the sequence's page table");
    }
    place.slot_before =
        parent < 0 ? rows_.committed[static_cast<size_t>(sequence)] - 1 : places_[static_cast<size_t>(parent)].slot;
    place.in_place = place.slot == rows_.positions[static_cast<size_t>(r)] &&
                     (parent < 0 || places_[static_cast<size_t>(parent)].in_place);
    place.tail_begin = place.tail_end = static_cast<int>(tail_slots_.size());
    if (!place.in_place) {
      // from the row up to the root of its tree, written back to front
      const int length = rows_.positions[static_cast<size_t>(r)] - rows_.committed[static_cast<size_t>(sequence)] + 1;
      tail_slots_.resize(tail_slots_.size() + static_cast<size_t>(length));
      place.tail_end = static_cast<int>(tail_slots_.size());
      int at = place.tail_end;
      for (int ancestor = r; ancestor >= 0; ancestor = rows_.parents[static_cast<size_t>(ancestor)]) {
        tail_slots_[static_cast<size_t>(--at)] = places_[static_cast<size_t>(ancestor)].slot;
      }
    }
    add_to_blocks(r);
  }
}

void RowPlan::add_to_blocks(int row) {
  const int32_t sequence = rows_.sequences[static_cast<size_t>(row)];
  if (!blocks_.empty() && blocks_.back().sequence == sequence && blocks_.back().num_rows < rows_of_block(num_rows())) {
    ++blocks_.back().num_rows;
  } else {
    blocks_.push_back({sequence, row, 1});
  }
}

}  // namespace headstart
