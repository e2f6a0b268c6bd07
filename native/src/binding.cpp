// The Python face of the core: one class for a model, one for a sampling law. It converts and
// checks; what things mean is written in src/headstart/runtime/protocol.py.
#include "binding.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <mutex>
#include <stdexcept>

#include "cpu.hpp"
#include "limits.hpp"
#include "memory_reader.hpp"
#include "program.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace headstart {
namespace {

using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Floats = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using FloatRow = nb::ndarray<nb::numpy, float, nb::ndim<1>>;

FloatRow copy_floats(const float* from, int count) {
  auto copy = std::make_unique<float[]>(static_cast<size_t>(count));
  std::copy_n(from, count, copy.get());
  nb::capsule owner(copy.get(), [](void* p) noexcept { delete[] static_cast<float*>(p); });
  return FloatRow(copy.release(), {static_cast<size_t>(count)}, owner);
}

int add_matrix(Program& program, const std::string& kind, const std::string& target, int n, int k, const Bytes& data,
               const std::optional<Ints>& row_order) {
  const std::span<const int32_t> order = row_order ? span_of(*row_order) : std::span<const int32_t>{};
  nb::gil_scoped_release unlocked;
  return program.weights()->add_matrix(kind, target, n, k, {data.data(), data.shape(0)}, order);
}

RowsView rows_view(const Ints& tokens, const Ints& positions, const Ints& parents, const Ints& sequences,
                   const std::vector<Ints>& page_tables, const Ints& committed, const Ints& wanted) {
  RowsView rows{span_of(tokens),
                span_of(positions),
                span_of(parents),
                span_of(sequences),
                span_of(committed),
                span_of(wanted),
                {}};
  for (const Ints& table : page_tables) rows.page_tables.push_back(span_of(table));
  return rows;
}

void check_slots(std::span<const int32_t> table, const std::vector<int32_t>& slots) {
  for (const int32_t slot : slots) {
    if (slot < 0 || static_cast<size_t>(slot / kPageTokens) >= table.size()) {
      throw std::invalid_argument("slot " + std::to_string(slot) + " is past the page table");
    }
  }
}

void check_table(const Program& program, std::span<const int32_t> table) {
  for (const int32_t page : table) {
    if (page < 0 || page >= program.num_pages()) throw std::invalid_argument("a page is not in the cache");
  }
}

void move_slots(Program& program, const Ints& page_table, const std::vector<int32_t>& sources,
                const std::vector<int32_t>& destinations) {
  if (sources.size() != destinations.size()) throw std::invalid_argument("sources and destinations differ in length");
  const std::span<const int32_t> table = span_of(page_table);
  check_table(program, table);
  check_slots(table, sources);
  check_slots(table, destinations);
  program.move(table, sources, destinations);
}

FloatRows read_taps(const Program& program, const Ints& page_table, int first_slot, int num_slots) {
  const std::span<const int32_t> table = span_of(page_table);
  check_table(program, table);
  if (num_slots < 0) throw std::invalid_argument("a negative number of slots");
  if (num_slots > 0) check_slots(table, {first_slot, first_slot + num_slots - 1});
  const int width = program.kept_width();
  FloatRows rows = make_rows(static_cast<size_t>(num_slots), static_cast<size_t>(width));
  for (int i = 0; i < num_slots; ++i) {
    const int slot = first_slot + i;
    program.taps().read(table[static_cast<size_t>(slot / kPageTokens)], slot % kPageTokens, 0, width,
                        rows.data() + static_cast<size_t>(i) * static_cast<size_t>(width));
  }
  return rows;
}

using TopLogprobs = std::vector<std::pair<int32_t, double>>;
using Choices = std::pair<std::vector<int32_t>, std::vector<std::optional<std::pair<double, TopLogprobs>>>>;

Choices choose(Program& program, const std::vector<int>& rows, const std::vector<const Chooser*>& choosers,
               const std::vector<int>& positions, const std::vector<std::vector<int32_t>>& paths) {
  const size_t count = rows.size();
  if (choosers.size() != count || positions.size() != count || paths.size() != count) {
    throw std::invalid_argument("rows, choosers, positions and paths differ in length");
  }
  for (size_t i = 0; i < count; ++i) {
    if (rows[i] < 0 || rows[i] >= program.num_wanted()) throw std::invalid_argument("the last pass kept no such row");
    if (choosers[i]->law().vocab_size != program.vocab_size())
      throw std::invalid_argument("a law of another vocabulary");
    for (const int32_t token : paths[i]) {
      if (token < 0 || token >= program.vocab_size())
        throw std::invalid_argument("a path token is not in the vocabulary");
    }
  }
  std::vector<Chosen> chosen(count);
  std::exception_ptr failure;
  std::mutex failing;
  {
    nb::gil_scoped_release unlocked;
    Machine& machine = program.machine();
    machine.share(static_cast<int>(count), [&](int i, int thread) {
      try {
        const size_t at = static_cast<size_t>(i);
        chosen[at] = choosers[at]->choose(program.logits(rows[at]), positions[at], paths[at], machine.kernels(),
                                          machine.choose_scratch(thread));
      } catch (...) {
        const std::lock_guard lock(failing);
        if (!failure) failure = std::current_exception();
      }
    });
  }
  if (failure) std::rethrow_exception(failure);
  Choices result;
  for (size_t i = 0; i < count; ++i) {
    result.first.push_back(chosen[i].token);
    if (choosers[i]->law().num_logprobs >= 0) {
      result.second.emplace_back(std::pair{chosen[i].logprob, std::move(chosen[i].top)});
    } else {
      result.second.emplace_back(std::nullopt);
    }
  }
  return result;
}

int checked_threads(int num_threads) {
  if (num_threads < 1 || num_threads > 1024) throw std::invalid_argument("threads must be between 1 and 1024");
  return num_threads;
}

const Kernels& kernels_for(const std::string& instruction_set) {
  return instruction_set.empty() ? best_kernels() : kernels_by_name(instruction_set);
}

}  // namespace

