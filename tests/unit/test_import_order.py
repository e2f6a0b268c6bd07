"""Imports go one way, read from the sources: what a module may lean on, and what must never be dragged in."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import headstart

PACKAGE = "headstart"
ROOT = Path(headstart.__file__).parent
# each part may import those before it, and itself
ORDER = ("errors", "records", "checkpoint", "architectures", "runtime", "decoding", "engine", "train", "measure", "cli")
# what is for tests may lean on all of them, and none of them on it
TEST_PARTS = ("testing",)
# may lean on numbers and records only: they are to run, and be tested, where no model can
PURE = ("headstart.decoding", "headstart.engine.scheduler", "headstart.engine.sequence", "headstart.engine.cache")
HEAVY = ("torch", "tokenizers", "headstart._native", "headstart.runtime.native", "headstart.checkpoint")


def module_of(path: Path) -> str:
    parts = (PACKAGE, *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = {module_of(path): path.read_text(encoding="utf-8") for path in sorted(ROOT.rglob("*.py"))}


def imported(source: str, *, at_once: bool) -> Iterator[str]:
    """Names of what a source imports; with `at_once`, only what importing it imports too."""
    waiting: list[ast.AST] = [ast.parse(source)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None, "imports are absolute here"
            assert node.level == 0, "imports are absolute here"
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif not (at_once and is_late(node)):
            waiting += ast.iter_child_nodes(node)


def is_late(node: ast.AST) -> bool:
    only_types = isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    return only_types or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)


def part_of(name: str) -> str | None:
    """The part of the house that a dotted name lies in, if it lies in one."""
    package, _, rest = name.partition(".")
    part = rest.partition(".")[0]
    return part if package == PACKAGE and part in ORDER + TEST_PARTS else None


def wrong_imports(module: str, source: str) -> list[str]:
    part = part_of(module)
    if part is None or part in TEST_PARTS:
        return []
    allowed = ORDER[: ORDER.index(part) + 1]
    return [name for name in imported(source, at_once=False) if part_of(name) not in (None, *allowed)]


@cache
def needed(module: str) -> frozenset[str]:
    """All that importing a module imports at once, by itself or through others of this package."""
    found: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        # a name may be a module or something in one; and a module's packages come with it
        prefixes = [name.rsplit(".", cut)[0] for cut in range(name.count(".") + 1)]
        for prefix in prefixes:
            if prefix not in found:
                found.add(prefix)
                waiting += imported(SOURCES.get(prefix, ""), at_once=True)
    return frozenset(found)


@pytest.mark.parametrize("module", SOURCES)
def test_imports_go_one_way(module: str) -> None:
    assert not wrong_imports(module, SOURCES[module])


@pytest.mark.parametrize("module", [name for name in SOURCES if name.startswith(PURE)])
def test_what_is_pure_logic_needs_no_model(module: str) -> None:
    assert not needed(module).intersection(HEAVY)


def test_every_part_has_its_place() -> None:
    parts = {module.split(".")[1] for module in SOURCES if "." in module}
    assert parts - {"__main__"} == {*ORDER, *TEST_PARTS}


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("headstart.decoding.trees", "from headstart.engine import Engine"),
        ("headstart.decoding.trees", "def late():\n    from headstart import engine"),
        ("headstart.runtime.native", "import headstart.cli.main"),
        ("headstart.engine.cache", "from headstart.testing.toy_trunk import ToyTrunk"),
    ],
)
def test_an_import_the_other_way_is_caught(module: str, source: str) -> None:
    assert wrong_imports(module, source)


def test_what_comes_in_through_others_is_caught() -> None:
    assert needed("headstart.engine.loading") >= {"headstart._native", "headstart.checkpoint", "tokenizers"}
