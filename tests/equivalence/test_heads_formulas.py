"""Every kind of heads written out as its paper has it, step by step as it drafts, against the module that is trained.

Torch, native core and the float64 runtime all run one program for a kind; a mistake in that program would be in all of
them. Here nothing of `headstart.architectures` is used but sizes and the names of weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from numpy.typing import NDArray

torch = pytest.importorskip("torch")

from headstart.architectures.config import TrunkConfig  # noqa: E402
from headstart.architectures.heads import HeadsConfig  # noqa: E402
from headstart.architectures.reading import read_config  # noqa: E402
from headstart.checkpoint import Checkpoint, open_checkpoint  # noqa: E402
from headstart.runtime.torch_runtime import TextBatch, load_weights  # noqa: E402
from headstart.testing.numpy_runtime import reference_taps  # noqa: E402
from headstart.testing.tiny_heads import TINY_HEADS, random_heads, tiny_heads_config  # noqa: E402
from headstart.testing.tiny_models import write_tiny_gguf  # noqa: E402
from headstart.train.heads_module import HeadsModule  # noqa: E402

torch.set_num_threads(1)

TOKENS = np.random.default_rng(7).integers(0, 300, 12).tolist()
WIDTH = 64
# further than it was trained for
UNROLLED_DEPTH = 4
# angles are single precision in the module
_TOLERANCE = 1e-6

Vector = NDArray[np.float64]


@dataclass
class Keys:
    """Keys and values of one attention, in order."""

    k: list[Vector] = field(default_factory=list)
    v: list[Vector] = field(default_factory=list)


@dataclass
class Maths:
    """The parts of a decoder block for one row at a time."""

    trunk: TrunkConfig
    own: dict[str, Vector]
    embedding: Vector
    final_norm: Vector
    unembedding: Vector

    def norm(self, x: Vector, weight: str | Vector) -> Vector:
        scale = self.own[weight] if isinstance(weight, str) else weight
        return x / np.sqrt((x**2).mean() + self.trunk.norm_eps) * scale

    def rotated(self, x: Vector, position: int) -> Vector:
        half = x.shape[1] // 2
        angle = position * self.trunk.rotary.theta ** (-np.arange(half) / half)
        low, high = x[:, :half], x[:, half:]
        return np.concatenate(
            [low * np.cos(angle) - high * np.sin(angle), high * np.cos(angle) + low * np.sin(angle)], 1
        )

    def attention(self, here: str, h: Vector, position: int, keys: Keys) -> Vector:
        """Over the keys given and the row's own, which are added to them."""
        size = self.trunk.head_dim
        q = self.rotated((self.own[f"{here}.q"] @ h).reshape(-1, size), position)
        keys.k.append(self.rotated((self.own[f"{here}.k"] @ h).reshape(-1, size), position))
        keys.v.append((self.own[f"{here}.v"] @ h).reshape(-1, size))
        share = self.trunk.num_heads // self.trunk.num_kv_heads
        mixed = []
        for head in range(self.trunk.num_heads):
            scores = np.array([k[head // share] @ q[head] for k in keys.k]) / np.sqrt(size)
            weights = np.exp(scores - scores.max())
            mixed.append(weights @ np.array([v[head // share] for v in keys.v]) / weights.sum())
        return self.own[f"{here}.output"] @ np.concatenate(mixed)

    def mlp(self, here: str, x: Vector) -> Vector:
        h = self.norm(x, f"{here}.norm")
        gate = self.own[f"{here}.gate"] @ h
        return self.own[f"{here}.down"] @ (gate / (1 + np.exp(-gate)) * (self.own[f"{here}.up"] @ h))

    def block(self, here: str, x: Vector, position: int, keys: Keys) -> Vector:
        x = x + self.attention(f"{here}.attention", self.norm(x, f"{here}.attention.norm"), position, keys)
        return x + self.mlp(f"{here}.mlp", x)


Step = Callable[[int, int, list[Vector] | Vector, int, Keys], tuple[Vector, Vector]]
"""Depth, token, the state(s) before it, position and keys; gives what is unembedded and what the next depth reads."""


def sequential(maths: Maths, config: HeadsConfig) -> Step:
    """DeepSeek-V3, equations 21 to 23: h' = M [norm(h); norm(Emb(t))], a block, the output norm."""

    def step(depth: int, token: int, state: list[Vector] | Vector, position: int, keys: Keys) -> tuple[Vector, Vector]:
        here = f"modules.{depth - 1 if config.num_modules > 1 else 0}"
        embedding = maths.norm(maths.embedding[token], f"{here}.embedding_norm")
        if isinstance(state, list) and len(state) > 1:
            parts = [maths.norm(part, f"{here}.tap_norms.{index}") for index, part in enumerate(state)]
            hidden, projection = np.concatenate(parts), maths.own[f"{here}.tap_projection"]
        else:
            hidden = maths.norm(state[0] if isinstance(state, list) else state, f"{here}.hidden_norm")
            projection = maths.own[f"{here}.projection"]
        halves = (embedding, hidden) if config.order == "embedding_hidden" else (hidden, embedding)
        x = maths.block(f"{here}.block", projection @ np.concatenate(halves), position, keys)
        normed = maths.norm(x, f"{here}.final_norm")
        return normed, normed if config.recycled_stage == "post_norm" else x

    return step


def eagle(maths: Maths, config: HeadsConfig) -> Step:
    """EAGLE: f' = block(FC [Emb(t); f]) without the first norm, unembedded as it is."""

    def step(depth: int, token: int, state: list[Vector] | Vector, position: int, keys: Keys) -> tuple[Vector, Vector]:
        (feature,) = state if isinstance(state, list) else (state,)
        halves = (maths.embedding[token], feature)
        assert config.order == "embedding_hidden"
        x = maths.own["projection"] @ np.concatenate(halves)
        x = x + maths.attention("block.attention", x, position, keys)
        x = x + maths.mlp("block.mlp", x)
        return x, x

    return step


def eagle3(maths: Maths, config: HeadsConfig) -> Step:
    """EAGLE-3: fused states of several layers as the stream; attention reads [norm(Emb(t)); norm(h)]."""

    def step(depth: int, token: int, state: list[Vector] | Vector, position: int, keys: Keys) -> tuple[Vector, Vector]:
        if isinstance(state, list):
            parts = [maths.norm(part, f"tap_norms.{index}") for index, part in enumerate(state)]
            x = maths.own["fuse"] @ np.concatenate(parts)
        else:
            x = state
        assert config.order == "embedding_hidden"
        halves = maths.norm(maths.embedding[token], "embedding_norm"), maths.norm(x, "hidden_norm")
        x = x + maths.attention("block.attention", np.concatenate(halves), position, keys)
        x = x + maths.mlp("block.mlp", x)
        normed = maths.norm(x, "final_norm")
        return normed, normed if config.recycled_stage == "post_norm" else x

    return step


def chain_logits(
    maths: Maths, config: HeadsConfig, taps: Sequence[list[Vector]], root: int, depth: int
) -> list[Vector]:
    """Logits of depth 1, 2, ... of a chain that starts at a root and is told the text's own tokens."""
    step = {"sequential": sequential, "eagle": eagle, "eagle3": eagle3}[config.kind](maths, config)
    before = [[np.zeros(WIDTH)] * len(config.taps), *taps]  # the first token has no state before it
    shared = Keys()
    found: list[Vector] = []
    if config.num_modules == 1:
        # the module runs over the text up to the root, then on its own output, all in one cache
        for row in range(root + 1):
            said, kept = step(1, TOKENS[row], before[row], row, shared)
        found.append(maths.unembedding @ said)
        for level in range(2, depth + 1):
            said, kept = step(level, TOKENS[root + level - 1], kept, root + level - 1, shared)
            found.append(maths.unembedding @ said)
        return found
    # each module has a cache of its own, over the states of the one before
    end = root + 1
    states: list[list[Vector] | Vector] = list(before)
    for level in range(1, depth + 1):
        keys, said_of, kept_of = Keys(), [], [np.zeros(WIDTH)]
        for row in range(end):
            said, kept = step(level, TOKENS[row], states[row], row, keys)
            said_of.append(said)
            kept_of.append(kept)
        found.append(maths.unembedding @ said_of[-1])
        states, end = list(kept_of), end + 1
    return found


def parallel_logits(maths: Maths, config: HeadsConfig, taps: Sequence[list[Vector]], root: int) -> list[Vector]:
    """Gloeckle et al.: a block for each depth, over the text's states; Medusa: h + SiLU(W h + b), layer by layer."""
    before = [np.zeros(WIDTH), *(state[-1] for state in taps)]
    found = []
    for module in range(config.depth):
        here = f"modules.{module}"
        unembedding = maths.own[f"{here}.unembedding"] if config.own_unembedding else maths.unembedding
        x = before[root]
        if config.kind == "medusa":
            for layer in range(config.num_layers):
                y = maths.own[f"{here}.layers.{layer}.linear"] @ x + maths.own[f"{here}.layers.{layer}.linear.bias"]
                x = x + y / (1 + np.exp(-y))
        elif config.form == "linear":
            x = maths.norm(maths.own[f"{here}.linear"] @ x, f"{here}.final_norm")
        else:
            rows: list[Vector] = before[: root + 1]
            for layer in range(config.num_layers):
                keys = Keys()
                rows = [maths.block(f"{here}.layers.{layer}", x, row, keys) for row, x in enumerate(rows)]
            x = maths.norm(rows[-1], f"{here}.final_norm")
        found.append(unembedding @ x)
    return found


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return open_checkpoint(write_tiny_gguf(tmp_path_factory.mktemp("tiny") / "model.gguf", kind="F32", tied=False))


@pytest.mark.parametrize("name", TINY_HEADS)
def test_heads_are_what_their_papers_say(name: str, checkpoint: Checkpoint) -> None:
    config, trunk = tiny_heads_config(name), read_config(checkpoint)[1]
    borrowed, own = load_weights(checkpoint, torch.float64), random_heads(config, trunk)
    heads = HeadsModule(config, trunk, borrowed, None).double()
    heads.load_own({weight: torch.from_numpy(values) for weight, values in own.items()})
    depth = UNROLLED_DEPTH if config.recurrent and config.num_modules < config.depth else config.depth
    flat = reference_taps(checkpoint, TOKENS, config.taps)
    row = torch.arange(len(TOKENS))[None]
    batch = TextBatch(torch.tensor([TOKENS]), torch.zeros_like(row), row)
    with torch.no_grad():
        outputs = list(heads(batch, torch.from_numpy(flat)[None], depth))
        found = [(output.hidden @ output.unembedding.T)[0].numpy() for output in outputs]

    maths = Maths(
        trunk, {weight: values.astype(np.float64) for weight, values in own.items()}, borrowed["embedding"].numpy(),
        borrowed["final_norm"].numpy(), borrowed["unembedding"].numpy(),
    )  # fmt: skip
    if config.own_unembedding and config.recurrent:
        maths.unembedding = maths.own["unembedding"]
    taps = [list(np.split(states.astype(np.float64), len(config.taps))) for states in flat]
    if config.hidden_stage == "post_norm":
        taps = [[*states[:-1], maths.norm(states[-1], maths.final_norm)] for states in taps]
    for root in range(len(TOKENS)):
        if config.recurrent:
            for level, expected in enumerate(chain_logits(maths, config, taps, root, min(depth, len(TOKENS) - root))):
                np.testing.assert_allclose(found[level][root + level], expected, atol=_TOLERANCE, rtol=0)
        else:
            for level, expected in enumerate(parallel_logits(maths, config, taps, root)):
                np.testing.assert_allclose(found[level][root], expected, atol=_TOLERANCE, rtol=0)
