// The Python face of looking up in texts. It needs neither a model nor threads, and so is a module of its own.
#include <nanobind/nanobind.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "lookup_tree.hpp"
#include "suffix_automaton.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace headstart {
namespace {

using Tree = std::tuple<std::vector<int32_t>, std::vector<int32_t>, std::vector<double>>;

void check_match(const SuffixAutomaton& automaton, Match match) {
  if (static_cast<size_t>(match.state) >= automaton.num_states()) {
    throw std::invalid_argument("the match is another automaton's");
  }
}

Tree grow(const SuffixAutomaton& automaton, Match match, int min_match, int max_nodes, int max_depth,
          double min_path_probability) {
  check_match(automaton, match);
  if (min_match < 1) throw std::invalid_argument("min_match must be at least 1");
  DraftTree tree = grow_lookup_tree(automaton, match, {min_match, max_nodes, max_depth, min_path_probability});
  return {std::move(tree.tokens), std::move(tree.parents), std::move(tree.path_probabilities)};
}

}  // namespace

NB_MODULE(_lookup, m) {
  nb::class_<Match>(m, "Match").def(nb::init<>()).def_ro("length", &Match::length);

  nb::class_<SuffixAutomaton>(m, "SuffixAutomaton")
      .def(nb::init<>())
      .def_prop_ro("num_tokens", &SuffixAutomaton::num_tokens)
      .def_prop_ro("num_states", &SuffixAutomaton::num_states)
      .def_prop_ro("num_bytes", &SuffixAutomaton::num_bytes)
      .def_prop_ro("match", &SuffixAutomaton::match)
      .def("begin_text", &SuffixAutomaton::begin_text)
      .def("extend", [](SuffixAutomaton& self, const std::vector<int32_t>& tokens) { self.extend(tokens); })
      .def("follow",
           [](const SuffixAutomaton& self, Match match, const std::vector<int32_t>& tokens) {
             check_match(self, match);
             return self.follow(match, tokens);
           })
      .def("grow", &grow, "match"_a, nb::kw_only(), "min_match"_a, "max_nodes"_a, "max_depth"_a,
           "min_path_probability"_a);
}

}  // namespace headstart
