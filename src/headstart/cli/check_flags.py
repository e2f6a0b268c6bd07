"""The flags of `headstart check`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from headstart.cli.bench_flags import split_names
from headstart.cli.settings import SettingsFile
from headstart.errors import ConfigError

if TYPE_CHECKING:
    from headstart.measure.check import EngineCheckConfig, ServerCheckConfig
    from headstart.measure.check.tolerance import ActivationBits
    from headstart.measure.workload import Prompt

_NUM_PROMPTS = 8


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class CheckFlags:
    """What is asked."""

    prompts: Annotated[
        Path | None,
        Parameter(help='JSONL with "prompt", "turns" or "messages"; by default some that ship with this program.'),
    ] = None
    limit: Annotated[int, Parameter(help="Prompts at most, taken evenly over the file.")] = _NUM_PROMPTS
    max_tokens: Annotated[int, Parameter(help="Tokens of an answer at most.")] = 48
    seed: Annotated[int, Parameter(help="Of what is drawn.")] = 0
    out: Annotated[Path | None, Parameter(help="File for the certificate, as JSON.")] = None
    config: SettingsFile = None

    def read_prompts(self) -> list[Prompt]:
        """The prompts.

        Raises:
            ConfigError: the file cannot be read or is malformed, or the limit is below 1.
        """
        from headstart.measure.workload import read_prompts, shipped_prompts, take_evenly

        if self.limit < 1:
            raise ConfigError(f"--limit {self.limit}: it must be at least 1 prompt.")
        prompts = shipped_prompts() if self.prompts is None else read_prompts(self.prompts)
        return take_evenly(prompts, self.limit)

    def require_place(self) -> None:
        """Refuse a place for the certificate that cannot be had, before the hour that it takes to earn it.

        Raises:
            ConfigError: its folder is not there, or it is a folder itself.
        """
        if self.out is not None and (self.out.is_dir() or not self.out.absolute().parent.is_dir()):
            raise ConfigError(f"--out {self.out}: name a file in a folder that is there.")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class EngineCheckFlags:
    """What is compared with plain decoding, on this engine. Defaults are `None`, so that one without effect is seen."""

    draft: Annotated[
        str | None,
        Parameter(
            help="Who guesses: of none, lookup, heads, heads:FILE, model:PATH and auto, with commas between. "
            "none,lookup,auto by default."
        ),
    ] = None
    batch: Annotated[str | None, Parameter(help="Sequences at once, such as 1,4,16. 1,4 by default.")] = None
    threads: Annotated[
        str | None,
        Parameter(
            help="CPU threads; several numbers such as 1,4 are compared. By default as many as the process may use."
        ),
    ] = None

    weights: Annotated[
        str | None,
        Parameter(
            help="Compute with the file's own formats (stored, the default), or convert: f32, bf16, int8, int8-row."
        ),
    ] = None

    def to_config(self, flags: CheckFlags) -> EngineCheckConfig:
        """The same as the check takes it.

        Raises:
            ConfigError: a value is out of its range.
        """
        from headstart.measure.check import EngineCheckConfig

        usual = EngineCheckConfig()
        return EngineCheckConfig(
            drafts=usual.drafts if self.draft is None else split_names(self.draft),
            batches=usual.batches if self.batch is None else _numbers("--batch", self.batch),
            threads=usual.threads if self.threads is None else _numbers("--threads", self.threads),
            max_tokens=flags.max_tokens,
            seed=flags.seed,
        )

    def refuse(self, *, has_model: bool) -> None:
        """Refuse flags that matter to this engine only.

        Args:
            has_model: whether the server is held to a model file, which is run here.

        Raises:
            ConfigError: there is such a flag.
        """
        for name in ("draft", "batch", *(() if has_model else ("threads", "weights"))):
            if getattr(self, name) is not None:
                raise ConfigError(f"--{name} is the server's own affair with --url. Leave it out.")
        if self.threads is not None and len(_numbers("--threads", self.threads)) > 1:
            raise ConfigError(f"--threads {self.threads}: with --url the model is run with one number of threads.")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ServerCheckFlags:
    """How thoroughly a server's draws are tested."""

    samples: Annotated[
        int | None, Parameter(help="Texts drawn from a server at most, to see their distribution. 400 by default.")
    ] = None
    false_alarm: Annotated[
        float | None,
        Parameter(help="Probability that a right server is called broken, over the whole run. 0.001 by default."),
    ] = None

    def to_config(
        self, flags: CheckFlags, *, num_layers: int | None = None, activation_bits: ActivationBits = 8
    ) -> ServerCheckConfig:
        """The same as the check takes it.

        Args:
            flags: what is asked.
            num_layers: of the model, if it is known.
            activation_bits: with which the coarser of the engines may compute.

        Raises:
            ConfigError: a value is out of its range.
        """
        from headstart.measure.check import ServerCheckConfig

        usual = ServerCheckConfig()
        return ServerCheckConfig(
            max_tokens=flags.max_tokens,
            num_sampled=usual.num_sampled if self.samples is None else self.samples,
            false_alarm=usual.false_alarm if self.false_alarm is None else self.false_alarm,
            num_layers=usual.num_layers if num_layers is None else num_layers,
            activation_bits=activation_bits,
            seed=flags.seed,
        )

    def refuse(self) -> None:
        """Refuse flags that matter to servers only.

        Raises:
            ConfigError: there is such a flag.
        """
        for name in ("samples", "false_alarm"):
            if getattr(self, name) is not None:
                raise ConfigError(
                    f"--{name.replace('_', '-')} has no effect without --url: this engine is compared token by token."
                )


def _numbers(flag: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(f"{flag} {text!r}: give whole numbers with commas between.") from None
