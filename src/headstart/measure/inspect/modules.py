"""Heads found among tensors: which modules there are, and what each lacks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from headstart.checkpoint.declared import DeclaredTensor
from headstart.measure.inspect.layouts import LAYOUTS, LOOKS_LIKE_HEADS, Layout
from headstart.measure.inspect.names import by_stem, canonical, holds_values

_EXPERT = re.compile(r"(?:.+\.)?experts\.(\d+)\..+")
_FUSED_EXPERTS = re.compile(r"(?:.+\.)?experts\.(?:gate_up_proj|down_proj|up_proj)|ffn_\w+_exps")


@dataclass(frozen=True, kw_only=True, slots=True)
class Module:
    """One module of heads.

    Attributes:
        index: its number in the names; `None` if they have none.
        missing: parts that it cannot do without and that are not there.
        experts: "fused" into one tensor, "separate", or `None` for a dense module.
        num_experts: how many separate ones are there.
    """

    index: int | None
    missing: tuple[str, ...]
    experts: str | None
    num_experts: int


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class FoundHeads:
    """What the tensors say of heads.

    Attributes:
        layout: the naming scheme; `None` if there are none.
        modules: those with at least one part, complete or not.
        tensors: of all modules, companions such as scales too, by canonical stem.
        strays: names that look like heads and belong to none.
    """

    layout: Layout | None
    modules: tuple[Module, ...]
    tensors: Mapping[str, list[DeclaredTensor]]
    strays: tuple[str, ...]

    @property
    def num_complete(self) -> int:
        """Modules that lack nothing."""
        return sum(not module.missing for module in self.modules)


def find_heads(tensors: Mapping[str, DeclaredTensor], num_layers: int | None) -> FoundHeads:
    """Look for heads of every known layout.

    Args:
        tensors: of a checkpoint, by name.
        num_layers: blocks of its trunk, if the settings say.
    """
    stems = by_stem(tensors)
    for layout in LAYOUTS:
        found = _of_layout(layout, stems)
        if found is not None:
            return found
    strays = (name for name in stems if LOOKS_LIKE_HEADS.fullmatch(name) or _beyond(name, num_layers))
    return FoundHeads(layout=None, modules=(), tensors={}, strays=tuple(sorted(strays)))


def _of_layout(layout: Layout, stems: Mapping[str, list[DeclaredTensor]]) -> FoundHeads | None:
    placed = {name: place for name in stems if (place := layout.split(name)) is not None}
    rests = {rest for _, rest in placed.values()}
    signed = {index for index, rest in placed.values() if re.fullmatch(layout.signature, rest)}
    if not signed or (layout.absent and any(re.fullmatch(layout.absent, rest) for rest in rests)):
        return None
    if layout.is_appended:  # the same names number the trunk's layers
        placed = {name: place for name, place in placed.items() if place[0] in signed}
    members: dict[int | None, dict[str, str]] = {}
    starts = sorted(index for index in signed if index is not None) if layout.starts else []
    for name, (index, rest) in placed.items():
        members.setdefault(_module_index(index, starts), {})[rest] = name
    shared = {} if layout.is_whole and None in members and len(members) == 1 else members.pop(None, {})
    modules = [_module(layout, index, rests, shared, stems) for index, rests in sorted(members.items(), key=_by_index)]
    if not members:
        modules = [_module(layout, None, {}, shared, stems)]
    taken = {name: stems[name] for name in placed}
    return FoundHeads(layout=layout, modules=tuple(modules), tensors=taken, strays=_strays(stems, taken))


def _by_index(item: tuple[int | None, object]) -> int:
    return -1 if item[0] is None else item[0]


def _module_index(index: int | None, starts: list[int]) -> int | None:
    if index is None or not starts:
        return index
    return max((start for start in starts if start <= index), default=starts[0])


def _module(
    layout: Layout,
    index: int | None,
    rests: Mapping[str, str],
    shared: Mapping[str, str],
    stems: Mapping[str, list[DeclaredTensor]],
) -> Module:
    wanted = [(what, pattern, rests) for what, pattern in layout.parts.items()]
    wanted += [(what, pattern, shared) for what, pattern in layout.shared_parts.items()]
    missing = tuple(
        what
        for what, pattern, names in wanted
        if not any(re.fullmatch(pattern, rest) and holds_values(stems[name]) for rest, name in names.items())
    )
    numbers = {int(match[1]) for rest in rests if (match := _EXPERT.fullmatch(rest))}
    is_fused = any(_FUSED_EXPERTS.fullmatch(rest) for rest in rests)
    experts = "separate" if numbers else "fused" if is_fused else None
    return Module(index=index, missing=missing, experts=experts, num_experts=len(numbers))


def _strays(stems: Mapping[str, object], taken: Mapping[str, object]) -> tuple[str, ...]:
    return tuple(sorted(name for name in stems if name not in taken and LOOKS_LIKE_HEADS.fullmatch(name)))


def _beyond(name: str, num_layers: int | None) -> bool:
    match = re.match(r"(?:model\.layers|blk)\.(\d+)\.", canonical(name))
    return match is not None and num_layers is not None and int(match[1]) >= num_layers
