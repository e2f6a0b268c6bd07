"""The optimisers of heads and of a trunk, and the learning rate over a run.

Heads have Muon for matrices and AdamW for norms and biases. Muon makes about
twice as much of a token as AdamW does here, and its cost, some products of the
matrices with themselves, is small beside a batch of thousands of tokens. A
trunk that is to stay near to where it was has AdamW, which leaves what a
gradient does not speak of as it is; Muon moves every direction alike. Both
from scratch have AdamW too, as those have whose results are to be compared.

Source: Jordan et al. 2024 (Muon); the scale of steps as in Liu et al. 2502.16982.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn, optim

_BETAS = (0.9, 0.95)


class _Optimisers:
    """Several optimisers as one."""

    def __init__(self, parts: Sequence[optim.Optimizer], learning_rate: float) -> None:
        self._parts, self._learning_rate = parts, learning_rate

    def step(self, share: float) -> None:
        """Move by the gradients, and clear them.

        Args:
            share: of the highest learning rate, see `schedule`.
        """
        for part in self._parts:
            for group in part.param_groups:
                group["lr"] = self._learning_rate * share
            part.step()
            part.zero_grad(set_to_none=True)

    def tensors(self) -> dict[str, Tensor]:
        """What it remembers, by name, for a checkpoint."""
        found: dict[str, Tensor] = {}
        for index, part in enumerate(self._parts):
            for number, entry in part.state_dict()["state"].items():
                for name, value in entry.items():
                    found[f"{index}.{number}.{name}"] = value
        return found

    def like(self, name: str) -> Tensor:
        """Zeros of the shape and place of a tensor that `tensors` may give."""
        index, number, memory = name.split(".", 2)
        parameters = [p for group in self._parts[int(index)].param_groups for p in group["params"]]
        # a count of steps is one number, all else is of the parameter's shape
        return torch.zeros(()) if memory == "step" else torch.zeros_like(parameters[int(number)].detach())

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take up what `tensors` gave."""
        for index, part in enumerate(self._parts):
            state = part.state_dict()
            entries: dict[int, dict[str, Tensor]] = {}
            for key, value in tensors.items():
                at, number, name = key.split(".", 2)
                if int(at) == index:
                    entries.setdefault(int(number), {})[name] = value.clone()
            part.load_state_dict({"state": entries, "param_groups": state["param_groups"]})


class HeadsOptimiser(_Optimisers):
    """Muon for matrices, AdamW for the rest."""

    def __init__(self, parameters: Iterable[nn.Parameter], learning_rate: float, weight_decay: float) -> None:
        """For parameters of any shape.

        Args:
            parameters: all that is trained.
            learning_rate: at its highest.
            weight_decay: of matrices.
        """
        parameters = list(parameters)
        matrices = [parameter for parameter in parameters if parameter.ndim == 2]
        vectors = [parameter for parameter in parameters if parameter.ndim != 2]
        parts: list[optim.Optimizer] = []
        if matrices:
            parts.append(
                optim.Muon(matrices, lr=learning_rate, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw")
            )
        if vectors:
            parts.append(optim.AdamW(vectors, lr=learning_rate, betas=_BETAS, weight_decay=0.0))
        super().__init__(parts, learning_rate)


class TrunkOptimiser(_Optimisers):
    """AdamW without decay, which would draw a finished model towards zero."""

    def __init__(self, parameters: Iterable[nn.Parameter], learning_rate: float) -> None:
        """For parameters of any shape.

        Args:
            parameters: all that is trained.
            learning_rate: at its highest.
        """
        super().__init__([optim.AdamW(parameters, lr=learning_rate, betas=_BETAS, weight_decay=0.0)], learning_rate)


class PretrainingOptimiser(_Optimisers):
    """AdamW, with decay of matrices alone, for a trunk and heads from scratch."""

    def __init__(self, parameters: Iterable[nn.Parameter], learning_rate: float, weight_decay: float) -> None:
        """For parameters of any shape; one without a gradient at a step stays as it is.

        Args:
            parameters: all that is trained.
            learning_rate: at its highest.
            weight_decay: of matrices.
        """
        parameters = list(parameters)
        groups = [
            {"params": [parameter for parameter in parameters if parameter.ndim == 2], "weight_decay": weight_decay},
            {"params": [parameter for parameter in parameters if parameter.ndim != 2], "weight_decay": 0.0},
        ]
        # fused: one pass over the memory of a step instead of a dozen
        super().__init__([optim.AdamW(groups, lr=learning_rate, betas=_BETAS, fused=True)], learning_rate)


def schedule(step: int, num_steps: int, warmup_steps: int, final_share: float = 0.02) -> float:
    """Share of the highest learning rate at a step: a linear rise, then a linear fall to the end."""
    rise = min(1.0, (step + 1) / max(1, warmup_steps))
    return rise * max(final_share, 1.0 - step / max(1, num_steps))
