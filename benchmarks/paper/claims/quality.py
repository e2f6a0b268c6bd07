"""Small models may lose next-token quality; a curriculum may give it back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headstart.train.pretrain.model_config import PretrainHeads
from paper.budgets import Budget
from paper.claim import Claim, Figures, Finding, Job, Table
from paper.drafting_figures import DRAFT_HEAD, draft_cells, spread
from paper.judgement import Comparison, by_seed
from paper.models import model_job, pretraining, steps_of_equal_compute
from paper.variants import CODE, HEADS, amount_of, drafted, next_token, several_tokens, size_of

_BASE = "next token alone"
_EQUAL = "four tokens, equal parameters"
_FORWARD = f"{_EQUAL}, forward curriculum"
_REVERSE = f"{_EQUAL}, reverse curriculum"
_COMPUTE = "four tokens, same trunk, equal compute"

_HEADS = {
    _EQUAL: ("equal-n4", PretrainHeads(n=HEADS, equal_parameters=True)),
    _FORWARD: ("equal-n4-forward", PretrainHeads(n=HEADS, equal_parameters=True, curriculum="forward")),
    _REVERSE: ("equal-n4-reverse", PretrainHeads(n=HEADS, equal_parameters=True, curriculum="reverse")),
}


def _models(budget: Budget, seed: int) -> dict[str, Job]:
    alone = pretraining(budget.text_model, PretrainHeads(n=1), seed)
    on_top = pretraining(budget.text_model, PretrainHeads(n=HEADS), seed)
    fewer = pretraining(budget.text_model, PretrainHeads(n=HEADS), seed, steps=steps_of_equal_compute(on_top, alone))
    return {
        _BASE: next_token(budget, seed),
        **{variant: several_tokens(budget, name, heads, seed) for variant, (name, heads) in _HEADS.items()},
        _COMPUTE: model_job(budget, f"code-compute-n4-seed{seed}", CODE, fewer),
    }


def _jobs(budget: Budget) -> Iterator[Job]:
    for seed in budget.seeds:
        models = _models(budget, seed)
        yield from models.values()
        yield from (drafted(budget, job) for variant, job in models.items() if variant != _BASE)


def _find(budget: Budget, figures: Mapping[str, Figures]) -> Finding:
    models = {variant: [_models(budget, seed)[variant] for seed in budget.seeds] for variant in _models(budget, 0)}
    bits = {variant: [figures[job.name]["bits_per_byte"] for job in jobs] for variant, jobs in models.items()}
    rows = []
    for variant, jobs in models.items():
        trained = [figures[job.name] for job in jobs]
        found = [] if variant == _BASE else [figures[drafted(budget, job).name] for job in jobs]
        rows.append(
            (
                variant,
                f"{trained[0]['parameters'] / 1e6:.2f} M",
                f"{trained[0]['tokens'] / 1e6:.2g} M",
                spread(bits[variant], 3),
                *draft_cells(found),
            )
        )
    head = ("model", "parameters", "tokens", "held-out bits a byte", *DRAFT_HEAD)
    return Finding(
        model=size_of(budget, figures[models[_BASE][0].name]["parameters"]),
        data=amount_of(budget),
        comparisons=(
            Comparison("four tokens cost bits at equal parameters", by_seed(bits[_EQUAL], bits[_BASE]), "bits a byte"),
            Comparison("four tokens cost bits at equal compute", by_seed(bits[_COMPUTE], bits[_BASE]), "bits a byte"),
            Comparison("the forward curriculum gives some back", by_seed(bits[_EQUAL], bits[_FORWARD]), "bits a byte"),
            Comparison("the reverse curriculum gives some back", by_seed(bits[_EQUAL], bits[_REVERSE]), "bits a byte"),
        ),
        tables=(Table(head=head, rows=tuple(rows)),),
        remarks=(
            "Equal parameters: the trunk gives up a block for each further head, as in the paper, and heads are "
            "counted. Equal compute: the trunk keeps its blocks and takes fewer steps, so that all operations of the "
            "training are as many. A loss here says nothing of large models, where the paper finds a gain.",
            "Further heads weigh as much as the next token, as in the paper; another claim below has less. A "
            "curriculum weighs them less as well, on average over the run, and no run here has weights as small "
            "throughout; nor is there one of the shallow trunk that predicts the next token alone. So what the order "
            "does is not told apart from what weight does, nor the cost of heads from that of missing blocks.",
        ),
    )


QUALITY = Claim(
    name="quality",
    statement="Predicting several tokens costs small models next-token quality, and a curriculum gives some back",
    source="Gloeckle et al. 2404.19737, table S7 (0.3 B: HumanEval pass@1 from 1.9 to 1.2); 2505.22757 (curriculum)",
    method="bits a byte on held-out code of models that learn the same text by the same seeds",
    jobs=_jobs,
    find=_find,
)
