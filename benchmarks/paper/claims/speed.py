"""More heads, more speed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from headstart.train.pretrain.model_config import PretrainHeads
from paper.budgets import Budget
from paper.claim import Claim, Figures, Finding, Job, Line, Plot, Table
from paper.drafting import PAYING, drafting_job
from paper.drafting_figures import DRAFT_HEAD, draft_cells, over_seeds, spread
from paper.judgement import Comparison, by_seed
from paper.models import model_job, pretraining

_CORPORA = ("code", "prose")
_HEADS = 8
_DEPTHS = tuple(range(1, _HEADS))
_WEIGHTS = "f32"
_SPEEDS = {"speedup_drawn": "at temperature 1", "speedup": "greedily"}


def _model(budget: Budget, corpus: str, seed: int) -> Job:
    heads = PretrainHeads(n=_HEADS, kind="sequential", unrolled=True)
    return model_job(budget, f"{corpus}-n{_HEADS}-seed{seed}", corpus, pretraining(budget.speed_model, heads, seed))


def _drafted(budget: Budget, corpus: str, seed: int) -> Job:
    return drafting_job(budget, _model(budget, corpus, seed), corpus, _DEPTHS, weights=_WEIGHTS, race=True)


def _jobs(budget: Budget) -> Iterator[Job]:
    for seed in budget.seeds:
        for corpus in _CORPORA:
            yield _model(budget, corpus, seed)
            yield _drafted(budget, corpus, seed)


def _find(budget: Budget, figures: Mapping[str, Figures]) -> Finding:
    found = {corpus: [figures[_drafted(budget, corpus, seed).name] for seed in budget.seeds] for corpus in _CORPORA}
    comparisons = []
    for corpus, (name, how) in product(_CORPORA, _SPEEDS.items()):
        by_depth = {depth: over_seeds(found[corpus], name, str(depth)) for depth in _DEPTHS}
        comparisons += [
            Comparison(
                f"{corpus}, speed {how}: {more + 1} heads above {fewer + 1}", by_seed(by_depth[more], by_depth[fewer])
            )
            for fewer, more in ((1, 3), (3, 7))
        ]
        gains = tuple(speedup - 1.0 for speedup in by_depth[_DEPTHS[-1]])
        comparisons.append(Comparison(f"{corpus}, speed {how}: all {_HEADS} heads above none", gains))
    comparisons.append(
        Comparison(
            f"tokens a pass at temperature 1 with {_HEADS} heads: code above prose",
            by_seed(*(over_seeds(found[corpus], "tau_drawn", str(_DEPTHS[-1])) for corpus in _CORPORA)),
        )
    )
    trained = [figures[_model(budget, corpus, budget.seeds[0]).name] for corpus in _CORPORA]
    sizes = budget.speed_model
    return Finding(
        model=f"bytes, {trained[0]['parameters'] / 1e6:.1f} M parameters, {sizes.num_layers} blocks of "
        f"{sizes.hidden_size} and a module unrolled {_HEADS - 1} times, run in float32",
        data=f"standard library; documentation; {trained[0]['tokens'] / 1e6:.2g} MB each in {sizes.steps} steps",
        comparisons=tuple(comparisons),
        tables=tuple(_table(corpus, found[corpus]) for corpus in _CORPORA),
        plots=(
            _plot("speed-tokens", "Tokens a pass at temperature 1", "tokens a pass", "tau_drawn", found),
            _plot("speed-times", "Real speed at temperature 1", "times plain speed", "speedup_drawn", found),
        ),
        remarks=(
            "The model's own next token is the first head, so k heads make k − 1 guesses a pass. They are put where "
            "the heads are surest, which need not be one chain. In the last row the engine itself decides by measured "
            "cost when and how deep to draft, with up to 15 guesses.",
            "The paper's heads are parallel, with unembeddings of their own; here one module is run again for each "
            "head, which drafts better. Its models wait for memory at every pass, and so does this one in float32; "
            "with 8 bits a weight it would fit the processor's cache, and save less.",
            "Plain decoding and drafting took turns on every text, and all texts were the same token for token. Greedy "
            "texts of small models repeat themselves: where few of their runs are distinct, their speed says little.",
            "That more heads keep more tokens a pass is not judged: more guesses of one model are bound to.",
        ),
    )


def _table(corpus: str, found: Sequence[Figures]) -> Table:
    names = {str(depth): str(depth + 1) for depth in _DEPTHS} | {PAYING: "as pays"}
    return Table(
        head=(
            f"heads used, {corpus}",
            *DRAFT_HEAD,
            *(f"times plain speed, {how}" for how in _SPEEDS.values()),
            "tokens/s, temperature 1",
            "plain tokens/s",
        ),
        rows=tuple(
            (
                name,
                *draft_cells(found, key),
                *(spread(over_seeds(found, speed, key)) for speed in _SPEEDS),
                spread(over_seeds(found, "tokens_per_s_drawn", key), 0),
                spread(over_seeds(found, "plain_tokens_per_s_drawn", key), 0),
            )
            for key, name in names.items()
        ),
    )


def _plot(name: str, title: str, y_label: str, figure: str, found: Mapping[str, Sequence[Figures]]) -> Plot:
    return Plot(
        name=name,
        title=title,
        x_label="heads used",
        y_label=y_label,
        lines=tuple(
            Line(
                label=corpus,
                # one head is plain decoding
                points=(
                    (1.0, (1.0,)),
                    *((depth + 1.0, tuple(over_seeds(each, figure, str(depth)))) for depth in _DEPTHS),
                ),
            )
            for corpus, each in found.items()
        ),
    )


SPEED = Claim(
    name="speed",
    statement="More heads, more speed",
    source="Gloeckle et al. 2404.19737, tables S2 and S3, 7 B: 2.74 times on Wikipedia and 3.05 on code with 4 heads "
    "(3.12 and 3.50 tokens a pass), 6.39 with 8 heads of bytes (7.04)",
    method="one byte model with eight heads in sequence for each text, trained from scratch; held-out text written on "
    "by the native engine with 2 to 8 of them",
    jobs=_jobs,
    find=_find,
)
