"""What the engine reaches on this machine: one command, one table, one line of JSON.

    python benchmarks/engine.py --json

Nothing else should run meanwhile. Figures are medians; two sides of a ratio take turns within
this run. `v(R)` is the time of a pass over R rows in units of a pass over one.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import cyclopts
import numpy as np
from rich.console import Console
from rich.table import Table

from headstart import Engine, HeadstartError, SamplingParams, __version__
from headstart.checkpoint import Checkpoint, open_checkpoint, packaged_model
from headstart.engine import token_hash
from headstart.engine.cache import num_pages_for
from headstart.measure.machine import describe_machine
from headstart.measure.report import Spread
from headstart.runtime.native import NativeTrunk, load_trunk
from headstart.runtime.protocol import Rows
from headstart.testing.passes import rows_of_one
from prompts import CREATIVE, REPEATING

ROWS = (1, 2, 4, 8, 16, 32)
CONTEXT = 256
PREFILL = 512
NEW_TOKENS = 128
BATCH = 16
# in a process of its own, so that imports and the first pass count
FIRST_TOKEN = (
    "import sys, time; started = time.perf_counter()\n"
    "from headstart import Engine, SamplingParams\n"
    "engine = Engine.load(sys.argv[1], draft='none')\n"
    "engine.generate('The capital of France is', SamplingParams(max_tokens=1))\n"
    "print(time.perf_counter() - started)"
)


def time_passes(run: Callable[[], object], repeats: int) -> Spread:
    """Milliseconds of `run`."""
    run()
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        run()
        times.append((time.perf_counter() - started) * 1e3)
    return Spread.of(times)


def passes_after_context(trunk: NativeTrunk, row_counts: Sequence[int]) -> dict[int, Rows]:
    """Passes of some sizes after 256 tokens, which are in the cache."""
    most = max(row_counts)
    tokens = random_tokens(trunk, CONTEXT + most)
    trunk.make_cache(num_pages_for(CONTEXT + most))
    trunk.forward(rows_of_one(tokens[:CONTEXT], wanted=[CONTEXT - 1]))
    return {count: rows_of_one(tokens[CONTEXT : CONTEXT + count], committed=CONTEXT) for count in row_counts}


def random_tokens(trunk: NativeTrunk, count: int) -> list[int]:
    return np.random.default_rng(0).integers(0, trunk.vocab_size, count).tolist()


def cost_curve(trunk: NativeTrunk, repeats: int) -> dict[int, Spread]:
    """Time of a pass over R rows after 256 tokens of context, sizes taken in turn."""
    passes = passes_after_context(trunk, ROWS)
    times: dict[int, list[float]] = {count: [] for count in ROWS}
    for count in ROWS * (repeats + 1):
        started = time.perf_counter()
        trunk.forward(passes[count])
        times[count].append((time.perf_counter() - started) * 1e3)
    return {count: Spread.of(found[1:]) for count, found in times.items()}


def bandwidth_shares(trunk: NativeTrunk, repeats: int) -> dict[str, float]:
    """Weights read by plain steps, over what this machine can read in the same time."""
    step = passes_after_context(trunk, (1,))[1]
    shares: dict[str, list[float]] = {"step": [], "products": [], "read_gb_per_s": []}
    for _ in range(repeats):
        bandwidth = trunk.read_bandwidth(trunk.weight_bytes)
        trunk.forward(step)
        trunk.take_profile()
        started = time.perf_counter()
        for _ in range(10):
            trunk.forward(step)
        seconds = (time.perf_counter() - started) / 10
        products = trunk.take_profile().products_s / 10
        shares["step"].append(trunk.weight_bytes / seconds / bandwidth)
        shares["products"].append(trunk.weight_bytes / products / bandwidth)
        shares["read_gb_per_s"].append(bandwidth / 1e9)
    return {name: statistics.median(values) for name, values in shares.items()}


def prefill_speed(trunk: NativeTrunk, repeats: int) -> Spread:
    """Prompt tokens a second, 512 at once."""
    trunk.make_cache(num_pages_for(PREFILL))
    rows = rows_of_one(random_tokens(trunk, PREFILL), wanted=[PREFILL - 1])
    times = time_passes(lambda: trunk.forward(rows), repeats)
    return Spread(*(PREFILL / ms * 1e3 for ms in (times.median, times.highest, times.lowest)))


def plain_params(max_tokens: int = NEW_TOKENS) -> SamplingParams:
    return SamplingParams(max_tokens=max_tokens, ignore_eos=True)


def chat_prompt(engine: Engine, question: str) -> list[int]:
    return engine.encode_chat([{"role": "user", "content": question}])


def plain_speed(engine: Engine, trunk: NativeTrunk, repeats: int) -> tuple[Spread, float]:
    """Tokens a second at batch 1, and Python's share of a step: all that is not inside the native core."""
    prompt = chat_prompt(engine, CREATIVE["story"])
    engine.generate(prompt, plain_params(8))
    before_s = (engine.statistics.step_s, trunk.native_s)
    speeds = [engine.generate(prompt, plain_params()).tokens_per_s for _ in range(repeats)]
    step_s, native_s = engine.statistics.step_s - before_s[0], trunk.native_s - before_s[1]
    return Spread.of(speeds), 1 - native_s / step_s


