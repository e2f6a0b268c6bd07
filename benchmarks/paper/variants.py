"""The trainings that several claims share, by name: a model is trained once, whoever asks."""

from __future__ import annotations

from headstart.train.pretrain.model_config import PretrainHeads, TrainedHeads
from paper.budgets import Budget
from paper.claim import Job
from paper.drafting import drafting_job
from paper.models import graft_job, grafting, model_job, pretraining

CODE = "code"
HEADS = 4
"""Tokens that text models predict at every position, where they predict several."""

DEPTH = HEADS - 1


def next_token(budget: Budget, seed: int) -> Job:
    """A model of code that predicts the next token alone."""
    config = pretraining(budget.text_model, PretrainHeads(n=1), seed)
    return model_job(budget, f"code-n1-seed{seed}", CODE, config)


def several_tokens(budget: Budget, name: str, heads: PretrainHeads, seed: int) -> Job:
    """The same trunk with heads on top of it, trained as long.

    Args:
        budget: what is spent.
        name: of the variant, unlike others.
        heads: beside the trunk.
        seed: of everything random.
    """
    return model_job(budget, f"code-{name}-seed{seed}", CODE, pretraining(budget.text_model, heads, seed))


def with_heads(budget: Budget, kind: TrainedHeads, seed: int) -> Job:
    """The same with four heads of a kind that all weigh alike, as the paper's."""
    return several_tokens(budget, f"{kind}-n{HEADS}", PretrainHeads(n=HEADS, kind=kind), seed)


def grafted(budget: Budget, kind: TrainedHeads, seed: int) -> Job:
    """Heads of a kind, grafted on the `next_token` model of the seed."""
    sizes = budget.text_model
    config = grafting(sizes, kind, DEPTH, seed)
    return graft_job(f"code-grafted-{kind}-seed{seed}", next_token(budget, seed), CODE, config, sizes)


def drafted(budget: Budget, model: Job, heads: Job | None = None) -> Job:
    """What four heads are worth on code: those of a model, or those grafted on it."""
    return drafting_job(budget, model, CODE, (DEPTH,), heads=heads)


def size_of(budget: Budget, parameters: float) -> str:
    """A text model in a few words."""
    sizes = budget.text_model
    return f"bytes, {parameters / 1e6:.1f} M parameters, {sizes.num_layers} blocks of {sizes.hidden_size}"


def amount_of(budget: Budget) -> str:
    """The text that a text model is trained on, in a few words."""
    sizes = budget.text_model
    tokens = sizes.steps * sizes.batch_windows * sizes.window
    return f"standard library, {tokens / 1e6:.2g} MB in {sizes.steps} steps"
