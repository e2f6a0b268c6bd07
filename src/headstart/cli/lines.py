"""What a user types, or what comes through a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress

from headstart.errors import ConfigError


def is_interactive() -> bool:
    """Whether a person types and reads, rather than a program."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def read_text() -> str:
    """All of stdin.

    Raises:
        ConfigError: it is not UTF-8.
    """
    return _decode(sys.stdin.buffer.read(), "The prompt on stdin")


def read_lines(prompt: str) -> Iterator[str]:
    """The lines of stdin without their ends, until there are no more.

    Args:
        prompt: shown before each line if a person types.

    Raises:
        ConfigError: a line from a pipe is not UTF-8.
    """
    return _typed_lines(prompt) if is_interactive() else _piped_lines()


def _typed_lines(prompt: str) -> Iterator[str]:
    with suppress(ImportError):  # not on every platform
        import readline  # noqa: F401 - gives input() its editing keys
    while True:
        try:
            yield input(prompt)
        except EOFError:
            print()
            return
        except KeyboardInterrupt:
            print("\n(Ctrl-D or /quit leaves.)")


def _piped_lines() -> Iterator[str]:
    for number, raw in enumerate(sys.stdin.buffer, 1):
        yield _decode(raw, f"Line {number} on stdin").rstrip("\r\n")


def _decode(raw: bytes, what: str) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{what} is not UTF-8: byte {raw[error.start]:#04x} at offset {error.start}. "
            "Convert it, for instance with iconv."
        ) from None
