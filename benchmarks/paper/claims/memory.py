"""n heads train at the memory of one, at equal speed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import TYPE_CHECKING

import training_memory
from memory_cells import TARGET
from paper.budgets import Budget
from paper.claim import Claim, Figures, Finding, Job, Line, Plot, Table
from paper.drafting_figures import spread
from paper.judgement import Comparison

if TYPE_CHECKING:
    from paper.stopwatch import Stopwatch
    from paper.workspace import Workspace

_NAIVE, _OURS = "naive", "head_by_head_chunked"
_ORDERS = {_NAIVE: "all at once", _OURS: "head by head"}

# what the project asks of itself; time is of a machine that is never quite quiet
_MOST_MEMORY, _MOST_TIME = TARGET, 1.10

# of a process before its first step
_START_S = 3.0


def _cell(budget: Budget, order: str, vocabulary: int, heads: int, repeat: int) -> Job:
    steps = budget.memory_steps

    def run(workspace: Workspace) -> Figures:
        return training_memory.measure_cell(order, heads, vocabulary=vocabulary, steps=steps, threads=workspace.threads)

    def estimate(stopwatch: Stopwatch) -> float:
        return _START_S + steps * _products(vocabulary, heads) / stopwatch.products_per_s

    return Job(
        name=f"memory-{order}-v{vocabulary}-n{heads}-{repeat}",
        settings={"order": order, "vocabulary": vocabulary, "heads": heads, "steps": steps},
        run=run,
        estimate=estimate,
        timed=True,
    )


def _products(vocabulary: int, heads: int) -> float:
    """Multiplications and additions of a step: all layers, and an unembedding for each head; thrice with gradients."""
    width = training_memory.WIDTH
    return 3 * 2 * training_memory.TOKENS * width * (12 * width * training_memory.LAYERS + heads * vocabulary)


def _jobs(budget: Budget) -> Iterator[Job]:
    # the repeats of a cell lie far apart, so that a slow spell of the machine does not fall on one cell alone
    for repeat in range(budget.memory_repeats):
        for vocabulary, heads, order in product(budget.vocabularies, budget.head_counts, _ORDERS):
            yield _cell(budget, order, vocabulary, heads, repeat)


def _find(budget: Budget, figures: Mapping[str, Figures]) -> Finding:
    repeats = range(budget.memory_repeats)
    cells = {
        (order, vocabulary, heads): [figures[_cell(budget, order, vocabulary, heads, each).name] for each in repeats]
        for order, vocabulary, heads in product(_ORDERS, budget.vocabularies, budget.head_counts)
    }
    most = budget.head_counts[-1]
    comparisons = []
    for vocabulary in budget.vocabularies:
        memory = _ratios(cells, (_OURS, vocabulary, most), (_OURS, vocabulary, 1), "memory")
        seconds = _ratios(cells, (_OURS, vocabulary, most), (_OURS, vocabulary, 1), "step_s")
        against = _ratios(cells, (_OURS, vocabulary, most), (_NAIVE, vocabulary, most), "step_s")
        comparisons += [
            Comparison(
                f"V = {vocabulary}: the memory of {most} heads is at most {_MOST_MEMORY} times that of one",
                tuple(_MOST_MEMORY - ratio for ratio in memory),
            ),
            Comparison(
                f"V = {vocabulary}: a step of {most} heads takes at most {_MOST_TIME} times that of one",
                tuple(_MOST_TIME - ratio for ratio in seconds),
            ),
            Comparison(
                f"V = {vocabulary}: {most} heads one by one take at most {_MOST_TIME} times what they take at once",
                tuple(_MOST_TIME - ratio for ratio in against),
            ),
        ]
    return Finding(
        model=f"{training_memory.LAYERS} layers of {training_memory.WIDTH}, the heads' among them",
        data=f"{training_memory.TOKENS} random tokens a step",
        comparisons=tuple(comparisons),
        tables=tuple(_table(cells, vocabulary, budget) for vocabulary in budget.vocabularies),
        plots=(_plot(cells, budget),),
        remarks=(
            "Each cell is a process of its own; its peak is the operating system's, less what the imports take. "
            "Repeats stand for seeds. At equal parameters every further head multiplies by the vocabulary once more, "
            "which costs little beside a large trunk and much beside these; where the time is not that of one head, "
            "this is why.",
        ),
    )


_Cells = Mapping[tuple[str, int, int], list[Figures]]


def _values(cells: _Cells, key: tuple[str, int, int], name: str) -> list[float]:
    if name == "memory":
        return [cell["peak_bytes"] - cell["baseline_bytes"] for cell in cells[key]]
    return [cell[name] for cell in cells[key]]


def _ratios(cells: _Cells, key: tuple[str, int, int], base: tuple[str, int, int], name: str) -> list[float]:
    return [one / other for one, other in zip(_values(cells, key, name), _values(cells, base, name), strict=True)]


def _table(cells: _Cells, vocabulary: int, budget: Budget) -> Table:
    rows = []
    for order, spoken in _ORDERS.items():
        for heads in budget.head_counts:
            key, base = (order, vocabulary, heads), (order, vocabulary, 1)
            mebibytes = [value / 2**20 for value in _values(cells, key, "memory")]
            rows.append(
                (
                    spoken, str(heads), spread(mebibytes, 0), spread(_ratios(cells, key, base, "memory")),
                    spread(_values(cells, key, "step_s")), spread(_ratios(cells, key, base, "step_s")),
                )
            )  # fmt: skip
    head = (f"V = {vocabulary}", "heads", "MiB", "over one head", "step, s", "over one head")
    return Table(head=head, rows=tuple(rows))


def _plot(cells: _Cells, budget: Budget) -> Plot:
    return Plot(
        name="memory",
        title="Memory of a step",
        x_label="heads",
        y_label="over one head",
        lines=tuple(
            Line(
                label=f"{spoken}, V = {vocabulary}",
                points=tuple(
                    (float(heads), tuple(_ratios(cells, (order, vocabulary, heads), (order, vocabulary, 1), "memory")))
                    for heads in budget.head_counts
                ),
            )
            for (order, spoken), vocabulary in product(_ORDERS.items(), budget.vocabularies)
        ),
    )


MEMORY = Claim(
    name="memory",
    statement="n heads train at the memory of one, at equal speed",
    source="Gloeckle et al. 2404.19737, section 2 and table S5 (4 heads: 1.07 times the time at 6.7 B)",
    method="one training step at equal parameters, all heads at once against one after the other with their logits in "
    "chunks of rows",
    jobs=_jobs,
    find=_find,
)
