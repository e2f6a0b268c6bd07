"""Settings of a checkpoint, wherever in config.json or a GGUF file they stand, and the heads that they promise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headstart.measure.inspect.families import Family

_NESTED = ("text_config", "llm_config", "language_config", "thinker_config")

# in the order of how often models have them
COUNT_KEYS = (
    "num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules", "num_mtp_layers", "mtp_num_layers",
)  # fmt: skip
_NESTED_COUNTS = (("mtp_config", "num_nextn_predict_layers"),)
_GGUF_COUNT = "nextn_predict_layers"


@dataclass(frozen=True, kw_only=True, slots=True)
class Promise:
    """How many modules of heads the settings speak of.

    Attributes:
        count: of modules; `None` if nothing can be said, as without settings.
        by: the setting, or a word on what else says so.
    """

    count: int | None
    by: str | None


def lookup(settings: Mapping[str, Any], *keys: str) -> Any:
    """The first of some settings that is there, in the model's or its text part's; `None` if none is."""
    for key in keys:
        for place in _places(settings):
            if place.get(key) is not None:
                return place[key]
    return None


def whole(settings: Mapping[str, Any], *keys: str) -> int | None:
    """The same, if it is a whole number."""
    value = lookup(settings, *keys)
    return value if type(value) is int and value >= 0 else None


def num_trunk_layers(settings: Mapping[str, Any]) -> int | None:
    """Blocks of the trunk; GGUF files count those of heads too, which are taken off."""
    architecture = settings.get("general.architecture")
    if architecture is None:
        return whole(settings, "num_hidden_layers", "n_layers", "num_layers")
    blocks = whole(settings, f"{architecture}.block_count")
    return None if blocks is None else blocks - (whole(settings, f"{architecture}.{_GGUF_COUNT}") or 0)


def promise_of(settings: Mapping[str, Any], family: Family | None) -> Promise:
    """What the settings promise.

    Args:
        settings: config.json, or the key-values of a GGUF file; empty if there are none.
        family: if it is known.
    """
    if not settings:
        return Promise(count=None, by=None)
    architecture = settings.get("general.architecture")
    if architecture is not None:
        key = f"{architecture}.{_GGUF_COUNT}"
        if (count := whole(settings, key)) is not None:
            return Promise(count=count, by=key)
        is_drafter = family is not None and family.is_drafter
        return Promise(count=1 if is_drafter else 0, by="general.architecture" if is_drafter else None)
    for key in (*(family.count_keys if family is not None else ()), *COUNT_KEYS):
        if (count := whole(settings, key)) is not None:
            less = family is not None and family.counts_trunk and key in family.count_keys
            return Promise(count=max(count - less, 0), by=key)
    for outer, inner in _NESTED_COUNTS:
        nested = lookup(settings, outer)
        if isinstance(nested, Mapping) and (count := whole(nested, inner)) is not None:
            return Promise(count=count, by=f"{outer}.{inner}")
    if family is None or family.implied == 0:
        return Promise(count=0, by=None)
    if family.implied is None:  # the settings of some families are silent about heads that they may have
        return Promise(count=None if family.layouts and not family.count_keys else 0, by=None)
    return Promise(count=family.implied, by=f"the family ({family.title})")


def quantisation(settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """The method and the bits of a quantised value, as config.json has them; `None` if it speaks of none."""
    stated = lookup(settings, "quantization_config", "quantization")
    if not isinstance(stated, Mapping):
        return None
    method = stated.get("quant_method") or stated.get("quant_algo") or stated.get("mode")
    return {"method": None if method is None else str(method), "bits": _bits(stated)}


def _bits(stated: Mapping[str, Any]) -> int | None:
    for key in ("bits", "w_bit", "num_bits"):
        if type(stated.get(key)) is int:
            return int(stated[key])
    groups = stated.get("config_groups")
    for group in groups.values() if isinstance(groups, Mapping) else ():
        weights = group.get("weights") if isinstance(group, Mapping) else None
        if isinstance(weights, Mapping) and type(weights.get("num_bits")) is int:
            return int(weights["num_bits"])
    return 8 if stated.get("quant_method") == "fp8" else None


def _places(settings: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    places = [settings]
    for key in _NESTED:
        nested = settings.get(key)
        if isinstance(nested, Mapping):
            places += _places(nested)
    return places
