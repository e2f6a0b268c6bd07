"""All that is known of a checkpoint before it is judged: family, promise and tensors side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headstart.measure.inspect.describe import Description
from headstart.measure.inspect.families import Family, family_of
from headstart.measure.inspect.layouts import LAYOUTS
from headstart.measure.inspect.modules import FoundHeads, find_heads
from headstart.measure.inspect.settings import Promise, lookup, num_trunk_layers, promise_of, whole
from headstart.measure.inspect.sizes import Sizes, measure_sizes


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Case:
    """A checkpoint under inspection.

    Attributes:
        description: what its files say.
        family: if it is known.
        promise: what the settings say of heads.
        heads: what the tensors say of them.
        sizes: of trunk and heads.
    """

    description: Description
    family: Family | None
    promise: Promise
    heads: FoundHeads
    sizes: Sizes

    @property
    def settings(self) -> Mapping[str, Any]:
        """The checkpoint's settings."""
        return self.description.settings

    @property
    def present(self) -> int | None:
        """Complete modules among the tensors; `None` if the tensors cannot be seen, or heads be told from others."""
        if self.description.tensors is None:
            return None
        is_legible = self.heads.layout is not None or not self.heads.strays or (self.family and self.family.layouts)
        return self.heads.num_complete if is_legible else None

    @property
    def kind(self) -> str | None:
        """What sort of heads it has, or of its family if they cannot be seen."""
        if self.heads.layout is not None:
            return self.heads.layout.kind
        if self.present == 0 and not self.promise.count:
            return None
        layouts = self.family.layouts if self.family is not None else ()
        return next((layout.kind for layout in LAYOUTS if layout.name in layouts), None)

    @property
    def depths(self) -> int | None:
        """Guesses ahead that the heads were made for; `None` if one module is unrolled and nothing says how far."""
        count = self.promise.count if self.present is None else self.present
        if not count:
            return count
        if self.kind in ("eagle", "eagle3", "assistant", "dspark"):
            return self._stated_depth()
        return count

    @property
    def is_drafter(self) -> bool:
        """Whether the files hold heads and no trunk."""
        whole_file = self.heads.layout is not None and self.heads.layout.is_whole
        return whole_file or (self.family is not None and self.family.is_drafter)

    def _stated_depth(self) -> int | None:
        config = lookup(self.settings, "speculators_config")
        methods = config.get("proposal_methods") if isinstance(config, Mapping) else None
        if (block := whole(self.settings, "dspark_block_size")) is not None:
            return block
        first = methods[0] if isinstance(methods, list) and methods else None
        return whole(first, "speculative_tokens") if isinstance(first, Mapping) else None


def make_case(description: Description) -> Case:
    """Put together what a checkpoint's files say."""
    heads = find_heads(description.tensors or {}, num_trunk_layers(description.settings))
    family = family_of(description.settings, None if heads.layout is None else heads.layout.name)
    return Case(
        description=description,
        family=family,
        promise=promise_of(description.settings, family),
        heads=heads,
        sizes=measure_sizes(description, heads, own_unembeddings=family is not None and family.own_unembeddings),
    )
