// The rows of one pass, checked, and where each row finds the keys it may see.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace headstart {

// As runtime/protocol.py describes them.
struct RowsView {
  std::span<const int32_t> tokens, positions, parents, sequences, committed, wanted;
  std::vector<std::span<const int32_t>> page_tables;
};

struct RowLimits {
  int vocab_size, max_context, num_pages;
};

// Rows of one sequence that share a walk over its pages: [first_row, first_row + num_rows).
struct RowBlock {
  int sequence, first_row, num_rows;
};

// A row's own place, and the slots of what it sees past the committed tokens.
struct RowPlace {
  int slot;
  int slot_before;           // of the token before it; -1 if there is none
  bool in_place;             // every token it sees lies at the slot of its position
  int tail_begin, tail_end;  // if not in place: its ancestors' slots and its own, in `tail_slots`
};

class RowPlan {
 public:
  // Throws std::invalid_argument, naming the row, if a row breaks the rules.
  RowPlan(const RowsView& rows, const RowLimits& limits);
  // Guesses that follow guesses of earlier passes. `path_slots` has for each row, one after the other and ending at
  // `path_ends`, the slots of all guesses from the committed text on, its own last; they ascend. The caller
  // answers for the rows.
  RowPlan(const RowsView& rows, std::span<const int32_t> path_slots, std::span<const int> path_ends);

  const RowsView& rows() const { return rows_; }
  int num_rows() const { return static_cast<int>(rows_.tokens.size()); }
  int num_wanted() const { return static_cast<int>(rows_.wanted.size()); }
  const std::vector<RowBlock>& blocks() const { return blocks_; }
  const RowPlace& place(int row) const { return places_[static_cast<size_t>(row)]; }
  std::span<const int32_t> tail(int row) const {
    const RowPlace& p = place(row);
    return {tail_slots_.data() + p.tail_begin, static_cast<size_t>(p.tail_end - p.tail_begin)};
  }
  int page(int sequence, int slot) const { return rows_.page_tables[static_cast<size_t>(sequence)][slot / 16]; }

 private:
  void check(const RowLimits& limits) const;
  void place_rows();
  void add_to_blocks(int row);

  RowsView rows_;
  std::vector<RowPlace> places_;
  std::vector<int32_t> tail_slots_;
  std::vector<RowBlock> blocks_;
};

}  // namespace headstart
