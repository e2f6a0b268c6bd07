"""The weights that heads bring, beside those that they borrow of their trunk."""

from __future__ import annotations

from collections.abc import Mapping

from headstart.architectures.heads import HeadsProgram
from headstart.architectures.weights import wanted_shapes
from headstart.errors import CheckpointError

BORROWED = "trunk."
"""With which names of weights begin that are the trunk's."""

Shape = tuple[int, ...]


def own_shapes(program: HeadsProgram) -> dict[str, Shape]:
    """Shapes of the heads' own weights, by name."""
    return {
        name: shape
        for stage in program.stages
        for name, shape in wanted_shapes(stage.program).items()
        if not name.startswith(BORROWED)
    }


def require_weights(shapes: Mapping[str, Shape], found: Mapping[str, Shape]) -> None:
    """Refuse weights that are not those of the heads.

    Args:
        shapes: as they should be, by name.
        found: as they are.

    Raises:
        CheckpointError: one is missing, misshapen, or one too many.
    """
    if missing := sorted(shapes.keys() - found.keys()):
        raise CheckpointError(f"The heads lack weights that their description asks for: {', '.join(missing)[:300]}.")
    for name, shape in shapes.items():
        if found[name] != shape:
            raise CheckpointError(
                f"The heads' weight {name!r} has shape {list(found[name])}; their description asks for {list(shape)}."
            )
    if surplus := sorted(found.keys() - shapes.keys()):
        raise CheckpointError(
            f"The heads have weights for which there is no place in their description: {', '.join(surplus)[:300]}."
        )
