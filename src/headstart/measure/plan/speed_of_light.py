"""How many guesses a round can keep at best, whoever drafts: only the logarithm of the rows counts."""

from __future__ import annotations

import math

from headstart.errors import ConfigError


def most_kept_guesses(rows: int, entropy: float, second_log_moment: float) -> float:
    """The leading term of the bound on expected guesses that are kept; a constant beside it is left out.

    No deterministic choice of a tree of `rows` candidates does better, even one that knows the trunk's distributions.

    Source: Pankratov and Alistarh 2512.11718: E[X] <= (mu + mu_2) log(P) / mu^2 + O(1).

    Args:
        rows: P, candidates that a pass can check, at least 1.
        entropy: mu, mean over the text of -sum p log p of the trunk's distribution, in nats.
        second_log_moment: mu_2, mean of sum p log^2 p, likewise. Never below entropy squared.

    Raises:
        ConfigError: a value is out of its range.
    """
    if rows < 1:
        raise ConfigError(f"rows = {rows}: it must be at least 1.")
    if not (math.isfinite(entropy) and entropy > 0.0):
        raise ConfigError(
            f"entropy = {entropy}: it must be a positive number of nats. With none, nothing is uncertain."
        )
    if not (math.isfinite(second_log_moment) and second_log_moment >= entropy**2):
        raise ConfigError(
            f"second log-moment = {second_log_moment}: it must be at least the entropy squared, {entropy**2:g}. It is "
            "the mean of sum p log^2 p, in nats squared."
        )
    # every token takes a row
    return min(float(rows), (entropy + second_log_moment) * math.log(rows) / entropy**2)
