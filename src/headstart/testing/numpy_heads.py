"""Heads in float64, with the text's own tokens fed in at every depth: the oracle for heads that run elsewhere.

Rows and states are counted as `headstart.architectures.heads` counts them: row t
carries token t, reads the state of token t - 1, and guesses token t + 1 at every
depth of recurrent kinds, token t + depth of others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from headstart.architectures.heads import HeadsConfig, heads_program
from headstart.architectures.reading import read_config
from headstart.checkpoint import Checkpoint
from headstart.testing.numpy_runtime import Floats, RowsSeen, reference_taps, reference_weights, run_program


def borrowed_weights(checkpoint: Checkpoint, vocabulary: NDArray[np.int32] | None) -> dict[str, Floats]:
    """What heads take from a trunk, by the names of their programs, in float64."""
    trunk = reference_weights(checkpoint)
    unembedding = trunk.get("unembedding", trunk["embedding"])
    return {
        "trunk.embedding": trunk["embedding"],
        "trunk.final_norm": trunk["final_norm"],
        "trunk.unembedding": unembedding if vocabulary is None else unembedding[vocabulary],
    }


def reference_heads_logits(
    checkpoint: Checkpoint,
    config: HeadsConfig,
    weights: Mapping[str, NDArray[np.floating]],
    vocabulary: NDArray[np.int32] | None,
    tokens: Sequence[int],
    depth: int | None = None,
) -> Floats:
    """Logits [depth, T, V] of heads on a checkpoint's model, for a text.

    Row t of depth j of an unrolled module ends a chain that begins, at depth 1, in row t - j + 1: it sees the
    depth-1 keys up to there, and one key of each depth after it. Rows before t = j - 1 end no chain of a recurrent
    kind: NaN.

    Args:
        checkpoint: the opened model of the trunk.
        config: of the heads.
        weights: the heads' own, by name.
        vocabulary: int32 [V], ids that can be guessed, if they are fewer than the trunk's.
        tokens: the text.
        depth: how deep; by default what the config says.
    """
    _, trunk = read_config(checkpoint)
    program = heads_program(config, trunk)
    own = {name: np.asarray(values, np.float64) for name, values in weights.items()}
    own |= borrowed_weights(checkpoint, vocabulary)
    num_rows = len(tokens)
    row = np.arange(num_rows)
    causal = row <= row[:, None]  # [T, T]
    kept = {0: reference_taps(checkpoint, tokens, config.taps)}
    past: dict[int, tuple[Floats, Floats]] = {}
    logits = []
    for level in range(1, (depth or config.depth) + 1):
        stage = program.stage(level)
        goes_on = program.recurrent and not stage.on_text
        behind = level - 1 if goes_on else 0
        # the depth-1 keys, then those of depths 2 ... level, each of which stands one row nearer
        chains = [row == row[:, None] - level + later for later in range(2, level + 1)] if goes_on else []
        visible = np.concatenate([row <= row[:, None] - behind, *chains], axis=1) if goes_on else causal
        visible = visible | (np.arange(visible.shape[1]) == 0) * (row < behind)[:, None]  # or they would see nothing
        before = kept[stage.reads]
        states = np.concatenate([np.zeros((1, before.shape[1])), before[:-1]])
        rows = RowsSeen(np.asarray(tokens), row, visible, states, past if goes_on else {})
        outcome = run_program(stage.program, own, trunk.rotary, rows)
        past = outcome.stored
        if stage.writes is not None:
            kept[stage.writes] = outcome.kept
        follows_none = program.recurrent & (row < level - 1)
        logits.append(np.where(follows_none[:, None], np.nan, outcome.logits))
    return np.stack(logits)
