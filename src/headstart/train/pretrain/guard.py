"""Steps that would harm: those whose loss or gradient is no number, or far above what it was.

What it was counts as long as the loss means the same: where other depths are trained or weigh otherwise, such as with
every part of a curriculum, losses are of another size by design, and the guard looks at how they lie from there on.

A refused step changes nothing, so where the gradient has grown by the weights themselves, and not by one batch, it
stays so until a step is taken. Scaled to its limit such a step harms nothing: after some that were refused it is.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Sequence
from typing import Any

from headstart.errors import HeadstartError

# steps whose median is compared with, and how many there must be before it is
_RECENT, _FEWEST = 64, 16


class SpikeGuard:
    """Judges steps one after the other.

    Attributes:
        num_skipped: steps that were refused, over the whole run.
    """

    def __init__(self, factor: float, max_skipped: int) -> None:
        """Nothing has been seen.

        Args:
            factor: of the recent median, above which a step is refused; 0 for no limit.
            max_skipped: steps that may be refused one after the other. If it is for their gradients alone, the next one
                is taken; else the run ends.
        """
        self.num_skipped = 0
        self._factor, self._max_skipped = factor, max_skipped
        self._in_a_row = 0
        self._recent: deque[tuple[float, float]] = deque(maxlen=_RECENT)
        self._weights: tuple[float, ...] = ()

    def passes(self, step: int, loss: float, gradient_norm: float, weights: Sequence[float] = ()) -> bool:
        """Whether a step may reach the weights.

        Args:
            step: its number, for the error.
            loss, gradient_norm: of the step.
            weights: of the depths that the loss is summed over.

        Raises:
            HeadstartError: too many in a row may not.
        """
        if tuple(weights) != self._weights:
            self._weights = tuple(weights)
            self._recent.clear()
        reason = self._reason(loss, gradient_norm)
        if reason and self._in_a_row == self._max_skipped and self._is_large_alone(loss, gradient_norm):
            self._recent.clear()
        elif reason:
            self.num_skipped += 1
            self._in_a_row += 1
            if self._in_a_row > self._max_skipped:
                raise HeadstartError(
                    f"Step {step}: {reason}. So it was for {self._in_a_row} steps, none of which reached the weights. "
                    "Training stops here; begin another run with a lower learning rate or a longer warm-up."
                )
            return False
        self._in_a_row = 0
        self._recent.append((loss, gradient_norm))
        return True

    def _is_large_alone(self, loss: float, gradient_norm: float) -> bool:
        """Whether nothing but the size of the gradient speaks against a step."""
        return math.isfinite(gradient_norm) and not self._reason(loss, 0.0)

    def _reason(self, loss: float, gradient_norm: float) -> str:
        if not math.isfinite(loss) or not math.isfinite(gradient_norm):
            return f"the loss is {loss} and the gradient's norm {gradient_norm}"
        if not self._factor or len(self._recent) < _FEWEST:
            return ""
        for index, (name, value) in enumerate((("loss", loss), ("gradient's norm", gradient_norm))):
            usual = statistics.median(pair[index] for pair in self._recent)
            if value > self._factor * usual:
                return f"the {name} is {value:.4g}, above {self._factor:g} times its recent median {usual:.4g}"
        return ""

    def state(self) -> dict[str, Any]:
        """As plain data, for a checkpoint."""
        return {
            "num_skipped": self.num_skipped,
            "in_a_row": self._in_a_row,
            "recent": [list(pair) for pair in self._recent],
            "weights": list(self._weights),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what `state` gave."""
        self.num_skipped, self._in_a_row = state["num_skipped"], state["in_a_row"]
        self._weights = tuple(state["weights"])
        self._recent = deque(((loss, norm) for loss, norm in state["recent"]), maxlen=_RECENT)
