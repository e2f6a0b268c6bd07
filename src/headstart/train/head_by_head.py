"""Several heads on one trunk, whose logits never exist together.

The order of Gloeckle et al.: the trunk runs forward once; then each head, the furthest first, runs forward, is
turned back at once down to the trunk's states, and frees what it held; at the end the trunk runs backward once
with the heads' gradients added up. The peak is that of the hungriest head instead of that of all.

It is for heads that all read the same states (parallel, Medusa). Heads that read each other are turned back
together; `headstart.train.chunked` keeps their logits from piling up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from headstart.errors import ConfigError

HeadLoss = Callable[[Tensor], Tensor]


def head_by_head(states: Tensor, heads: Sequence[HeadLoss], parameters: Sequence[Tensor]) -> Tensor:
    """The sum of the heads' losses; its backward pass hands out gradients that are already there.

    Call it inside the model's own forward: gradients of parameters travel through autograd as usual, so hooks of
    distributed wrappers fire once for each parameter, and a factor on the loss (a mean over micro-batches) counts.

    Example: `head_by_head(trunk(tokens), [lambda z, h=h: loss(unembed(h(z))) for h in heads], list(parameters))`

    Args:
        states: what all heads read, of any shape. The trunk is not entered if they need no gradient.
        heads: from states to a scalar loss, its weight included; the nearest first.
        parameters: every leaf that the heads read and that is to be trained, shared ones once.

    Returns:
        Scalar, differentiable (once).

    Raises:
        ConfigError: there are no heads, or one reads a trainable tensor that is not listed, which would silently
            go untrained, or a tensor is listed twice.

    Source: Gloeckle et al. 2404.19737, section 2, "Memory-efficient implementation".
    """
    if not heads:
        raise ConfigError("no heads: give at least one.")
    if len({id(parameter) for parameter in parameters}) != len(parameters):
        raise ConfigError("a parameter is listed twice, so its gradient would count twice. List shared ones once.")
    trainable = [parameter for parameter in parameters if parameter.requires_grad]
    if not torch.is_grad_enabled():
        return torch.stack([head(states) for head in heads]).sum()
    total: Tensor = _HeadByHead.apply(heads, states, *trainable)  # type: ignore[no-untyped-call]
    return total


class _HeadByHead(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, heads: Sequence[HeadLoss], states: Tensor, *trainable: Tensor) -> Tensor:
        # a leaf of its own: a head's backward pass ends here and does not enter the trunk
        leaf = states.detach().requires_grad_(states.requires_grad)
        wanted = [leaf, *trainable] if leaf.requires_grad else list(trainable)
        gradients: list[Tensor | None] = [None] * len(wanted)
        total = None
        for head in reversed(heads):
            with torch.enable_grad():
                loss = head(leaf)
            _require_listed(loss, wanted)
            if loss.requires_grad:
                _accumulate(gradients, list(torch.autograd.grad(loss, wanted, allow_unused=True)))
            total = loss.detach() if total is None else total + loss.detach()
            # or the graph, with its logits, would live until the next head has made its own
            del loss
        ctx.gradients = gradients if leaf.requires_grad else [None, *gradients]
        assert total is not None
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, total_gradient: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.gradients is None:
            raise RuntimeError("the gradients of these heads were given out already: run their forward pass again")
        gradients, ctx.gradients = ctx.gradients, None
        return None, *(None if gradient is None else gradient.mul_(total_gradient) for gradient in gradients)


def _accumulate(gradients: list[Tensor | None], new: list[Tensor | None]) -> None:
    """Add `new` and empty it on the way, so that of an unembedding's gradient no more than two copies exist."""
    while new:
        index = len(new) - 1
        gradient, so_far = new.pop(), gradients[index]
        if gradient is not None:
            # the first is copied: autograd may have given one storage to two tensors
            gradients[index] = gradient.clone() if so_far is None else so_far.add_(gradient)


def _require_listed(loss: Tensor, wanted: Sequence[Tensor]) -> None:
    listed = {id(tensor) for tensor in wanted}
    for leaf in _leaves(loss):
        if id(leaf) not in listed:
            raise ConfigError(
                f"a head reads a trainable tensor of shape {list(leaf.shape)} that is not among the parameters given, "
                "so it would get no gradient. List it, or set requires_grad to False."
            )


def _leaves(loss: Tensor) -> Iterator[Tensor]:
    """Trainable leaves that a loss depends on, read from its graph."""
    waiting = [loss.grad_fn]
    seen = set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        # a node that accumulates into a leaf holds it as `variable`
        leaf = getattr(node, "variable", None)
        if leaf is not None:
            yield leaf
        waiting += [following for following, _ in node.next_functions]
