"""The processes that train together: one alone, or those that torchrun has started.

Weights are sharded over them by PyTorch's FSDP2, a trunk's blocks each by itself and all that the heads share in one
group. Every process runs its own windows of a step; means are over the windows of all.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta

import torch
from torch import Tensor, distributed
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from headstart.errors import ConfigError, UnsupportedError
from headstart.train.pretrain.model import PretrainModel

# the others wait while the first writes a model and measures it
_PATIENCE = timedelta(hours=2)


class Team:
    """Processes that do the same at the same time, each with its part of the weights and of the text.

    All of them make the same calls in the same order, but for what `leads` guards.

    Attributes:
        rank, size: which process this is, and of how many.
        device: that it trains on.
    """

    def __init__(self, device: str) -> None:
        """Join the processes that torchrun has started, if it has.

        Args:
            device: "cpu", "cuda", or "auto" for cuda if there is one.

        Raises:
            ConfigError: as `rank_and_size`.
            UnsupportedError: there is no such device.
        """
        kind = _kind_of(device)
        self.rank, self.size = rank_and_size()
        self.device = torch.device(kind)
        self._mesh: DeviceMesh | None = None
        if self.size == 1:
            return
        if kind == "cuda":
            self.device = torch.device(kind, int(os.environ["LOCAL_RANK"]))
            torch.cuda.set_device(self.device)
        distributed.init_process_group("nccl" if kind == "cuda" else "gloo", timeout=_PATIENCE)
        self._mesh = init_device_mesh(kind, (self.size,))

    @property
    def leads(self) -> bool:
        """Whether this process writes and talks for all."""
        return self.rank == 0

    def place(self, model: PretrainModel) -> PretrainModel:
        """The model on this process's device, its weights sharded if there are others."""
        model = model.to(self.device)
        if self._mesh is not None:
            for block in model.trunk.blocks:
                fully_shard(block, mesh=self._mesh)
            fully_shard(model, mesh=self._mesh)
        return model

    def settle(self, model: PretrainModel) -> None:
        """After a pass without a backward pass, which would have let go of what was gathered for it."""
        if isinstance(model, FSDPModule):
            model.reshard()

    @property
    def loss_factor(self) -> float:
        """On a process's loss: gradients are averaged over processes, and are to be summed."""
        return float(self.size)

    def sum(self, values: Tensor) -> Tensor:
        """Added up over all processes; small, on any device."""
        if self._mesh is None:
            return values
        total = values.to(self.device)
        distributed.all_reduce(total)
        return total.to(values.device)

    def agree(self, *values: float) -> list[float]:
        """What the leading process says."""
        if self._mesh is None:
            return list(values)
        said = torch.tensor(values, dtype=torch.float64, device=self.device)
        distributed.broadcast(said, 0)
        return [float(value) for value in said.tolist()]

    def gather(self, found: Mapping[str, str]) -> dict[str, str]:
        """What all processes have found, put together."""
        if self._mesh is None:
            return dict(found)
        parts: list[Mapping[str, str]] = [{}] * self.size
        distributed.all_gather_object(parts, dict(found))
        return {name: text for part in parts for name, text in part.items()}

    def wait(self) -> None:
        """Until all are here."""
        if self._mesh is not None:
            distributed.barrier()

    def leave(self) -> None:
        """The run is over; nothing may be asked of the others any more."""
        if self._mesh is not None:
            distributed.destroy_process_group()

    def whole(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Sharded weights put together, on the CPU; of processes that do not lead, empty."""
        found = {}
        for name, weight in weights.items():
            full = weight.full_tensor() if isinstance(weight, DTensor) else weight
            if self.leads:
                found[name] = full.cpu()
        return found


def local_number(value: Tensor) -> float:
    """A scalar that may be sharded."""
    return float(value.full_tensor() if isinstance(value, DTensor) else value)


def spread_like(whole: Tensor, other: Tensor) -> Tensor:
    """A whole tensor, sharded as another is."""
    if not isinstance(other, DTensor):
        return whole.to(other.device)
    return distribute_tensor(whole.to(other.device), other.device_mesh, other.placements)


def rank_and_size() -> tuple[int, int]:
    """Which process this is, and of how many, as torchrun says; 0 of 1 if it was not at work.

    Raises:
        ConfigError: what the environment says are no such numbers.
    """
    rank, size = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
    if not (rank.isdecimal() and size.isdecimal() and (size == "1" or int(rank) < int(size))):
        raise ConfigError(
            f"RANK={rank} and WORLD_SIZE={size} in the environment: they must be whole numbers, the first below the "
            "second. Start several processes with torchrun, or unset both."
        )
    return (int(rank), int(size)) if size != "1" else (0, 1)  # a rank alone, left over from elsewhere, says nothing


def _kind_of(device: str) -> str:
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        raise UnsupportedError(
            "train.device = 'cuda', but PyTorch finds no such device here. Install a build of PyTorch for it, or train "
            "on the cpu."
        )
    return device
