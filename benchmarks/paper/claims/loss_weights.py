"""Weight too much on far heads hurts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from headstart.train.pretrain.model_config import PretrainHeads
from paper.budgets import Budget
from paper.claim import Claim, Figures, Finding, Job, Line, Plot, Table
from paper.drafting_figures import DRAFT_HEAD, draft_cells, over_seeds, spread
from paper.judgement import Comparison, by_seed
from paper.variants import HEADS, amount_of, drafted, several_tokens, size_of, with_heads

_WEIGHTS = ("0.1", "0.3", "1", "3")
_SHAPES = {
    "near heads most: 1, 1/2, 1/4": ("near", "normalised:1,0.5,0.25"),
    "far heads most: 1/4, 1/2, 1": ("far", "normalised:0.25,0.5,1"),
}
_EVEN = "all alike: 1, 1, 1"


def _of_weight(budget: Budget, weight: str, seed: int) -> Job:
    if weight == "1":
        return with_heads(budget, "parallel", seed)
    return several_tokens(budget, f"weight{weight}-n{HEADS}", PretrainHeads(n=HEADS, weight=weight), seed)


def _of_shape(budget: Budget, shape: str, seed: int) -> Job:
    if shape == _EVEN:
        return with_heads(budget, "parallel", seed)
    name, weights = _SHAPES[shape]
    # as much on all heads together as where they weigh alike
    heads = PretrainHeads(n=HEADS, depth_weights=weights, weight=str(HEADS - 1))
    return several_tokens(budget, f"{name}-n{HEADS}", heads, seed)


def _jobs(budget: Budget) -> Iterator[Job]:
    for seed in budget.seeds:
        trained = [_of_weight(budget, weight, seed) for weight in _WEIGHTS]
        trained += [_of_shape(budget, shape, seed) for shape in _SHAPES]
        yield from trained
        yield from (drafted(budget, job) for job in trained)


def _find(budget: Budget, figures: Mapping[str, Figures]) -> Finding:
    weights = {weight: [_of_weight(budget, weight, seed) for seed in budget.seeds] for weight in _WEIGHTS}
    shapes = {shape: [_of_shape(budget, shape, seed) for seed in budget.seeds] for shape in (*_SHAPES, _EVEN)}
    near, far = _SHAPES

    def bits(jobs: Sequence[Job]) -> list[float]:
        return [figures[job.name]["bits_per_byte"] for job in jobs]

    def drawn(jobs: Sequence[Job]) -> list[float]:
        return over_seeds([figures[drafted(budget, job).name] for job in jobs], "tau_drawn")

    lightest, heaviest = _WEIGHTS[0], _WEIGHTS[-1]
    return Finding(
        model=size_of(budget, figures[weights["1"][0].name]["parameters"]) + " with its four parallel heads",
        data=amount_of(budget),
        comparisons=(
            Comparison(
                f"each further head weighs {heaviest}: worse on the next token than with {lightest}",
                by_seed(bits(weights[heaviest]), bits(weights[lightest])), "bits a byte",
            ),
            Comparison(
                "far heads weigh most: worse on the next token than where near ones do",
                by_seed(bits(shapes[far]), bits(shapes[near])), "bits a byte",
            ),
            Comparison(
                "far heads weigh most: fewer tokens a pass at temperature 1 than where near ones do",
                by_seed(drawn(shapes[near]), drawn(shapes[far])),
            ),
        ),
        tables=(
            _table(budget, "weight of each further head", weights, figures),
            _table(budget, "weights of the three further heads, of sum 3", shapes, figures),
        ),
        plots=(
            _plot(
                "weights-bits", "Next token", "held-out bits a byte",
                {weight: bits(jobs) for weight, jobs in weights.items()},
            ),
            _plot(
                "weights-tokens", "Drafting, at temperature 1", "tokens a pass",
                {weight: drawn(jobs) for weight, jobs in weights.items()},
            ),
        ),
        remarks=(
            "The first comparison weighs all further heads alike; the others keep the sum of their weights, and shift "
            "it from near heads to far ones.",
        ),
    )  # fmt: skip


def _table(budget: Budget, what: str, variants: Mapping[str, list[Job]], figures: Mapping[str, Figures]) -> Table:
    return Table(
        head=(what, "held-out bits a byte", *DRAFT_HEAD),
        rows=tuple(
            (
                name,
                spread([figures[job.name]["bits_per_byte"] for job in jobs], 3),
                *draft_cells([figures[drafted(budget, job).name] for job in jobs]),
            )
            for name, jobs in variants.items()
        ),
    )


def _plot(name: str, title: str, what: str, points: Mapping[str, Sequence[float]]) -> Plot:
    places = tuple((float(place), tuple(values)) for place, values in enumerate(points.values()))
    return Plot(
        name=name,
        title=title,
        x_label="weight of each further head",
        y_label=what,
        lines=(Line(label="parallel heads", points=places),),
        names=tuple(points),
    )


LOSS_WEIGHTS = Claim(
    name="loss-weights",
    statement="Too much weight on far heads hurts",
    source="DeepSeek-AI 2412.19437, who weigh their further head by 0.3, then 0.1; in Gloeckle et al. 2404.19737 all "
    "weigh alike",
    method="four parallel heads with other weights of their losses; held-out code",
    jobs=_jobs,
    find=_find,
)
