"""The look of --help: two columns of plain text.

The reference in `docs/` is this text, and a terminal without colours shows it
whole. Rich's panels would also take longer to import than all the rest.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cyclopts.help import HelpEntry, HelpPanel
    from rich.console import Console, ConsoleOptions

WIDTH = 100
_LABEL_WIDTH = 28

# Defaults that say no more than "not given".
_SILENT_DEFAULTS = ("False", "()")


class HelpText:
    """Renders what cyclopts knows of a command (its protocol `HelpFormatter`)."""

    def render_usage(self, console: Console, options: ConsoleOptions, usage: Any) -> None:
        """The first line."""
        _print(console, f"Usage: {_plain(usage)}\n")

    def render_description(self, console: Console, options: ConsoleOptions, description: Any) -> None:
        """What the command does."""
        paragraphs = _plain(description).split("\n\n")
        _print(console, "\n\n".join(textwrap.fill(" ".join(text.split()), WIDTH) for text in paragraphs) + "\n")

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
        """A group of arguments, flags or verbs."""
        if panel.entries:
            _print(console, f"{_plain(panel.title)}:\n" + "".join(_entry(entry) for entry in panel.entries))


def _entry(entry: HelpEntry) -> str:
    label = ", ".join(entry.display_labels_with_metavar)
    text = " ".join(_plain(entry.description).split())
    if entry.default is not None and entry.default not in _SILENT_DEFAULTS:
        text += f" [{entry.default}]"
    lines = textwrap.wrap(text, WIDTH - _LABEL_WIDTH) or [""]
    if len(label) + 2 < _LABEL_WIDTH - 1:
        first, rest = f"  {label}".ljust(_LABEL_WIDTH) + lines[0], lines[1:]
    else:
        first, rest = f"  {label}", lines
    return "".join(f"{line}\n" for line in [first, *(" " * _LABEL_WIDTH + line for line in rest)])


def _plain(text: Any) -> str:
    """Cyclopts hands out strings, rich texts, and boxes around rich texts."""
    if text is None:
        return ""
    content = getattr(text, "primary_renderable", text)
    return str(getattr(content, "plain", content)).strip()


def _print(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
