"""The flags of `headstart bench`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from cyclopts import Parameter

from headstart.cli.settings import SettingsFile
from headstart.errors import ConfigError

if TYPE_CHECKING:
    from headstart.measure.bench import BenchSettings, Cell
    from headstart.measure.workload import Prompt

Number = TypeVar("Number", int, float)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class BenchFlags:
    """What is measured, and how much of it."""

    batch: Annotated[
        str | None, Parameter(help="Requests at once, such as 1,4,16: so many users, each asking anew when answered.")
    ] = None
    rate: Annotated[
        str | None,
        Parameter(help="Requests a second that come by themselves, such as 0.5,2; instead of --batch or beside it."),
    ] = None
    context: Annotated[
        str | None,
        Parameter(
            help="Tokens of a prompt, such as 128,2048: notes before the question bring it there. By default prompts "
            "are as they are."
        ),
    ] = None
    prompts: Annotated[
        Path | None,
        Parameter(
            help='JSONL with "prompt", "turns" or "messages", Spec-Bench\'s question file, or a server\'s log of '
            "requests; by default forty prompts in eight categories."
        ),
    ] = None
    limit: Annotated[int | None, Parameter(help="Prompts at most, taken evenly over the file.")] = None
    max_tokens: Annotated[int, Parameter(help="Tokens of an answer at most.")] = 128
    temperature: Annotated[float, Parameter(help="0 takes the likeliest token; more is more varied.")] = 0.0
    seed: Annotated[int, Parameter(help="Of the sampling, of the notes, and of the times at which requests come.")] = 0
    ignore_eos: Annotated[
        bool,
        Parameter(
            help="Write on to --max-tokens where the model would end. Such texts repeat themselves, which flatters."
        ),
    ] = False
    cached_prompts: Annotated[
        bool,
        Parameter(
            help="Let the engine read all prompts before it is measured, as in conversations that go on: what is "
            "measured is writing alone. Needs memory for all of them."
        ),
    ] = False
    repeats: Annotated[int, Parameter(help="Times that every side does everything; they make the spread.")] = 3
    out: Annotated[
        Path | None,
        Parameter(
            help="Folder for report.json, report.md, report.html and the turns, from which the same command goes on "
            "if it was stopped."
        ),
    ] = None
    config: SettingsFile = None

    def to_settings(self, sides: tuple[str, ...]) -> BenchSettings:
        """The same as the bench takes it.

        Args:
            sides: names, the plain one first.

        Raises:
            ConfigError: a value is out of its range.
        """
        from headstart.measure.bench import BenchSettings

        return BenchSettings(
            sides=sides,
            cells=self._cells(),
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            seed=self.seed,
            ignore_eos=self.ignore_eos,
            cached_prompts=self.cached_prompts,
            repeats=self.repeats,
        )

    def _cells(self) -> tuple[Cell, ...]:
        from headstart.measure.bench import Cell
        from headstart.measure.workload import ClosedLoop, Load, OpenLoop

        batches = "1" if self.batch is None and self.rate is None else self.batch
        loads: list[Load] = [ClosedLoop(number) for number in _numbers("--batch", batches, int)]
        loads += [OpenLoop(number, seed=self.seed) for number in _numbers("--rate", self.rate, float)]
        contexts: Sequence[int | None] = _numbers("--context", self.context, int) or [None]
        return tuple(Cell(load=load, context=context) for context in contexts for load in loads)

    def read_prompts(self) -> list[Prompt]:
        """The prompts that are asked.

        Raises:
            ConfigError: the file cannot be read or is malformed, or the limit is below 1.
        """
        from headstart.measure.workload import read_prompts, shipped_prompts, take_evenly

        if self.limit is not None and self.limit < 1:
            raise ConfigError(f"--limit {self.limit}: it must be at least 1 prompt.")
        prompts = shipped_prompts() if self.prompts is None else read_prompts(self.prompts)
        return prompts if self.limit is None else take_evenly(prompts, self.limit)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ServerFlags:
    """Servers that are measured."""

    url: Annotated[
        str | None,
        Parameter(help="An OpenAI-compatible server that drafts, such as http://localhost:8000/v1: what is measured."),
    ] = None
    url_plain: Annotated[str | None, Parameter(help="The same model on a server that does not draft.")] = None
    plain_fields: Annotated[
        str | None,
        Parameter(
            help="Instead of --url-plain: fields of a request that switch drafting off on --url, as JSON, such as "
            "'{\"speculative.n_max\": 0}'."
        ),
    ] = None
    server_model: Annotated[
        str | None, Parameter(help="Which of the servers' models; by default the first that they list.")
    ] = None
    api_key: Annotated[str | None, Parameter(help="Sent to the servers; better set as HEADSTART_API_KEY.")] = None

    def plain_extra(self) -> dict[str, Any]:
        """Further fields of requests that are to be decoded plainly.

        Raises:
            ConfigError: they are no JSON object.
        """
        try:
            fields = {} if self.plain_fields is None else json.loads(self.plain_fields, parse_constant=_no_constant)
        except ValueError as error:
            raise ConfigError(f"--plain-fields {self.plain_fields!r}: no JSON ({error}).") from None
        if not isinstance(fields, dict):
            raise ConfigError(
                f'--plain-fields {self.plain_fields!r}: give a JSON object, such as {{"speculative": null}}.'
            )
        return fields

    def check(self, model: str | None) -> None:
        """Refuse what does not fit together.

        Args:
            model: the model file that was named, if any.

        Raises:
            ConfigError: neither or both of a model and a server are named, or a flag is missing or has no effect.
        """
        if (model is None) == (self.url is None):
            raise ConfigError("Name either a model to be measured, or a server by --url.")
        if self.url is None:
            for name in ("url_plain", "plain_fields", "server_model"):
                if getattr(self, name) is not None:
                    raise ConfigError(f"--{name.replace('_', '-')} has no effect without --url. Leave it out.")
        elif (self.url_plain is None) == (self.plain_fields is None):
            raise ConfigError(
                "Plain decoding is needed to compare with: give --url-plain, a server that does not draft, or "
                "--plain-fields, by which --url does not. One of them."
            )


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no number of JSON")


def read_sides(text: str) -> tuple[str, ...]:
    """Names of the sides, the plain one first whether it was named or not.

    Example:
        >>> read_sides("lookup,heads")
        ('none', 'lookup', 'heads')

    Raises:
        ConfigError: there is no side to compare with the plain one.
    """
    names = split_names(text)
    others = tuple(name for name in names if name != "none")
    if not others:
        raise ConfigError(
            f"--draft {text!r}: name a drafter to compare with plain decoding, such as none,lookup,heads."
        )
    return ("none", *others)


def split_names(text: str) -> tuple[str, ...]:
    """Names with commas between, and blanks where anyone likes them."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _numbers(flag: str, text: str | None, kind: Callable[[str], Number]) -> list[Number]:
    if text is None:
        return []
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"{flag} {text!r}: give numbers with commas between.") from None
