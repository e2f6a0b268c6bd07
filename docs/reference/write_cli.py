"""Writes cli.md beside it from what `--help` says; `--check` only says whether it is up to date."""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path

from headstart.cli.main import VERBS, main

PAGE = Path(__file__).with_name("cli.md")

_HEAD = """# The command line

<!-- Written by docs/reference/write_cli.py from --help; do not edit. -->

Results go to stdout, progress and accounts to stderr; `--json` prints one JSON document on stdout's last line and
nothing else (`chat`: one a turn). The exit status is 0, 1 for a failure, 2 for wrong usage, 130 after Ctrl-C, 141 if
nobody reads stdout any more; `check` has one more, 3. A failure is one line on stderr; `HEADSTART_DEBUG=1` adds where
it arose. `NO_COLOR=1` turns colours off. `HEADSTART_ISA` names the instruction set to compute with (`amx`,
`avx512vnni`, `avx2` or `portable`; the best one by default).

Every flag can also be set by an environment variable (`--max-tokens 64` by `HEADSTART_MAX_TOKENS=64`, several values
as a JSON list: `HEADSTART_STOP='["###", "User:"]'`), and where there is `--config`, in a TOML file that it or
`HEADSTART_CONFIG` names. A flag wins over the environment, the environment over the file. An unknown key in the file is
an error; an unknown variable is not, since nobody can tell whose it is:

```toml
[generate]
max_tokens = 64
stop = ["###"]
```
"""


def render() -> str:
    """The page."""
    sections = [_HEAD, _section("headstart", ["--help"])]
    sections += [_section(f"headstart {verb}", [verb, "--help"]) for verb in VERBS]
    return "\n".join(sections)


def _section(title: str, arguments: list[str]) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as output:
        main(arguments)
    return f"## {title}\n\n```text\n{output.getvalue().strip()}\n```\n"


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        sys.exit(0 if PAGE.read_text(encoding="utf-8") == render() else f"{PAGE} is out of date; run {__file__}")
    PAGE.write_text(render(), encoding="utf-8")
