"""Whether `headstart check` names the faults of a server of a real model: seven wrong servers, and an honest one.

    python benchmarks/check_faults.py --json

The model is served as textbooks have it (`headstart.testing.speculative_toy`), with weights of one format, and is held
to the same model with weights of another, so that the two differ by rounding as two engines do. Guesses are what
followed the last two tokens when they were last written, or those of a model that is nearly the same. The exit status
is 1 unless every fault is named, and nothing else.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from json import dumps
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import cyclopts
import numpy as np
from numpy.typing import NDArray

from headstart import __version__
from headstart.checkpoint import open_checkpoint, packaged_model
from headstart.measure.check import Certificate, ServerCheckConfig, chance_texts, check_against_model
from headstart.measure.machine import describe_machine
from headstart.measure.openai_client import OpenAIClient
from headstart.measure.workload import shipped_prompts, take_evenly
from headstart.runtime.native import NativeTrunk, WeightFormat, load_trunk
from headstart.runtime.protocol import Rows, Trunk
from headstart.testing.speculative_toy import WriterFault
from headstart.testing.toy_server import ServerFault, ToyServerConfig, serve_toy

FAULTS: tuple[ServerFault, ...] = (*get_args(WriterFault), "stop string missed", "seed shared")
HONEST = "none"
# Probability of the guess, and what the rest of the vocabulary shares.
_SURE = 0.8
_LOOKED_UP = 2
# Standard deviation of what is added to a blurred model's logits.
_BLUR = 1.0

app = cyclopts.App(name="check_faults", help=__doc__, help_format="plaintext")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One server.

    Attributes:
        planted: what is wrong with it.
        named: what was found.
        seconds: that the check took.
        sentence: the verdict.
    """

    planted: str
    named: tuple[str, ...]
    seconds: float
    sentence: str

    @property
    def is_right(self) -> bool:
        """Whether what was named is what was planted."""
        return self.named == (() if self.planted == HONEST else (self.planted,))


class BlurredTrunk:
    """A model that guesses nearly what another writes: its logits, each off by chance."""

    def __init__(self, trunk: NativeTrunk) -> None:
        """Take the model; nobody else may run it."""
        self.vocab_size, self.max_context = trunk.vocab_size, trunk.max_context
        self.make_cache, self.forward = trunk.make_cache, trunk.forward
        self._trunk = trunk
        self._source = np.random.default_rng(0)

    def logits(self, wanted_index: int) -> NDArray[np.float32]:
        """Its logits after one place."""
        exact = self._trunk.logits(wanted_index)
        return exact + self._source.normal(0.0, _BLUR, len(exact)).astype(np.float32)


class LookupTrunk:
    """Guesses what followed the last tokens of a text when they were last there: a drafter in a trunk's clothes.

    It runs one text at a time. What is not guessed shares the rest of the probability evenly.
    """

    def __init__(self, trunk: Trunk) -> None:
        """Take vocabulary and context of another."""
        self.vocab_size, self.max_context = trunk.vocab_size, trunk.max_context
        self._text: list[int] = []
        self._wanted: list[int] = []

    def make_cache(self, num_pages: int) -> None:
        """Forget the text."""
        self._text = []

    def forward(self, rows: Rows) -> None:
        """Read on."""
        self._text[int(rows.committed[0]) :] = rows.tokens.tolist()
        self._wanted = rows.positions[rows.wanted].tolist()

    def logits(self, wanted_index: int) -> NDArray[np.float32]:
        """The guess after one place."""
        share = np.full(self.vocab_size, (1.0 - _SURE) / self.vocab_size)
        seen = self._text[: self._wanted[wanted_index] + 1]
        end = seen[-_LOOKED_UP:]
        for start in range(len(seen) - _LOOKED_UP - 1, -1, -1):
            if seen[start : start + _LOOKED_UP] == end:
                share[seen[start + _LOOKED_UP]] += _SURE
                break
        result: NDArray[np.float32] = np.log(share / share.sum()).astype(np.float32)
        return result


@app.default
def main(
    *,
    faults: Annotated[str, cyclopts.Parameter(help="Which, with commas between; none is an honest server.")] = ",".join(
        (HONEST, *FAULTS)
    ),
    model: Annotated[Path | None, cyclopts.Parameter(help="The model; the packaged one by default.")] = None,
    served: Annotated[WeightFormat, cyclopts.Parameter(help="Weights of the server.")] = "f32",
    held_to: Annotated[WeightFormat, cyclopts.Parameter(help="Weights of the model it is held to.")] = "stored",
    drafter: Annotated[Literal["lookup", "model"], cyclopts.Parameter(help="Who guesses for the server.")] = "lookup",
    threads: int | None = None,
    limit: Annotated[int, cyclopts.Parameter(help="Prompts.")] = 8,
    max_tokens: Annotated[int, cyclopts.Parameter(help="Tokens of a greedy answer.")] = 48,
    samples: Annotated[int, cyclopts.Parameter(help="Texts drawn at most.")] = 400,
    seed: int = 0,
    json: Annotated[bool, cyclopts.Parameter(help="Print a JSON document last.")] = False,
) -> int:
    """Plant each fault, and check."""
    path = model or packaged_model()
    checkpoint = open_checkpoint(str(path))
    tokenizer = checkpoint.tokenizer()
    server_trunk, own_trunk = (load_trunk(checkpoint, threads=threads, weights=kind) for kind in (served, held_to))
    draft_trunk: Any = LookupTrunk(own_trunk)
    if drafter == "model":
        draft_trunk = BlurredTrunk(load_trunk(checkpoint, threads=threads, weights=held_to))
    prompts = take_evenly(shipped_prompts(), limit)
    asked = [tokenizer.encode_chat([{"role": "user", "content": prompt.messages[-1][1]}]) for prompt in prompts]
    probes = [tokenizer.encode(text) for text in chance_texts(seed)]
    config = ServerCheckConfig(
        max_tokens=max_tokens,
        num_sampled=samples,
        num_layers=own_trunk.config.num_layers,
        activation_bits=8,
        seed=seed,
    )
    rows: list[Row] = []
    for planted in faults.split(","):
        fault: Any = None if planted == HONEST else planted
        started = time.perf_counter()
        with serve_toy(
            ToyServerConfig(fault=fault, seed=seed, tells_counters=True),
            trunk=server_trunk,
            draft_trunk=draft_trunk,
            tokenizer=tokenizer,
        ) as url:
            findings = check_against_model(OpenAIClient(url), own_trunk, tokenizer, asked, config, probes=probes)
        certificate = Certificate(subject=url, findings=findings, context={}, made_at="")
        row = Row(
            planted=planted,
            named=tuple(found.kind for found in certificate.faults),
            seconds=time.perf_counter() - started,
            sentence=certificate.sentence,
        )
        rows.append(row)
        print(f"{planted:30} {'right' if row.is_right else 'WRONG':6} {row.seconds:6.0f} s  {row.sentence}", flush=True)
    if json:
        print(dumps(_document(rows, config, path, {"served": served, "held_to": held_to, "drafter": drafter})))
    return 0 if all(row.is_right for row in rows) else 1


def _document(rows: Sequence[Row], config: ServerCheckConfig, path: Path, sides: dict[str, str]) -> dict[str, Any]:
    return {
        "all_right": all(row.is_right for row in rows),
        "rows": [asdict(row) for row in rows],
        "settings": {**config.to_json(), **sides},
        "environment": {"headstart": __version__, "model": path.name, "machine": describe_machine()},
    }


if __name__ == "__main__":
    sys.exit(app())
