"""What each position is to predict: the one builder of targets, for every depth, packed or not.

It takes the ids as they stand in the text. No function of this project takes labels that somebody
shifted before, so a mask can never be shifted apart from its labels. It knows nothing of models and losses.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headstart.errors import ConfigError

# the label of a position that predicts nothing; torch's own cross-entropy leaves it out as well
IGNORE_INDEX = -100


def future_targets(tokens: Tensor, documents: Tensor, supervised: Tensor, offset: int) -> tuple[Tensor, Tensor]:
    """The token `offset` places later, where the text has one to learn from.

        tokens      a b c | d e          offset 2
        targets     c . . | . .          a's document ends after c, d's after e

    Args:
        tokens: integers [T] or [B, T], token ids, not shifted.
        documents: integers of the same shape; a run of equal numbers is a document.
        supervised: bool of the same shape, true where a token is to be learnt *as a target*.
        offset: how many places later, at least 1; the next token is 1, a draft of depth j is 1 + j
            for a head that reads position t alone.

    Returns:
        targets: int64, same shape; `IGNORE_INDEX` where invalid.
        valid: bool, same shape; false if the target leaves the window or the document, or is not supervised.

    Raises:
        ConfigError: shapes or types do not agree, or the offset is below 1.
    """
    _require_alike(tokens, documents, supervised)
    if offset < 1:
        raise ConfigError(f"offset = {offset}: a target lies at least 1 token ahead. Give 1 for the next token.")
    window = tokens.shape[-1]
    targets = torch.full_like(tokens, IGNORE_INDEX, dtype=torch.int64)
    valid = torch.zeros_like(tokens, dtype=torch.bool)
    if offset >= window:
        return targets, valid
    runs = _runs(documents)
    inside = runs[..., offset:] == runs[..., :-offset]
    valid[..., :-offset] = inside & supervised[..., offset:]
    targets[..., :-offset] = tokens[..., offset:]
    return targets.masked_fill_(~valid, IGNORE_INDEX), valid


def position_in_document(documents: Tensor) -> Tensor:
    """How many tokens of its document stand before each token, int64 of the same shape [T] or [B, T].

    This is the position that rotary embeddings take, so that a packed document is run as if alone.
    """
    index = torch.arange(documents.shape[-1], device=documents.device).expand(documents.shape)
    starts = torch.ones_like(documents, dtype=torch.bool)
    starts[..., 1:] = documents[..., 1:] != documents[..., :-1]
    return index - index.where(starts, 0).cummax(dim=-1).values


def require_supervision(valid: Tensor, window: str) -> None:
    """Stop a run that would learn nothing and report a loss of 0.

    Args:
        valid: bool of any shape, from `future_targets`.
        window: names the batch in the error, such as "step 12".

    Raises:
        ConfigError: no position is valid.
    """
    if not bool(valid.any()):
        raise ConfigError(
            f"{window}: none of its {valid.numel()} positions has a supervised target, so it would teach nothing. "
            "At least one token, not a document's first, must be supervised: look at the text's supervised mask and "
            "its template, or take longer windows."
        )


def _runs(documents: Tensor) -> Tensor:
    """Number the runs of equal ids, so that an id that comes again later is another document."""
    changes = torch.zeros_like(documents, dtype=torch.int64)
    changes[..., 1:] = documents[..., 1:] != documents[..., :-1]
    return changes.cumsum(dim=-1)


def _require_alike(tokens: Tensor, documents: Tensor, supervised: Tensor) -> None:
    if not (tokens.shape == documents.shape == supervised.shape and tokens.dim() in (1, 2)):
        raise ConfigError(
            f"tokens {list(tokens.shape)}, documents {list(documents.shape)}, supervised {list(supervised.shape)}: "
            "all three must have one shape, [T] or [B, T]."
        )
    if supervised.dtype != torch.bool:
        raise ConfigError(f"supervised has type {supervised.dtype}: it must be bool. Compare it with 0 first.")
    if tokens.is_floating_point() or tokens.dtype == torch.bool:
        raise ConfigError(f"tokens have type {tokens.dtype}: they must be whole numbers.")
