"""What a pretraining takes, from its settings alone: parameters, operations, memory. No weight is made.

The numbers follow from the programs of trunk and heads. What autograd keeps of a block is counted by the tensors that
the torch runtime's operations save; the tests compare it, and the operations, with small real runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from headstart.architectures.config import TrunkConfig
from headstart.architectures.decoder import decoder_program
from headstart.architectures.heads import HeadsConfig, heads_program
from headstart.architectures.program import Attention, Linear, Program
from headstart.architectures.weights import wanted_shapes
from headstart.checkpoint import open_checkpoint
from headstart.train.chunk_size import rows_at_once
from headstart.train.corpus import open_corpus
from headstart.train.corpus.vocabulary import BYTE_VOCAB_SIZE, check_tokenizer_choice, read_tokenizer
from headstart.train.pretrain.blueprint import make_blueprint
from headstart.train.pretrain.config import PretrainConfig

# numbers and sums in float32; AdamW has two for each weight
_FLOAT_BYTES = 4
_OPTIMISER_FLOATS = 2

# with the logits of a chunk of rows their softmax, which becomes the gradient
_CHUNK_COPIES = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadScale:
    """The trunk, or one depth of the heads.

    Attributes:
        name: "trunk" or "depth 1", ...
        parameters: of its own; an unrolled module's are those of depth 1.
        flops_per_token: of a training step, forward and backward, its unembedding included.
        logits_bytes: of all its rows of a micro-batch, if they existed at once.
        activation_bytes: what it keeps of a micro-batch for its backward pass, logits left out.
        trained_share: of the steps, those that it takes part in; a curriculum leaves heads out for a while.
    """

    name: str
    parameters: int
    flops_per_token: float
    logits_bytes: int
    activation_bytes: int
    trained_share: float = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """A run in numbers.

    Attributes:
        vocab_size: of its tokens.
        parts: the trunk first.
        num_steps: 0 if a time limit decides.
        tokens_per_step: of all processes.
        weights_bytes, gradients_bytes, optimiser_bytes, average_bytes: in float32; several processes share them.
        logits_bytes: of the rows that exist at once, with their softmax, and the unembedding's gradient.
        activation_bytes: at the peak: parallel heads are turned back one by one, modules in sequence together.
        naive_logits_bytes, naive_activation_bytes: of all heads at once, as a plain loop would hold them.
    """

    vocab_size: int
    parts: tuple[HeadScale, ...]
    num_steps: int
    tokens_per_step: int
    weights_bytes: int
    gradients_bytes: int
    optimiser_bytes: int
    average_bytes: int
    logits_bytes: int
    activation_bytes: int
    naive_logits_bytes: int
    naive_activation_bytes: int

    @property
    def parameters(self) -> int:
        """Of trunk and heads together."""
        return sum(part.parameters for part in self.parts)

    @property
    def flops_per_token(self) -> float:
        """Of a training step, trunk and all heads together."""
        return sum(part.flops_per_token for part in self.parts)

    @property
    def mean_flops_per_token(self) -> float:
        """Over all steps, of which a curriculum trains some without some heads."""
        return sum(part.flops_per_token * part.trained_share for part in self.parts)

    @property
    def peak_bytes(self) -> int:
        """At once, in one process that trains alone."""
        states = self.weights_bytes + self.gradients_bytes + self.optimiser_bytes + self.average_bytes
        return states + self.logits_bytes + self.activation_bytes

    @property
    def naive_peak_bytes(self) -> int:
        """The same in a plain loop."""
        return self.peak_bytes + (
            self.naive_logits_bytes + self.naive_activation_bytes - self.logits_bytes - self.activation_bytes
        )

    def to_json(self) -> dict[str, Any]:
        """As plain data, sums included."""
        sums = ("parameters", "flops_per_token", "mean_flops_per_token", "peak_bytes", "naive_peak_bytes")
        return asdict(self) | {name: getattr(self, name) for name in sums}


def scale_of(config: PretrainConfig) -> Scale:
    """What a run takes.

    Raises:
        ConfigError: settings that do not fit together.
        CheckpointError, UnsupportedError: a corpus or model that the settings name cannot be used.
    """
    blueprint = make_blueprint(config, _vocab_size(config))
    trunk, heads, train = blueprint.trunk, blueprint.heads, config.train
    window = config.data.window
    rows = train.windows_at_once * window
    parts = [_trunk_scale(trunk, heads, window, rows)]
    if heads is not None:
        # of n equal parts of a run, a curriculum has the head of depth d at work in n - d
        shares = [
            1 - depth / config.heads.n if config.heads.curriculum != "none" else 1.0 for depth in range(heads.depth + 1)
        ]
        of_heads = _heads_scales(trunk, heads, window, rows)
        parts += [replace(part, trained_share=shares[depth]) for depth, part in enumerate(of_heads, start=1)]
    numbers = sum(part.parameters for part in parts) * _FLOAT_BYTES
    alone = [part.activation_bytes for part in parts[1:]]
    in_sequence = heads is not None and heads.recurrent
    chunk = min(rows, rows_at_once(trunk.vocab_size)) * trunk.vocab_size * _FLOAT_BYTES * _CHUNK_COPIES
    return Scale(
        vocab_size=trunk.vocab_size,
        parts=tuple(parts),
        num_steps=0 if train.minutes and not train.steps else train.max_steps,
        tokens_per_step=train.batch_windows * window,
        weights_bytes=numbers,
        gradients_bytes=numbers,
        optimiser_bytes=_OPTIMISER_FLOATS * numbers,
        average_bytes=numbers if train.ema else 0,
        logits_bytes=chunk + trunk.vocab_size * trunk.hidden_size * _FLOAT_BYTES,
        activation_bytes=parts[0].activation_bytes + (sum(alone) if in_sequence else max(alone, default=0)),
        # logits, their logarithms of probabilities, and the gradient of these
        naive_logits_bytes=3 * sum(part.logits_bytes for part in parts),
        naive_activation_bytes=sum(part.activation_bytes for part in parts),
    )


def _vocab_size(config: PretrainConfig) -> int:
    """Of the run's tokens; a checkpoint that training goes on from has its own."""
    data = config.data
    if config.model.start:
        return 0
    if data.path:
        return open_corpus(data.path, verify=False).vocab_size
    choice = data.tokenizer or "bytes"
    check_tokenizer_choice(choice)
    if choice.startswith("bpe:"):
        return int(choice.removeprefix("bpe:"))
    if choice == "bytes":
        return BYTE_VOCAB_SIZE
    if (Path(choice) / "tokenizer.json").is_file():  # a model's folder, or that of a tokenizer alone
        return read_tokenizer(Path(choice)).vocab_size
    return open_checkpoint(choice).tokenizer().vocab_size


