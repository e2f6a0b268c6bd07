"""Two sources that need no download: the source of Python's standard library, and documentation on this machine.

Both differ from machine to machine, so their versions and counts stand in the corpus' header.
"""

from __future__ import annotations

import ast
import importlib.util
import platform
import sysconfig
from collections.abc import Callable, Iterator
from importlib.metadata import distributions
from pathlib import Path

from headstart.train.corpus.files import tree_documents

_NOT_LIBRARY = frozenset({"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__", "pydoc_data"})

# what packages carry to be read, not lists, licences and logs
_PROSE = ("readme*", "faq*", "*faq", "howto*", "news*", "history*", "*.txt", "*.md", "*.rst")
_NOT_PROSE = (
    "*changelog*", "changes*", "copyright*", "license*", "copying*", "notice*", "thanks*", "authors*", "*.html",
    "top_level.txt", "entry_points.txt", "sources.txt", "cmakelists.txt", "*requirements*.txt", "vendor.txt",
)  # fmt: skip
_DOCUMENTATION, _LICENCES = Path("/usr/share/doc"), Path("/usr/share/common-licenses")


def stdlib_version() -> str:
    """Whose standard library it is."""
    return f"{platform.python_implementation()} {platform.python_version()}"


def stdlib_documents() -> Iterator[bytes]:
    """The modules of the running Python's standard library, but for its tests and for `pydoc_data`, which is prose."""
    root = Path(sysconfig.get_path("stdlib"))
    yield from tree_documents(root, ("*.py",), without_folders=_NOT_LIBRARY)


def _debian_documents() -> Iterator[bytes]:
    for folder, patterns in ((_DOCUMENTATION, _PROSE), (_LICENCES, ("*",))):
        if folder.is_dir():
            yield from tree_documents(folder, patterns, without=_NOT_PROSE)


def _package_documents() -> Iterator[bytes]:
    """What installed Python packages say of themselves: long descriptions and pages of prose."""
    for distribution in sorted(distributions(), key=lambda found: str(found.metadata["Name"])):
        description = distribution.metadata.json.get("description")
        if isinstance(description, str):
            yield description.encode("utf-8", "surrogatepass")
    for folder in sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}):
        yield from tree_documents(Path(folder), ("*.md", "*.rst", "*.txt"), without=_NOT_PROSE)


def _topic_documents() -> Iterator[bytes]:
    """The chapters of Python's language reference, which `help()` shows."""
    found = importlib.util.find_spec("pydoc_data.topics")
    if found is not None and found.origin is not None:
        for node in ast.walk(ast.parse(Path(found.origin).read_bytes())):
            if isinstance(node, ast.Dict):
                chapters = (value.value for value in node.values if isinstance(value, ast.Constant))
                yield from (chapter.encode() for chapter in chapters if isinstance(chapter, str))


DOCUMENTATION: tuple[tuple[str, str, Callable[[], Iterator[bytes]]], ...] = (
    ("debian", "documentation of this machine's packages, and common licences", _debian_documents),
    ("python-packages", "descriptions and pages of installed Python packages", _package_documents),
    ("python-topics", f"language reference of {stdlib_version()}", _topic_documents),
)
"""The parts of the source `docs`: name, what it is, and its documents."""
