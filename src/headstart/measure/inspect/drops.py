"""What loses a checkpoint's heads on the way to where they would be used: a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headstart.measure.inspect.case import Case


@dataclass(frozen=True, slots=True)
class _Drop:
    applies: Callable[[Case], bool]
    text: str


def _inside_safetensors(case: Case) -> bool:
    return case.description.format == "safetensors" and not case.is_drafter


_DROPS = (
    _Drop(
        _inside_safetensors,
        "transformers' from_pretrained ignores them, so what save_pretrained writes after fine-tuning or quantising "
        "has none, and its config.json promises them still.",
    ),
    _Drop(
        _inside_safetensors,
        "Conversion to GGUF with --no-mtp, or by a llama.cpp from before it knew them.",
    ),
    _Drop(_inside_safetensors, "Serving without the flags above: the engines load the model and leave them out."),
    _Drop(
        lambda case: case.description.format == "gguf",
        "llama.cpp without --spec-type: it loads the file and leaves them unused.",
    ),
    _Drop(
        lambda case: case.description.format == "gguf",
        "Every engine but llama.cpp's kin: the names of a GGUF file's heads are its own.",
    ),
    _Drop(
        lambda case: case.family is not None and "vllm" in case.family.loads_first_only and (case.present or 0) > 1,
        "vLLM, of several modules of this family, loads the first alone.",
    ),
    _Drop(
        lambda case: case.kind == "eagle3",
        "SGLang drops tensors whose names it does not know without a word; the first layer must be called midlayer.",
    ),
    _Drop(
        lambda case: case.kind in ("medusa", "eagle", "eagle3"),
        "A server started without the drafter: nothing in the model itself points to it.",
    ),
)


def drops_of(case: Case) -> tuple[str, ...]:
    """Sentences on what loses these heads; none if there are none to lose."""
    if not case.present:
        return ()
    return tuple(drop.text for drop in _DROPS if drop.applies(case))