def _trunk_scale(trunk: TrunkConfig, heads: HeadsConfig | None, window: int, rows: int) -> HeadScale:
    program = decoder_program(trunk)
    shapes = wanted_shapes(program) | {"embedding": (trunk.vocab_size, trunk.hidden_size)}
    # ends with the final norm; tokens are kept for the embedding's gradient, as 8 bytes
    floats = trunk.num_layers * _block_floats(trunk) + _program_floats(trunk) + 2
    return HeadScale(
        name="trunk",
        parameters=_numbers(shapes.values()),
        flops_per_token=_flops(program, window, window - 1),
        logits_bytes=rows * trunk.vocab_size * _FLOAT_BYTES,
        activation_bytes=rows * floats * _FLOAT_BYTES,
    )


def _heads_scales(trunk: TrunkConfig, heads: HeadsConfig, window: int, rows: int) -> list[HeadScale]:
    program = heads_program(heads, trunk)
    known: set[str] = set()
    found = []
    for depth in range(1, heads.depth + 1):
        stage = program.stage(depth)
        own = {name: shape for name, shape in wanted_shapes(stage.program).items() if not name.startswith("trunk.")}
        new = {name: shape for name, shape in own.items() if name not in known}
        known |= own.keys()
        # a matrix keeps what it reads, and the final norm after it as all do
        is_linear = heads.form == "linear"
        floats = 3 * trunk.hidden_size + 1 if is_linear else _block_floats(trunk) + _program_floats(trunk)
        if heads.recurrent:
            # norms of embedding and state, and both side by side
            floats += 6 * trunk.hidden_size + 2
            if not stage.on_text:
                # a chain's attention is worked out row by row, on keys and values of depth 1 laid out for it
                floats += trunk.num_heads * window + 2 * trunk.num_kv_heads * trunk.head_dim
        found.append(
            HeadScale(
                name=f"depth {depth}",
                parameters=_numbers(new.values()),
                flops_per_token=_flops(stage.program, window, window - 1 - depth),
                logits_bytes=rows * trunk.vocab_size * _FLOAT_BYTES,
                activation_bytes=rows * floats * _FLOAT_BYTES,
            )
        )
    return found


def _numbers(shapes: Iterable[tuple[int, ...]]) -> int:
    return sum(math.prod(shape) for shape in shapes)


def _flops(program: Program, window: int, learning_rows: int) -> float:
    """Operations a token of one whole window, forward and twice as many backward; norms and the like left out."""
    forward = 0.0
    for operation in program.operations:
        match operation:
            case Linear(out, x):
                # of the last, only rows that learn are worked out
                share = learning_rows / window if operation is program.operations[-1] else 1.0
                forward += 2 * out.width * x.width * share
            case Attention(out):
                forward += 2 * 2 * out.width * (window + 1) / 2
    return 3 * forward


def _block_floats(trunk: TrunkConfig) -> int:
    """Floats a token that a block keeps for its backward pass.

    Two norms keep what they read, what they divide by, and their output before and after the weight; attention its
    queries, keys and values as turned, its output and the sums of its softmax; the MLP four vectors of its inner width.
    """
    queries, keys = trunk.num_heads * trunk.head_dim, trunk.num_kv_heads * trunk.head_dim
    norms = 6 * trunk.hidden_size + 2
    attention = 3 * queries + 2 * keys + trunk.num_heads
    if trunk.head_norms:
        attention += 2 * queries + 2 * keys + trunk.num_heads + trunk.num_kv_heads
    return norms + attention + 4 * trunk.intermediate_size


def _program_floats(trunk: TrunkConfig) -> int:
    """Floats a token that a program keeps beside its blocks: its final norm, and the turns that all blocks share."""
    return 2 * trunk.hidden_size + 1 + 2 * trunk.rotary.dim
