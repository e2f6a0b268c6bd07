// The Python face of heads. What things mean is written in src/headstart/runtime/heads_protocol.py.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "binding.hpp"
#include "heads.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace headstart {
namespace {

// page table, tokens, first, law, max_nodes, max_depth, breadth, min_path_probability, min_parent_probability
using Job = std::tuple<Ints, Ints, int, const Chooser*, int, int, int, double, double>;
using Tree = std::tuple<std::vector<int32_t>, std::vector<int32_t>, std::vector<double>>;
// program, reads, writes, on_text
using StageParts = std::tuple<std::shared_ptr<Program>, int, int, bool>;

DraftJob job_of(const Job& parts) {
  const auto& [page_table, tokens, first, law, max_nodes, max_depth, breadth, min_path, min_parent] = parts;
  return {span_of(page_table), span_of(tokens), first,   law == nullptr ? nullptr : &law->law(),
          max_nodes,           max_depth,       breadth, min_path,
          min_parent};
}

std::vector<Tree> draft(Heads& heads, const std::vector<Job>& jobs) {
  std::vector<DraftJob> asked;
  for (const Job& job : jobs) asked.push_back(job_of(job));
  std::vector<DraftTree> trees;
  {
    nb::gil_scoped_release unlocked;
    trees = heads.draft(asked);
  }
  std::vector<Tree> result;
  for (DraftTree& tree : trees) {
    result.emplace_back(std::move(tree.tokens), std::move(tree.parents), std::move(tree.path_probabilities));
  }
  return result;
}

FloatRows logits(Heads& heads, const Job& job, const Ints& continuation) {
  std::vector<std::vector<float>> found;
  {
    nb::gil_scoped_release unlocked;
    found = heads.logits(job_of(job), span_of(continuation));
  }
  FloatRows rows = make_rows(found.size(), found[0].size());
  for (size_t i = 0; i < found.size(); ++i)
    std::copy(found[i].begin(), found[i].end(), rows.data() + i * found[i].size());
  return rows;
}

}  // namespace

void bind_heads(nb::module_& m) {
  nb::class_<Heads>(m, "Heads")
      .def(
          "__init__",
          [](Heads* self, std::shared_ptr<Program> trunk, const std::vector<StageParts>& stages, bool recurrent,
             std::vector<int32_t> vocabulary) {
            std::vector<Stage> all;
            for (const auto& [program, reads, writes, on_text] : stages)
              all.push_back({program, reads, writes, on_text});
            new (self) Heads(std::move(trunk), std::move(all), recurrent, std::move(vocabulary));
          },
          nb::kw_only(), "trunk"_a, "stages"_a, "recurrent"_a, "vocabulary"_a)
      .def_prop_ro("max_depth", &Heads::max_depth)
      .def_prop_ro("page_bytes", &Heads::page_bytes)
      .def("draft", &draft)
      .def("logits", &logits);
}

}  // namespace headstart
