"""How often heads guess what the trunk chose, and how likely they thought it, along texts that the trunk wrote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headstart.checkpoint import Checkpoint
from headstart.engine.cache import num_pages_for
from headstart.measure.doctor.patient import Patient
from headstart.measure.doctor.texts import WrittenText
from headstart.runtime.native import NativeTrunk, load_trunk
from headstart.runtime.native_heads import NativeHeads, load_heads
from headstart.runtime.protocol import Rows

# Guesses beyond the second say no more of these mistakes.
MOST_DEPTHS = 2

_CHUNK = 256


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Agreement:
    """What heads said at every place of some texts, with the true tokens given to them.

    Attributes:
        right: bool [places, depths], whether the likeliest guess is what the trunk chose.
        log_probability: float64 [places, depths], of what the trunk chose, in nats. A token that cannot be guessed, or
            is thought less likely than one of all tokens at random, counts as that.
        guesses: int64 [places], the likeliest at depth 1, by its place in the draft vocabulary.
        targets: int64 [places], what the trunk chose there.
    """

    right: NDArray[np.bool_]
    log_probability: NDArray[np.float64]
    guesses: NDArray[np.int64]
    targets: NDArray[np.int64]

    @property
    def shares(self) -> tuple[float, ...]:
        """How often the likeliest guess was right, of depth 1, 2."""
        return tuple(float(share) for share in self.right.mean(axis=0))


class Examiner:
    """Runs heads on their trunk, in whatever way is asked; keeps one trunk in memory, that of the last layers read."""

    def __init__(self, checkpoint: Checkpoint, threads: int | None = None) -> None:
        """Take the model's file; it is loaded when first needed.

        Args:
            checkpoint: of the trunk.
            threads: CPU threads; by default as many as the process may use at once.
        """
        self._checkpoint, self._threads = checkpoint, threads
        self._trunk: NativeTrunk | None = None

    def trunk(self, taps: tuple[int, ...]) -> NativeTrunk:
        """The trunk, keeping these layers for heads."""
        if self._trunk is None or self._trunk.tap_layers != taps:
            self._trunk = None  # first: two may not fit into memory
            self._trunk = load_trunk(self._checkpoint, threads=self._threads, taps=taps)
        return self._trunk

    def measure(self, patient: Patient, texts: Sequence[WrittenText]) -> Agreement:
        """What the heads say along the texts.

        Raises:
            CheckpointError: a weight is misshapen.
            CapacityError: the memory is not to be had.
        """
        trunk = self.trunk(patient.config.taps)
        heads = load_heads(trunk, self._checkpoint, patient.config, patient.weights, patient.vocabulary)
        parts = [_along(trunk, heads, patient, text) for text in texts]
        return Agreement(
            right=np.concatenate([part.right for part in parts]),
            log_probability=np.concatenate([part.log_probability for part in parts]),
            guesses=np.concatenate([part.guesses for part in parts]),
            targets=np.concatenate([part.targets for part in parts]),
        )


def _along(trunk: NativeTrunk, heads: NativeHeads, patient: Patient, text: WrittenText) -> Agreement:
    """One text. The places are the same for every shift, so that they can be compared one by one."""
    tokens = np.asarray(text.tokens, np.int32)
    pages = np.arange(num_pages_for(len(tokens)), dtype=np.int32)
    trunk.make_cache(len(pages))
    _run(trunk, tokens, pages)
    depths = min(MOST_DEPTHS, patient.config.depth)
    shown = _shifted(tokens, patient.token_shift)
    # the row that carries a token lies one slot before it for each token that it is early
    lead = max(patient.token_shift, 0)
    targets = np.arange(text.num_prompt, len(tokens) - MOST_DEPTHS + 1)
    rows_run = 0
    logits = []
    for target in targets:
        root = int(target) - 1 - lead
        continuation = shown[root + 1 : root + depths].tolist()
        logits.append(heads.logits(pages, shown[rows_run : root + 1], continuation, first=rows_run)[:depths])
        rows_run = root + 1
    return _judged(np.stack(logits), tokens[targets[:, None] + np.arange(depths)], patient, trunk.vocab_size)


def _judged(logits: NDArray[np.float32], chosen: NDArray[np.int32], patient: Patient, vocab_size: int) -> Agreement:
    """Logits [places, depths, draft vocabulary] beside the trunk's tokens [places, depths]."""
    places = chosen.astype(np.int64)
    if patient.vocabulary is not None:
        place_of = np.full(vocab_size, -1, np.int64)
        place_of[patient.vocabulary] = np.arange(len(patient.vocabulary))
        places = place_of[chosen]
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=2, keepdims=True)
    normalisers = np.log(np.exp(wide).sum(axis=2))
    said = np.take_along_axis(wide, np.maximum(places, 0)[..., None], axis=2)[..., 0] - normalisers
    at_random = -np.log(vocab_size)
    guesses = logits.argmax(axis=2)
    return Agreement(
        right=guesses == places,
        log_probability=np.where(places < 0, at_random, np.maximum(np.nan_to_num(said, nan=at_random), at_random)),
        guesses=guesses[:, 0].astype(np.int64),
        targets=chosen[:, 0].astype(np.int64),
    )


def _shifted(tokens: NDArray[np.int32], step: int) -> NDArray[np.int32]:
    """The token that stands at each position after a shift; ends are filled with the last one there is."""
    return tokens[np.clip(np.arange(len(tokens)) + step, 0, len(tokens) - 1)]


def _run(trunk: NativeTrunk, tokens: NDArray[np.int32], pages: NDArray[np.int32]) -> None:
    """Run a text, so that the trunk keeps what heads read."""
    for start in range(0, len(tokens), _CHUNK):
        part = tokens[start : start + _CHUNK]
        trunk.forward(
            Rows(
                tokens=part,
                positions=np.arange(start, start + len(part), dtype=np.int32),
                parents=np.arange(-1, len(part) - 1, dtype=np.int32),
                sequences=np.zeros(len(part), np.int32),
                page_tables=[pages],
                committed=np.array([start], np.int32),
                wanted=np.zeros(0, np.int32),
            )
        )
