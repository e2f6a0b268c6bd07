"""Flags that several verbs share. Their defaults are the library's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from headstart.cli.settings import SettingsFile
from headstart.records import SamplingParams

_LIBRARY = SamplingParams()

ModelName = Annotated[
    str, Parameter(help="A .gguf file, a folder, a name on the hub, or smollm2 for the packaged model.")
]
"""The model that a verb works with."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class EngineFlags:
    """How a model is loaded and run."""

    draft: Annotated[
        str,
        Parameter(
            help="Who guesses ahead: lookup (what followed the same words before), heads (that lie beside the model "
            "or ship with this program), heads:FILE, model:PATH, none, or auto (lookup, and heads if there are any). "
            "The text is the same with all."
        ),
    ] = "auto"
    threads: Annotated[
        int | None, Parameter(help="CPU threads; by default as many as the process may use at once.")
    ] = None
    weights: Annotated[
        str, Parameter(help="Compute with the file's own formats (stored), or convert: f32, bf16, int8, int8-row.")
    ] = "stored"
    context: Annotated[
        int | None,
        Parameter(
            help="Tokens of prompt and text together that memory is set aside for; by default all that the model can "
            "take, up to 512 MiB."
        ),
    ] = None
    config: SettingsFile = None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SamplingFlags:
    """How tokens are chosen, and when the text ends."""

    max_tokens: Annotated[int, Parameter(help="Tokens to write at most.")] = _LIBRARY.max_tokens
    temperature: Annotated[float, Parameter(help="0 takes the likeliest token; more is more varied.")] = (
        _LIBRARY.temperature
    )
    top_k: Annotated[int, Parameter(help="Choose among the k likeliest tokens; 0 is off.")] = _LIBRARY.top_k
    top_p: Annotated[float, Parameter(help="Choose among the likeliest tokens that make up this probability.")] = (
        _LIBRARY.top_p
    )
    min_p: Annotated[float, Parameter(help="Drop tokens below this share of the likeliest one.")] = _LIBRARY.min_p
    repetition_penalty: Annotated[
        float, Parameter(help="Make tokens of prompt and text less likely, by a factor; 1 is off.")
    ] = _LIBRARY.repetition_penalty
    presence_penalty: Annotated[
        float, Parameter(help="Subtracted from the logits of tokens that are in the text; 0 is off.")
    ] = _LIBRARY.presence_penalty
    frequency_penalty: Annotated[
        float, Parameter(help="Subtracted for each time a token is in the text; 0 is off.")
    ] = _LIBRARY.frequency_penalty
    stop: Annotated[tuple[str, ...], Parameter(help="A text that ends the answer; may be given several times.")] = (
        _LIBRARY.stop
    )
    seed: Annotated[int | None, Parameter(help="Same seed, same text. Drawn afresh by default, and reported.")] = (
        _LIBRARY.seed
    )
    ignore_eos: Annotated[bool, Parameter(help="Write on where the model would end.")] = _LIBRARY.ignore_eos

    def to_params(self) -> SamplingParams:
        """The same as the engine takes it.

        Raises:
            ConfigError: a value is out of its range.
        """
        return SamplingParams(**vars(self))
