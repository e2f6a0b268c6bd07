"""How much is spent on the claims: sizes of models, steps, seeds."""

from __future__ import annotations

import sysconfig
from dataclasses import dataclass
from pathlib import Path

from headstart.errors import ConfigError


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    """A byte model and its training.

    Attributes:
        hidden_size: of the trunk.
        num_layers: blocks of the trunk; for the equal-parameter rule with those of all heads but the first.
        num_heads: of attention.
        window: tokens of a training window.
        batch_windows: windows of a step.
        steps: of the optimiser. Small batches make more of a little text: at the small budget, four windows a step end
            0.6 bits a byte below sixteen.
        learning_rate: at its highest.
    """

    hidden_size: int
    num_layers: int
    num_heads: int
    window: int
    batch_windows: int
    steps: int
    learning_rate: float = 2e-3


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """What the claims are tried with.

    Attributes:
        name: of the budget.
        seeds: of every training; fewer than three can decide nothing.
        code, prose: sources of text, as `headstart data` takes them.
        text_model: for most claims.
        speed_model: for the one about heads and speed; it has eight heads. At the small budget it has 55 MB in
            float32, to be fetched for every pass: where a pass costs next to nothing, fewer of them save nothing.
        induction_model: for stories with names of two letters. At the small budget a next-token model only comes to
            write any name of a story.
        induction_rare_one_of: stories for one that has names of two letters. At the small budget one of two is too few.
        polynomial_model: for arithmetic.
        polynomial_ring: prime and terms of the ring that arithmetic is in.
        task_training_items: of a made-up task, to train on.
        task_items: of a made-up task, to be scored by, of each group.
        vocabularies: of the claim about memory.
        head_counts: numbers of heads there.
        memory_repeats: processes for each of its cells.
        memory_steps: of such a process; the first is not timed if there are others.
        prompts: that are written on to measure acceptance and speed.
        prompt_tokens: of a prompt.
        answer_tokens: of what is written; with the prompt at most a window.
        rounds: times that every text is written where speed is measured.
    """

    name: str
    seeds: tuple[int, ...]
    code: tuple[str, ...]
    prose: tuple[str, ...]
    text_model: Sizes
    speed_model: Sizes
    induction_model: Sizes
    induction_rare_one_of: int
    polynomial_model: Sizes
    polynomial_ring: tuple[int, int]
    task_training_items: int
    task_items: int
    vocabularies: tuple[int, ...]
    head_counts: tuple[int, ...]
    memory_repeats: int
    memory_steps: int
    prompts: int
    prompt_tokens: int
    answer_tokens: int
    rounds: int

    def __post_init__(self) -> None:
        for sizes in (self.text_model, self.speed_model):
            written = self.prompt_tokens + self.answer_tokens
            if written > sizes.window:
                raise ConfigError(
                    f"Budget {self.name}: prompts and answers of {written} tokens do not fit a window of "
                    f"{sizes.window}, and models know no longer texts. Take shorter ones."
                )


# some fifty modules: enough for a few windows that are held out
_SOME_CODE = tuple(f"tree:{Path(sysconfig.get_path('stdlib')) / package}:*.py" for package in ("asyncio", "email"))

SMOKE = Budget(
    name="smoke",
    seeds=(0,),
    code=_SOME_CODE,
    prose=("docs",),
    text_model=Sizes(hidden_size=32, num_layers=4, num_heads=2, window=64, batch_windows=2, steps=4),
    speed_model=Sizes(hidden_size=32, num_layers=2, num_heads=2, window=64, batch_windows=2, steps=4),
    induction_model=Sizes(hidden_size=32, num_layers=4, num_heads=2, window=256, batch_windows=1, steps=4),
    induction_rare_one_of=1,
    polynomial_model=Sizes(hidden_size=32, num_layers=4, num_heads=2, window=256, batch_windows=1, steps=4),
    polynomial_ring=(3, 3),
    task_training_items=4000,
    task_items=8,
    vocabularies=(256,),
    head_counts=(1, 4),
    memory_repeats=1,
    memory_steps=1,
    prompts=2,
    prompt_tokens=16,
    answer_tokens=16,
    rounds=1,
)

SMALL = Budget(
    name="small",
    seeds=(0, 1, 2),
    code=("stdlib",),
    prose=("docs",),
    text_model=Sizes(hidden_size=160, num_layers=6, num_heads=5, window=256, batch_windows=4, steps=1600),
    speed_model=Sizes(hidden_size=320, num_layers=10, num_heads=5, window=256, batch_windows=4, steps=900),
    induction_model=Sizes(hidden_size=128, num_layers=6, num_heads=4, window=192, batch_windows=4, steps=2400),
    induction_rare_one_of=1,
    polynomial_model=Sizes(
        hidden_size=128, num_layers=6, num_heads=4, window=192, batch_windows=8, steps=1600, learning_rate=1e-3
    ),
    polynomial_ring=(3, 3),
    task_training_items=150_000,
    task_items=500,
    vocabularies=(256, 8192, 49152),
    head_counts=(1, 2, 4, 8),
    memory_repeats=3,
    memory_steps=3,
    prompts=24,
    prompt_tokens=64,
    answer_tokens=160,
    rounds=1,
)

FULL = Budget(
    name="full",
    seeds=(0, 1, 2, 3, 4),
    code=("stdlib",),
    prose=("docs",),
    text_model=Sizes(hidden_size=256, num_layers=8, num_heads=8, window=512, batch_windows=16, steps=3000),
    speed_model=Sizes(hidden_size=512, num_layers=12, num_heads=8, window=512, batch_windows=16, steps=3000),
    induction_model=Sizes(hidden_size=256, num_layers=6, num_heads=8, window=192, batch_windows=16, steps=20000),
    induction_rare_one_of=4,
    polynomial_model=Sizes(hidden_size=256, num_layers=6, num_heads=8, window=192, batch_windows=48, steps=10000),
    polynomial_ring=(7, 3),
    task_training_items=2_000_000,
    task_items=2000,
    vocabularies=(256, 8192, 49152),
    head_counts=(1, 2, 4, 8),
    memory_repeats=5,
    memory_steps=5,
    prompts=64,
    prompt_tokens=64,
    answer_tokens=256,
    rounds=5,
)

BUDGETS = {budget.name: budget for budget in (SMOKE, SMALL, FULL)}
