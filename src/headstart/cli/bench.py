"""`headstart bench`: what drafting brings on one's own traffic."""

from __future__ import annotations

import hashlib
import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from headstart.cli import status
from headstart.cli.bench_flags import BenchFlags, ServerFlags, read_sides
from headstart.cli.flags import ModelName
from headstart.errors import ConfigError

if TYPE_CHECKING:
    from headstart.cli.bench_sides import OpenedSides
    from headstart.measure.bench import BenchSettings, Journal
    from headstart.measure.report import Report
    from headstart.measure.workload import Prompt

_FLAGS, _SERVERS = BenchFlags(), ServerFlags()

_SERVER_SIDES = ("none", "drafting")


def bench(
    model: ModelName | None = None,
    /,
    *,
    draft: Annotated[
        str | None,
        Parameter(
            help="Who guesses, side by side: of none, lookup, heads, heads:FILE, model:PATH and auto, with commas "
            "between. Plain decoding (none) is always measured. none,auto by default."
        ),
    ] = None,
    threads: Annotated[
        int | None, Parameter(help="CPU threads; by default as many as the process may use at once.")
    ] = None,
    weights: Annotated[
        str | None,
        Parameter(help="Compute with the file's own formats (stored), or convert: f32, bf16, int8, int8-row."),
    ] = None,
    servers: ServerFlags = _SERVERS,
    flags: BenchFlags = _FLAGS,
    json: Annotated[bool, Parameter(help="Print nothing but one JSON document.")] = False,
) -> int | None:
    """Measure what drafting brings: speed, waiting times, acceptance, and whether the text stayed the same.

    Plain decoding and each drafter answer the same prompts, in turn, for every number of requests at once and every
    length of context. Ctrl-C ends it early; what was measured is reported, and with --out the same command goes on.
    """
    servers.check(model)
    if servers.url is not None and not (draft is None and threads is None and weights is None):
        raise ConfigError("--draft, --threads and --weights are the server's own affair with --url. Leave them out.")
    if servers.url is not None and flags.cached_prompts:
        raise ConfigError(
            "--cached-prompts has no effect with --url: a server is told to keep prompts where it is started. Leave it "
            "out."
        )
    settings = flags.to_settings(_SERVER_SIDES if servers.url is not None else read_sides(draft or "none,auto"))
    prompts = flags.read_prompts()

    # late: they bring numpy and the native module, which --help can do without
    from headstart.cli.bench_sides import open_servers, open_sides
    from headstart.cli.results import print_json
    from headstart.cli.terminal import printable
    from headstart.measure.bench import Journal
    from headstart.measure.report import make_report, write_report

    if model is None:
        opened = open_servers(servers, settings, prompts, seed=flags.seed)
    else:
        opened = open_sides(model, settings, prompts, threads=threads, weights=weights or "stored", seed=flags.seed)
    subject = {**opened.subject, "prompts": _prompts_document(prompts), "settings": settings.to_json()}
    journal = Journal(flags.out, subject)
    is_complete = _run(opened, settings, journal)
    report = make_report(subject, {**opened.conditions, "command": _command()}, journal, is_complete=is_complete)
    paths = write_report(report, flags.out) if flags.out is not None else []
    if json:
        print_json(report.to_json())
    else:
        # categories come from files, which may hold anything
        lines = [*map(printable, _account(report)), *(f"Written: {path}" for path in paths)]
        print("\n".join(lines))
    if not is_complete:
        if flags.out is not None:
            print("Stopped; the same command goes on from here.", file=sys.stderr, flush=True)
        return status.INTERRUPTED
    return status.FAILURE if report.verdict.broken_sides else None


def _run(opened: OpenedSides, settings: BenchSettings, journal: Journal) -> bool:
    from headstart.cli.interrupt import Interrupt
    from headstart.cli.phases import PhaseProgress
    from headstart.measure.bench import Bench

    if not journal.is_new:
        print(f"Going on with a run: {len(journal.turns)} turns are there.", file=sys.stderr, flush=True)
    with Interrupt() as interrupt, PhaseProgress() as bars:
        run = Bench(
            opened.sides,
            opened.filled,
            settings,
            journal,
            show=lambda done, total, note: bars.show("Measuring", done, total, note),
            should_stop=lambda: interrupt.asked,
        )
        return run.run()


def _command() -> str:
    """What was typed, but for keys: reports are shown to others."""
    shown: list[str] = []
    for argument in sys.argv[1:]:
        follows_key = shown[-1:] == ["--api-key"]
        shown.append("..." if follows_key else "--api-key=..." if argument.startswith("--api-key=") else argument)
    return shlex.join(["headstart", *shown])


def _prompts_document(prompts: Sequence[Prompt]) -> dict[str, Any]:
    digest = hashlib.sha256(repr(prompts).encode("utf-8", "surrogatepass")).hexdigest()
    categories = Counter(prompt.category for prompt in prompts)
    return {"count": len(prompts), "categories": dict(categories), "digest": digest[:16]}


def _account(report: Report) -> list[str]:
    lines = []
    for cell in report.cells:
        lines.append(f"With {cell.key}:")
        for side in cell.sides:
            speed = "" if side.tokens_per_s is None else f"{side.tokens_per_s.median:8.1f} tokens/s"
            gain = "" if side.speedup is None else f"  {side.speedup.median:.2f} times plain speed"
            spread = "" if side.speedup is None else f" ({side.speedup.lowest:.2f} to {side.speedup.highest:.2f})"
            same = ""
            if side.num_compared:
                same = f"  {side.num_compared - len(side.different)} of {side.num_compared} texts the same"
            lines.append(f"  {side.label:16}{speed}{gain}{spread}{same}")
    return [*lines, "", report.verdict.sentence, report.verdict.would_change]
