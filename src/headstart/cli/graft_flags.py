"""The flags of `headstart graft`. Their defaults are the library's own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast, get_args

from cyclopts import Parameter

from headstart.cli.settings import SettingsFile
from headstart.errors import ConfigError

if TYPE_CHECKING:
    from headstart.train.graft_config import GraftConfig, Learn
    from headstart.train.prompts import PromptSource

OPENINGS = "openings"


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class GraftFlags:
    """What heads look like, and how they are trained."""

    minutes: Annotated[
        float | None,
        Parameter(
            help="Time for everything, counted over all the times that the command is run: at most a third goes into "
            "the text, the rest into as many steps as fit. Without it, --text-tokens and --epochs say how much."
        ),
    ] = None
    text_tokens: Annotated[
        int | None,
        Parameter(help="Tokens of answers that the model writes; by default 2,000,000, or as --minutes permits."),
    ] = None
    epochs: Annotated[
        float | None,
        Parameter(help="Times that the text is gone through; by default 4, or as --minutes permits."),
    ] = None
    depth: Annotated[int, Parameter(help="Guesses ahead that are trained.")] = 4
    taps: Annotated[
        str | None,
        Parameter(
            help="Layers of the model that are read, such as 10,20,30; 0 is the embedding. By default the last, and "
            "for eagle3 three spread over the model."
        ),
    ] = None
    draft_vocabulary: Annotated[
        int, Parameter(help="Tokens that can be guessed, the commonest of the text; 0 for all.")
    ] = 8192
    layers: Annotated[int, Parameter(help="Blocks of a module; medusa and parallel only.")] = 1
    linear: Annotated[
        bool, Parameter(negative="", help="A matrix for each head in place of a block; parallel only.")
    ] = False
    separate_modules: Annotated[
        bool,
        Parameter(
            negative="",
            help="A module with weights of its own for each depth, in place of one that is unrolled; sequential only.",
        ),
    ] = False
    own_unembedding: Annotated[
        bool, Parameter(negative="", help="Heads train an unembedding of their own, which begins as the model's.")
    ] = False
    loss: Annotated[str, Parameter(help="What is made small: kl, ce, tv, nla, lk, or a sum such as 0.1*ce+0.9*tv.")] = (
        "kl"
    )
    depth_weights: Annotated[
        str, Parameter(help="How depths weigh in it: constant, decay:0.8, or a list such as 1,0.5,0.25.")
    ] = "decay:0.8"
    feature_weight: Annotated[
        float, Parameter(help="Weight of the regression on the model's own states; eagle only.")
    ] = 0.0
    first_depth_share: Annotated[
        float,
        Parameter(
            help="Share of the steps, from the first, that train depth 1 alone and so cost less; for one module that "
            "is unrolled."
        ),
    ] = 0.0
    learn: Annotated[
        str,
        Parameter(help="What heads learn to guess: all of the text, prompts included, or its answers alone."),
    ] = "all"
    learning_rate: Annotated[float, Parameter(help="At its highest.")] = 2e-3
    weight_decay: Annotated[
        float,
        Parameter(help="In units of the learning rate; a text that is gone through many times wants much, such as 1."),
    ] = 0.01
    window: Annotated[int, Parameter(help="Tokens of a training window, and of a text at most.")] = 1024
    batch: Annotated[int, Parameter(help="Windows of a step.")] = 4
    checkpoints: Annotated[
        int, Parameter(help="Times that the heads are measured, and the best kept; fewer if --minutes is short.")
    ] = 8
    seed: Annotated[int, Parameter(help="Of everything random.")] = 0
    threads: Annotated[
        int | None, Parameter(help="CPU threads; by default as many as the process may use at once.")
    ] = None
    config: SettingsFile = None

    def to_config(self, kind: str) -> GraftConfig:
        """The same as training takes it.

        Raises:
            ConfigError: a value is out of its range or would have no effect.
        """
        # late: they bring numpy, which --help can do without
        from headstart.architectures.heads import HeadKind
        from headstart.train.graft_config import GraftConfig

        if kind not in get_args(HeadKind):
            raise ConfigError(f"kind = {kind!r}: it must be one of {', '.join(get_args(HeadKind))}.")
        return GraftConfig(
            kind=cast(HeadKind, kind),
            depth=self.depth,
            taps=None if self.taps is None else _layers(self.taps),
            draft_vocab_size=self.draft_vocabulary,
            num_layers=self.layers,
            form="linear" if self.linear else "block",
            unrolled=not self.separate_modules,
            own_unembedding=self.own_unembedding,
            minutes=self.minutes,
            text_tokens=self.text_tokens,
            epochs=self.epochs,
            learn=cast("Learn", self.learn),
            window=self.window,
            loss=self.loss,
            depth_weights=self.depth_weights,
            first_depth_share=self.first_depth_share,
            feature_weight=self.feature_weight,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            batch_windows=self.batch,
            checkpoints=self.checkpoints,
            seed=self.seed,
            threads=self.threads,
        )


def read_prompt_files(names: tuple[str, ...], *, raw_openings: bool) -> PromptSource:
    """Prompts by what the user named.

    Args:
        names: each a file, or `openings`, with `:SHARE` after it or not; none for the openings alone.
        raw_openings: take openings for plain texts, as a model without a chat template needs.

    Raises:
        ConfigError: a share is 0, or a file cannot be read or is malformed.
    """
    from headstart.train.prompts import PromptMix, read_prompts, shipped_openings

    parts: list[tuple[PromptSource, int]] = []
    for name in names or (OPENINGS,):
        path, share = _parted(name)
        parts.append((shipped_openings(raw=raw_openings) if path == OPENINGS else read_prompts(path), share))
    if len(parts) == 1:
        return parts[0][0]
    return PromptMix(tuple(parts))


def _parted(name: str) -> tuple[str, int]:
    path, colon, share = name.rpartition(":")
    # a colon may be a part of a file's name
    if not colon or not share.isdecimal() or Path(name).is_file():
        return name, 1
    if not int(share):
        raise ConfigError(
            f"prompts = {name!r}: a share is at least 1. Leave the file out if none of it is to be asked."
        )
    return path, int(share)


def _layers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(f"taps = {text!r}: give numbers of layers with commas between, such as 10,20,30.") from None
