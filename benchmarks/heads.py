"""What trained heads are worth on this machine: guesses that are right, what they cost, what they save.

    python benchmarks/heads.py --json --data FOLDER --llama-cpp ~/peers/llama-cpp/bin/python

Nothing else should run meanwhile. Acceptance is of heads alone, with at most 16 rows a round; speed is of
`--draft auto`. Sides of a ratio take turns within this run. Every drafted text is held against the plain one.
FOLDER has spec_bench.jsonl, humaneval.jsonl and gsm8k.jsonl: questions that the heads were not trained on.
"""

from __future__ import annotations

import json
import platform
import shlex
import signal
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import cyclopts
import numpy
import tokenizers
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import headstart
from head_figures.engines import BATCH, MAX_NODES, Engines
from head_figures.measurement import ROUNDS, ROUNDS_TOGETHER, SAMPLED_EVERY, SPEED_PROMPTS, Measurement, Settings
from head_figures.report import print_table
from head_figures.workload import Question, make_prompt, read_questions
from headstart.checkpoint import packaged_model
from headstart.errors import ConfigError, HeadstartError
from headstart.measure.machine import describe_machine
from peer_workers.process import FOLDER, WorkerFailureError, WorkerProcess

DATA_VARIABLE = "HEADSTART_BENCHMARK_DATA"
DATA = Path(__file__).parent / "data"
PEER_SCRIPT = FOLDER / "llama_cpp_worker.py"


def measure(settings: Settings) -> tuple[dict[str, Any], int]:
    """Load and measure.

    Returns:
        The document, and the exit status. If the run is ended early, by the user or by a failure, the document has
        what was measured until then.

    Raises:
        HeadstartError, WorkerFailureError: what is asked for cannot be loaded.
    """
    machine = describe_machine()
    questions = read_questions(settings.data, settings.limit)
    engines = Engines.load(settings.model, settings.heads, settings.threads)
    with ExitStack() as stack:
        peer, peer_version = None, None
        if settings.llama_cpp is not None:
            peer = stack.enter_context(WorkerProcess(settings.llama_cpp, PEER_SCRIPT))
            peer_version = _load_peer(peer, settings, engines, questions)
        progress = stack.enter_context(_progress())
        measurement = Measurement(settings, engines, questions, peer, progress)
        ended_early, status = None, 0
        try:
            measurement.run()
        except KeyboardInterrupt:
            ended_early, status = "interrupted", 130
        except (HeadstartError, WorkerFailureError) as failure:
            ended_early, status = str(failure), 1
    if measurement.figures.identity.holds is False:
        status = 1
    document = {
        **measurement.figures.document(),
        "ended_early": ended_early,
        "settings": _describe(settings, engines, questions),
        "versions": {**_versions(), "llama_cpp": peer_version},
        "machine": machine,
        "command": shlex.join(["python", *sys.orig_argv[1:]]),
    }
    return document, status


def _load_peer(peer: WorkerProcess, settings: Settings, engines: Engines, questions: Sequence[Question]) -> str:
    """Load llama.cpp with room for the longest prompt; its version."""
    tokenizer = engines.plain.tokenizer
    longest = max(len(make_prompt(tokenizer, question).token_ids) for question in questions)
    about = peer.ask(
        "load", model=str(settings.model.resolve()), threads=engines.parts.trunk.num_threads,
        context=longest + settings.max_tokens, weights_folder=None,
    )  # fmt: skip
    peer.pause()
    return str(about["version"])


def _describe(settings: Settings, engines: Engines, questions: Sequence[Question]) -> dict[str, Any]:
    """What one needs to get the same again."""
    parts = engines.parts
    assert parts.heads is not None
    header = parts.heads.file.header
    return {
        "model": {"name": settings.model.name, "digest": parts.checkpoint.digest()},
        "heads": {
            "name": parts.heads.file.path.name, "config": dict(header.heads), "recipe": dict(header.recipe),
            "notes": parts.heads.notes,
        },
        "threads": parts.trunk.num_threads,
        "instruction_set": parts.trunk.instruction_set,
        "questions": dict(Counter(question.category for question in questions)),
        "turns": "all turns of a conversation, with the model's own plain answers; first turns for speed",
        "limit": settings.limit,
        "max_tokens": settings.max_tokens,
        "acceptance": {
            "drafter": "heads", "policy": "always", "rows_a_round": MAX_NODES + 1, "batch": 1,
            "temperature_of_sampled": settings.temperature, "seeds": "0, 1, ... by prompt",
            "sampled": f"every prompt of {SAMPLED_EVERY}",
        },
        "speed": {
            "drafter": "lookup+heads", "policy": "measured", "rounds": ROUNDS, "prompts": SPEED_PROMPTS, "batch": BATCH,
            "rounds_together": ROUNDS_TOGETHER,
        },
    }  # fmt: skip


def _versions() -> dict[str, str]:
    return {
        "headstart": headstart.__version__,
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "tokenizers": tokenizers.__version__,
    }


def _progress() -> Progress:
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    return Progress(*columns, console=Console(stderr=True))


app = cyclopts.App(name="heads", help=__doc__, help_format="plaintext")


@app.default
def main(
    *,
    model: Path | None = None,
    heads: Path | None = None,
    data: Annotated[Path, cyclopts.Parameter(env_var=DATA_VARIABLE)] = DATA,
    limit: int | None = None,
    max_tokens: int = 256,
    temperature: float = 0.7,
    threads: int | None = None,
    llama_cpp: Path | None = None,
    only_acceptance: Annotated[bool, cyclopts.Parameter(negative="")] = False,
    as_json: Annotated[bool, cyclopts.Parameter(name="--json", negative="")] = False,
) -> int:
    """Measure and print.

    Args:
        model: GGUF file; the packaged SmolLM2-135M-Instruct by default.
        heads: heads file; by default the one beside the model, or that ships.
        data: folder with the questions.
        limit: questions of each file at most, taken evenly, for a quick run.
        max_tokens: of an answer.
        temperature: of the texts that are sampled.
        threads: CPU threads of each engine; by default as many as the process may use at once.
        llama_cpp: Python of an environment with llama-cpp-python, to compare speeds with.
        only_acceptance: time nothing; other programs may run meanwhile.
        as_json: end with one JSON document on the last line.
    """
    settings = Settings(
        model=model or packaged_model(), heads=heads, data=data, limit=limit, max_tokens=max_tokens,
        temperature=temperature, threads=threads, llama_cpp=llama_cpp, only_acceptance=only_acceptance,
    )  # fmt: skip
    document, status = measure(settings)
    print_table(document, Console(stderr=as_json))
    if as_json:
        print(json.dumps(document))
    return status


def run(arguments: Sequence[str] | None = None) -> int:
    """Run, with the failures that a user can act on as text; the exit status."""
    try:
        status = app(arguments, result_action="return_value")
    except (HeadstartError, WorkerFailureError) as failure:
        print(f"heads: {failure}", file=sys.stderr)
        return 2 if isinstance(failure, ConfigError) else 1
    except KeyboardInterrupt:  # before anything was measured
        return 130
    return status if isinstance(status, int) else 0


if __name__ == "__main__":
    # by default SIGTERM skips all clean-up, and would leave a paused worker behind
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(run())
