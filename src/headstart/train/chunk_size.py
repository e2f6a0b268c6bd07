"""How many rows of a text have their logits at once."""

from __future__ import annotations

# [256, 8192] float32 is 8 MiB: some passes over it stay in the cache, and products are long enough to run at full speed
_LEAST_ROWS = 256

# a chunk has a price of its own, some 0.3 ms: of a small vocabulary more rows share it, as many as a core's cache holds
_CACHED_BYTES = 1 << 20
_FLOAT_BYTES = 4


def rows_at_once(vocab_size: int) -> int:
    """Rows of a chunk.

    Args:
        vocab_size: logits of a row.
    """
    return max(_LEAST_ROWS, _CACHED_BYTES // (_FLOAT_BYTES * vocab_size))