def batch_speed(engine: Engine, repeats: int) -> Spread:
    """Tokens a second over 16 requests at once, their prompts included."""
    prompts = [chat_prompt(engine, f"Tell me fact number {n + 1} about the sea.") for n in range(BATCH)]
    speeds = []
    for _ in range(repeats):
        started = time.perf_counter()
        completions = engine.generate_many(prompts, plain_params())
        speeds.append(sum(len(c.token_ids) for c in completions) / (time.perf_counter() - started))
    return Spread.of(speeds)


def lookup_gain(plain: Engine, drafting: Engine, question: str, repeats: int) -> dict[str, Any]:
    """Generation speed with lookup over plain, taken in turn; the texts must be equal."""
    prompt = chat_prompt(plain, question)
    params = SamplingParams(max_tokens=2 * NEW_TOKENS)
    ratios, completion = [], None
    for _ in range(repeats + 1):
        reference, completion = plain.generate(prompt, params), drafting.generate(prompt, params)
        if token_hash(reference.token_ids) != token_hash(completion.token_ids):
            raise HeadstartError("Drafting changed the text. This must not happen: please report it.")
        ratios.append(reference.generation_s / completion.generation_s)
    assert completion is not None
    return {
        "speedup": Spread.of(ratios[1:]),  # the first round warms up and calibrates
        "mean_acceptance_length": completion.mean_acceptance_length,
        "tokens": len(completion.token_ids),
    }


def first_token_s(model: Path, repeats: int) -> Spread:
    """Seconds from the start of Python's imports to the first token, files in the page cache."""
    command = [sys.executable, "-c", FIRST_TOKEN, str(model)]
    runs = [float(subprocess.run(command, check=True, capture_output=True, text=True).stdout) for _ in range(repeats)]
    return Spread.of(runs)


def curve_rows(name: str, curve: dict[int, Spread]) -> list[tuple[str, str]]:
    rows = [(f"{name}, {count} rows, ms", str(spread)) for count, spread in curve.items()]
    return rows + [(f"{name}, v({count})", f"{curve[count].median / curve[1].median:.2f}") for count in (8, 16, 32)]


def measure(model: Path, threads: int | None, repeats: int) -> tuple[list[tuple[str, str]], dict[str, Any]]:
    """The table's rows and the JSON document."""
    checkpoint: Checkpoint = open_checkpoint(model)
    trunk = load_trunk(checkpoint, threads=threads)
    shares = bandwidth_shares(trunk, repeats)
    curve = cost_curve(trunk, repeats * 3)
    prefill = prefill_speed(trunk, repeats)
    instruction_set, num_threads = trunk.instruction_set, trunk.num_threads

    int8_curve = cost_curve(load_trunk(checkpoint, threads=threads, weights="int8-row"), repeats * 3)
    plain_engine = Engine(trunk, checkpoint.tokenizer(), drafter=None)
    plain, python_share = plain_speed(plain_engine, trunk, repeats)
    batch = batch_speed(plain_engine, max(1, repeats // 2))
    lookup_engine = Engine.load(model, draft="lookup", threads=threads)
    gains = {
        name: lookup_gain(plain_engine, lookup_engine, question, repeats)
        for name, question in {**REPEATING, **CREATIVE}.items()
    }
    load = first_token_s(model, max(3, repeats // 2))
    rows = [
        ("plain decoding, tokens/s", str(plain)),
        ("Python's share of a plain step", f"{python_share:.1%}"),
        *curve_rows("pass", curve),
        *curve_rows("pass, int8 rows", int8_curve),
        ("memory read, GB/s", f"{shares['read_gb_per_s']:.1f}"),
        ("share of it, matrix products", f"{shares['products']:.0%}"),
        ("share of it, whole step", f"{shares['step']:.0%}"),
        (f"prompt of {PREFILL}, tokens/s", str(prefill)),
        (f"{BATCH} requests at once, tokens/s", str(batch)),
        *((f"lookup / plain: {name}", str(gain["speedup"])) for name, gain in gains.items()),
        ("start to first token, s", str(load)),
    ]
    document = {
        "model": model.name,
        "version": __version__,
        "instruction_set": instruction_set,
        "threads": num_threads,
        "machine": describe_machine(),
        "cost_curve_ms": {str(count): spread.median for count, spread in curve.items()},
        "cost_curve_int8_row_ms": {str(count): spread.median for count, spread in int8_curve.items()},
        "plain_tokens_per_s": plain.median,
        "python_share": python_share,
        "prefill_tokens_per_s": prefill.median,
        "batch16_tokens_per_s": batch.median,
        "load_s": load.median,
        "bandwidth_share": shares["step"],
        "bandwidth_share_products": shares["products"],
        "read_gb_per_s": shares["read_gb_per_s"],
        "lookup_speedup": {name: gain["speedup"].median for name, gain in gains.items()},
        "lookup_mean_acceptance_length": {name: gain["mean_acceptance_length"] for name, gain in gains.items()},
    }
    return rows, document


def main(
    *,
    model: Path | None = None,
    threads: int | None = None,
    repeats: int = 7,
    json_output: Annotated[bool, cyclopts.Parameter("--json", negative="")] = False,
) -> None:
    """Measure and print; `--json` puts one JSON document on the last line."""
    rows, document = measure(model or packaged_model(), threads, repeats)
    table = Table("figure", "median (lowest to highest)", title=f"{document['model']}, {document['instruction_set']}")
    for row in rows:
        table.add_row(*row)
    Console(stderr=json_output).print(table)
    if json_output:
        print(json.dumps(document))


if __name__ == "__main__":
    app = cyclopts.App(help=__doc__, default_command=main)
    try:
        app()
    except HeadstartError as error:
        sys.exit(f"error: {error}")
