"""A graft's taps: what the model's layers say of the text, taken from where they lie or read now."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from pathlib import Path

from headstart.checkpoint import Checkpoint
from headstart.runtime.native import NativeTrunk
from headstart.train.phases import Reporter
from headstart.train.taps import TapCache, TapReader, TrunkHead, num_read
from headstart.train.text_shard import Document

TAPS_NAME = "taps"


def read_taps(
    runs: Sequence[Path],
    documents: Sequence[Document],
    checkpoint: Checkpoint,
    trunk: NativeTrunk,
    trunk_head: TrunkHead,
    report: Reporter,
) -> TapCache:
    """All that the layers of a trunk say of a text.

    Args:
        runs: folders whose taps are taken if they are these, and whole; if none has them, they are read into the last
            one's.
        documents: of the text.
        checkpoint: of the trunk.
        trunk: loaded with the layers that are to be read; its cache is taken.
        trunk_head: of the trunk.
        report: told of each document that is read.

    Raises:
        StoppedError: the run is to stop.
        HeadstartError: as `TapCache`.
    """
    layers = list(trunk.tap_layers)
    key = hashlib.blake2b(f"{checkpoint.digest()} {layers}".encode(), digest_size=16).hexdigest()
    reader = TapReader(trunk, max(len(document.tokens) for document in documents))
    width = len(trunk_head.final_norm) * len(layers)
    cache = TapCache(_folder(runs, documents, key), documents, reader, trunk_head, width, key)
    begun, tokens = time.monotonic(), 0
    while cache.num_read < len(documents):
        tokens += cache.read_next()
        rate = tokens / (time.monotonic() - begun)
        report.tell("reading", cache.num_read, len(documents), f"{rate:.0f} tokens/s")
    return cache


def _folder(runs: Sequence[Path], documents: Sequence[Document], key: str) -> Path:
    *others, own = (run / TAPS_NAME for run in runs)
    return next((folder for folder in others if num_read(folder, documents, key) == len(documents)), own)
