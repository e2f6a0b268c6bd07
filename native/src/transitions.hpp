// The transitions of an automaton's states: found by state and token, and listed by state in order of age.
#pragma once
#include <cstdint>
#include <vector>

namespace headstart {

class Transitions {
 public:
  static constexpr int32_t kNone = -1;

  struct Transition {
    int32_t state, token;
    int32_t target;
    int32_t next;  // the same state's next younger one, or kNone
  };

  // The oldest and the youngest transition of a state. The state keeps it.
  struct List {
    int32_t oldest = kNone, youngest = kNone;
  };

  // Index of a state's transition by `token`, or kNone.
  int32_t find(int32_t state, int32_t token) const {
    if (slots_.empty()) return kNone;
    return slots_[slot_of(state, token)];
  }

  const Transition& operator[](int32_t index) const { return all_[static_cast<size_t>(index)]; }
  void redirect(int32_t index, int32_t target) { all_[static_cast<size_t>(index)].target = target; }

  // The state must not have one by `token` yet.
  void add(List& list, int32_t state, int32_t token, int32_t target) {
    if ((all_.size() + 1) * 3 > slots_.size() * 2) grow();
    const int32_t added = static_cast<int32_t>(all_.size());
    all_.push_back({state, token, target, kNone});
    slots_[slot_of(state, token)] = added;
    (list.oldest == kNone ? list.oldest : all_[static_cast<size_t>(list.youngest)].next) = added;
    list.youngest = added;
  }

  size_t num_bytes() const { return all_.capacity() * sizeof(Transition) + slots_.capacity() * sizeof(int32_t); }

 private:
  // Where the transition's index is, or where it would be put: the first free slot from its own on.
  size_t slot_of(int32_t state, int32_t token) const {
    const uint64_t key = static_cast<uint64_t>(static_cast<uint32_t>(state)) << 32 | static_cast<uint32_t>(token);
    // the high bits of a product depend on every bit of the key
    size_t slot = static_cast<size_t>((key ^ key >> 32) * 0x9E3779B97F4A7C15 >> unused_bits_);
    while (slots_[slot] != kNone) {
      const Transition& there = (*this)[slots_[slot]];
      if (there.state == state && there.token == token) break;
      slot = (slot + 1) & (slots_.size() - 1);
    }
    return slot;
  }

  void grow() {
    slots_.assign(size_t{1} << (64 - --unused_bits_), kNone);
    for (size_t i = 0; i < all_.size(); ++i) {
      slots_[slot_of(all_[i].state, all_[i].token)] = static_cast<int32_t>(i);
    }
  }

  std::vector<Transition> all_;
  std::vector<int32_t> slots_;  // 2 ^ (64 - unused_bits_), at most two thirds taken; none before the first
  int unused_bits_ = 61;        // of a hash
};

}  // namespace headstart
