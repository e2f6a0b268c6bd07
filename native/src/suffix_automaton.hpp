// An online suffix automaton over token ids: every substring of one or several texts, found at once.
//
// A *state* stands for a set of substrings that end at the same places; the longest of them has `length` tokens,
// and dropping tokens from its front leads, by way of links, to states with more occurrences. A transition appends
// a token. The automaton of n tokens has fewer than 2n states and 3n transitions.
//
// Source: Blumer et al., "The smallest automaton recognizing the subwords of a text", Theoretical Computer
// Science 40 (1985).
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "transitions.hpp"

namespace headstart {

// Where a string lies in an automaton: a state, and the string's number of tokens. By default the empty string.
struct Match {
  int32_t state = 0;
  int32_t length = 0;
};

// A token seen after a string.
struct Continuation {
  int32_t token;
  int32_t count;       // how often
  int32_t latest_end;  // the token's latest place, from the automaton's beginning
  int32_t state;       // of the string with the token appended
};

class SuffixAutomaton {
 public:
  // An occurrence is counted for the so many longest distinct contexts that it ends. Ordinary text has fewer; text
  // that repeats one word for ever would have as many as it has tokens, and each new token would cost all of them.
  static constexpr int kMaxCountedContexts = 32;
  // States and transitions must be numbered by int32.
  static constexpr int32_t kMaxTokens = 1 << 29;

  int32_t num_tokens() const { return num_tokens_; }
  size_t num_states() const { return states_.size(); }
  size_t num_bytes() const { return states_.capacity() * sizeof(State) + transitions_.num_bytes(); }

  // The longest suffix of the present text that occurred before, in it or in an earlier text.
  Match match() const { return {match_, state(match_).length}; }

  // Draw a border: the tokens to come are a new text, and no substring runs across.
  void begin_text() { last_ = match_ = 0; }

  // Append tokens to the present text, in constant time each on average. Throws before anything is changed if one
  // is negative, or if there would be too many.
  void extend(std::span<const int32_t> tokens);

  // The longest suffix of the state's strings that has further occurrences.
  Match link(int32_t of) const;

  // Tokens seen after the state's strings, at most `limit`, in the order in which they were first seen.
  void continuations(int32_t of, size_t limit, std::vector<Continuation>& found) const;

  // The longest suffix of a text that occurs here, when `match` was that before `tokens` came. New texts may have made
  // a longer one; that is found only when the text is followed anew.
  Match follow(Match match, std::span<const int32_t> tokens) const;

 private:
  static constexpr int32_t kNone = -1;

  struct State {
    int32_t length;
    int32_t link = kNone;
    int32_t count = 0;
    int32_t latest_end = kNone;
    Transitions::List transitions = {};
  };

  State& state(int32_t index) { return states_[static_cast<size_t>(index)]; }
  const State& state(int32_t index) const { return states_[static_cast<size_t>(index)]; }

  int32_t append(int32_t token);
  int32_t split(int32_t before, int32_t token, int32_t target);
  int32_t add_state(int32_t length);
  void count_occurrence(int32_t of);

  std::vector<State> states_{{.length = 0}};  // state 0 is the empty string
  Transitions transitions_;
  int32_t last_ = 0;   // of the whole present text
  int32_t match_ = 0;  // of its longest suffix that occurred before
  int32_t num_tokens_ = 0;
};

}  // namespace headstart
