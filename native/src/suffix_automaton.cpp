#include "suffix_automaton.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace headstart {

void SuffixAutomaton::extend(std::span<const int32_t> tokens) {
  const auto negative = std::find_if(tokens.begin(), tokens.end(), [](int32_t token) { return token < 0; });
  if (negative != tokens.end()) {
    throw std::invalid_argument("token " + std::to_string(*negative) + ": a token id must not be negative");
  }
  if (tokens.size() > static_cast<size_t>(kMaxTokens - num_tokens_)) {
    throw std::length_error("an automaton holds at most " + std::to_string(kMaxTokens) + " tokens");
  }
  for (const int32_t token : tokens) {
    last_ = append(token);
    // a state that has been counted stands for strings that occurred before
    match_ = state(last_).count > 0 ? last_ : state(last_).link;
    count_occurrence(last_);
    ++num_tokens_;
  }
}

Match SuffixAutomaton::link(int32_t of) const {
  const int32_t shorter = state(of).link;
  return shorter > 0 ? Match{shorter, state(shorter).length} : Match{};
}

void SuffixAutomaton::continuations(int32_t of, size_t limit, std::vector<Continuation>& found) const {
  found.clear();
  int32_t index = state(of).transitions.oldest;
  for (; index != kNone && found.size() < limit; index = transitions_[index].next) {
    const auto& [from, token, target, next] = transitions_[index];
    found.push_back({token, state(target).count, state(target).latest_end, target});
  }
}

Match SuffixAutomaton::follow(Match match, std::span<const int32_t> tokens) const {
  auto [at, length] = match;
  for (const int32_t token : tokens) {
    // Since the match was found its state may have been split, and its string may now belong to the link.
    while (at > 0 && length <= state(state(at).link).length) at = state(at).link;
    int32_t found = transitions_.find(at, token);
    while (found == kNone && at > 0) {
      at = state(at).link;
      length = state(at).length;
      found = transitions_.find(at, token);
    }
    at = found == kNone ? 0 : transitions_[found].target;
    length = found == kNone ? 0 : length + 1;
  }
  return {at, length};
}

// The state of the present text with `token` appended, made if need be.
int32_t SuffixAutomaton::append(int32_t token) {
  const int32_t length = state(last_).length + 1;
  int32_t known = transitions_.find(last_, token);
  if (known != kNone) {  // an earlier text begins like this one
    const int32_t target = transitions_[known].target;
    return state(target).length == length ? target : split(last_, token, target);
  }
  const int32_t added = add_state(length);
  int32_t before = last_;
  for (; before != kNone; before = state(before).link) {
    known = transitions_.find(before, token);
    if (known != kNone) break;
    transitions_.add(state(before).transitions, before, token, added);
  }
  int32_t link = 0;
  if (before != kNone) {
    link = transitions_[known].target;
    if (state(link).length != state(before).length + 1) link = split(before, token, link);
  }
  state(added).link = link;
  return added;
}

// Part from `target` its strings of at most one token more than `before` has; returns their state. They are about to
// occur at a place where the longer ones do not, which is counted next.
int32_t SuffixAutomaton::split(int32_t before, int32_t token, int32_t target) {
  const int32_t shorter = add_state(state(before).length + 1);
  state(shorter).link = state(target).link;
  state(shorter).count = state(target).count;
  for (int32_t index = state(target).transitions.oldest; index != kNone; index = transitions_[index].next) {
    const auto [from, next_token, next_target, next] = transitions_[index];
    transitions_.add(state(shorter).transitions, shorter, next_token, next_target);
  }
  state(target).link = shorter;
  for (; before != kNone; before = state(before).link) {
    // the suffixes of a string with a continuation have that continuation too
    const int32_t index = transitions_.find(before, token);
    if (transitions_[index].target != target) break;
    transitions_.redirect(index, shorter);
  }
  return shorter;
}

int32_t SuffixAutomaton::add_state(int32_t length) {
  states_.push_back({.length = length});
  return static_cast<int32_t>(states_.size()) - 1;
}

void SuffixAutomaton::count_occurrence(int32_t of) {
  for (int i = 0; i < kMaxCountedContexts && of > 0; ++i) {
    ++state(of).count;
    state(of).latest_end = num_tokens_;
    of = state(of).link;
  }
}

}  // namespace headstart