NB_MODULE(_native, m) {
  nb::exception<LawError>(m, "LawError", PyExc_ValueError);
  nb::exception<LogitsError>(m, "LogitsError");

  m.def("usable_cores", &usable_cores);
  m.def(
      "container_limits",
      [](const std::string& root) {
        const Limits limits = container_limits(root);
        return std::tuple{limits.cores, limits.bytes};
      },
      "root"_a = "");
  m.def("instruction_sets", [] {
    std::vector<std::string> names;
    for (const Kernels* kernels : available_kernels()) names.emplace_back(kernels->name);
    return names;
  });

  nb::class_<MemoryReader>(m, "MemoryReader")
      .def("__init__",
           [](MemoryReader* self, int num_threads, const std::string& instruction_set, size_t num_bytes) {
             new (self) MemoryReader(checked_threads(num_threads), kernels_for(instruction_set), num_bytes);
           })
      .def("time", &MemoryReader::time, nb::call_guard<nb::gil_scoped_release>());

  nb::class_<Chooser>(m, "Chooser")
      .def(
          "__init__",
          [](Chooser* self, int vocab_size, uint64_t seed, double temperature, int top_k, double top_p, double min_p,
             double repetition_penalty, double presence_penalty, double frequency_penalty,
             std::vector<std::pair<int32_t, double>> bias, std::vector<int32_t> allowed,
             std::vector<int32_t> end_tokens, int min_tokens, int num_logprobs, const std::vector<int32_t>& prompt) {
            Law law{vocab_size,
                    seed,
                    temperature,
                    top_p,
                    min_p,
                    repetition_penalty,
                    presence_penalty,
                    frequency_penalty,
                    top_k,
                    min_tokens,
                    num_logprobs,
                    std::move(bias),
                    std::move(allowed),
                    std::move(end_tokens)};
            new (self) Chooser(std::move(law), prompt);
          },
          nb::kw_only(), "vocab_size"_a, "seed"_a, "temperature"_a, "top_k"_a, "top_p"_a, "min_p"_a,
          "repetition_penalty"_a, "presence_penalty"_a, "frequency_penalty"_a, "bias"_a, "allowed"_a, "end_tokens"_a,
          "min_tokens"_a, "num_logprobs"_a, "prompt"_a)
      .def("extend", [](Chooser& self, const std::vector<int32_t>& tokens) { self.extend(tokens); });

  nb::class_<Program>(m, "Program")
      .def("__init__",
           [](Program* self, int num_threads, const std::string& isa) {
             const auto machine = std::make_shared<Machine>(checked_threads(num_threads), kernels_for(isa));
             new (self) Program(std::make_shared<Weights>(machine));
           })
      .def_static("beside",
                  [](const Program& other) {
                    return std::make_shared<Program>(std::make_shared<Weights>(other.weights()->machine()));
                  })
      .def_static("over", [](const Program& other) { return std::make_shared<Program>(other.weights()); })
      .def_prop_ro("instruction_set", [](const Program& p) { return std::string(p.machine().kernels().name); })
      .def_prop_ro("num_threads", [](const Program& p) { return p.machine().num_threads(); })
      .def_prop_ro("vocab_size", &Program::vocab_size)
      .def_prop_ro("weight_bytes", &Program::weight_bytes)
      .def_prop_ro("page_bytes", &Program::page_bytes)
      .def("take_profile",
           [](Program& p) {
             const Program::Profile profile = p.take_profile();
             return std::tuple{profile.products, profile.attention, profile.rest};
           })
      .def("add_matrix", &add_matrix, "kind"_a, "target"_a, "n"_a, "k"_a, "data"_a.noconvert(),
           "row_order"_a.noconvert().none())
      .def("unpack_row",
           [](const Program& p, int matrix, int row) {
             if (!p.weights()->has_matrix(matrix)) throw std::invalid_argument("there is no such matrix");
             const Matrix& weights = p.weights()->matrix(matrix);
             if (row < 0 || row >= weights.n) throw std::invalid_argument("the matrix has no such row");
             std::vector<float> values(static_cast<size_t>(weights.k));
             unpack_row(weights, row, values.data());
             return copy_floats(values.data(), weights.k);
           })
      .def("add_vector",
           [](Program& p, const Floats& values) { return p.weights()->add_vector({values.data(), values.shape(0)}); })
      .def("borrow_matrix", [](Program& p, const Program& owner,
                               int index) { return p.weights()->borrow_matrix(owner.weights(), index); })
      .def("borrow_vector", [](Program& p, const Program& owner,
                               int index) { return p.weights()->borrow_vector(*owner.weights(), index); })
      .def("add_register", &Program::add_register, "width"_a, "wanted_rows_only"_a)
      .def("embed",
           [](Program& p, int out, int matrix) {
             Op op{OpKind::kEmbed};
             op.out = out, op.weight = matrix;
             p.add_op(std::move(op));
           })
      .def("state",
           [](Program& p, int out, int offset) {
             Op op{OpKind::kState};
             op.out = out, op.at = offset;
             p.add_op(std::move(op));
           })
      .def("keep",
           [](Program& p, int in, int offset) {
             Op op{OpKind::kKeep};
             op.in = in, op.at = offset;
             p.add_op(std::move(op));
           })
      .def("copy",
           [](Program& p, int out, int in, int offset) {
             Op op{OpKind::kCopy};
             op.out = out, op.in = in, op.at = offset;
             p.add_op(std::move(op));
           })
      .def("norm",
           [](Program& p, int out, int in, int vector, float eps, int span) {
             Op op{OpKind::kNorm};
             op.out = out, op.in = in, op.weight = vector, op.eps = eps, op.span = span;
             p.add_op(std::move(op));
           })
      .def("linear",
           [](Program& p, int in, const std::vector<std::tuple<int, int, int, bool>>& parts) {
             Op op{OpKind::kLinear};
             op.in = in;
             for (const auto& [matrix, destination, bias, accumulate] : parts) {
               op.parts.push_back({matrix, destination, bias, accumulate});
             }
             p.add_op(std::move(op));
           })
      .def("rotate",
           [](Program& p, int in, int head_dim) {
             Op op{OpKind::kRotate};
             op.in = in, op.span = head_dim;
             p.add_op(std::move(op));
           })
      .def("attention",
           [](Program& p, int out, int queries, int keys, int values, int layer, int num_heads, int num_kv_heads,
              int head_dim, int window, float scale) {
             Op store{OpKind::kStore};
             store.in = keys, store.in2 = values, store.layer = layer;
             store.attention = {num_heads, num_kv_heads, head_dim, window, scale};
             Op op{OpKind::kAttention};
             op.out = out, op.in = queries, op.layer = layer, op.attention = store.attention;
             p.add_op(std::move(store));
             p.add_op(std::move(op));
           })
      .def("silu",
           [](Program& p, int out, int x) {
             Op op{OpKind::kSilu};
             op.out = out, op.in = x;
             p.add_op(std::move(op));
           })
      .def("gate",
           [](Program& p, int out, int gate, int up) {
             Op op{OpKind::kGate};
             op.out = out, op.in = gate, op.in2 = up;
             p.add_op(std::move(op));
           })
      .def("add",
           [](Program& p, int out, int x, int y) {
             Op op{OpKind::kAdd};
             op.out = out, op.in = x, op.in2 = y;
             p.add_op(std::move(op));
           })
      .def("select",
           [](Program& p, int out, int in) {
             Op op{OpKind::kSelect};
             op.out = out, op.in = in;
             p.add_op(std::move(op));
           })
      .def(
          "finish",
          [](Program& p, int logits, std::vector<float> inverse_frequencies, float rotary_factor, int num_layers,
             int num_kv_heads, int head_dim, bool half_cache, int max_context) {
            p.finish(logits, std::move(inverse_frequencies), rotary_factor,
                     {num_layers, num_kv_heads, head_dim, half_cache}, max_context);
          },
          nb::kw_only(), "logits"_a, "inverse_frequencies"_a, "rotary_factor"_a, "num_layers"_a, "num_kv_heads"_a,
          "head_dim"_a, "half_cache"_a, "max_context"_a)
      .def("make_cache",
           [](Program& p, int num_pages) {
             if (num_pages < 1) throw std::invalid_argument("a cache needs at least one page");
             p.make_cache(num_pages);
           })
      .def(
          "forward",
          [](Program& p, const Ints& tokens, const Ints& positions, const Ints& parents, const Ints& sequences,
             const std::vector<Ints>& page_tables, const Ints& committed, const Ints& wanted) {
            const RowsView rows = rows_view(tokens, positions, parents, sequences, page_tables, committed, wanted);
            nb::gil_scoped_release unlocked;
            p.forward(rows);
          },
          // a silent conversion would be a copy each pass
          "tokens"_a.noconvert(), "positions"_a.noconvert(), "parents"_a.noconvert(), "sequences"_a.noconvert(),
          "page_tables"_a.noconvert(), "committed"_a.noconvert(), "wanted"_a.noconvert())
      .def("logits",
           [](const Program& p, int index) {
             if (index < 0 || index >= p.num_wanted()) throw std::invalid_argument("the last pass kept no such row");
             return copy_floats(p.logits(index), p.vocab_size());
           })
      .def("choose", &choose)
      .def("taps", &read_taps, "page_table"_a.noconvert(), "first_slot"_a, "num_slots"_a)
      .def("move", &move_slots, "page_table"_a.noconvert(), "sources"_a, "destinations"_a);
  bind_heads(m);
}

}  // namespace headstart
