"""A model as a program: a list of operations over values, written once for every runtime.

A value is one float vector a row. `Builder` reads like the forward function of
a module; what it leaves is plain data that a runtime compiles (native) or
executes (torch, numpy). Weights are named as `headstart.architectures.names`
names them. Linear weights are [out, in] as in PyTorch.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Value:
    """The result of one operation.

    Attributes:
        index: which result, in order of creation.
        width: floats a row.
        wanted_only: holds only the rows whose logits are wanted.
    """

    index: int
    width: int
    wanted_only: bool


@dataclass(frozen=True, slots=True)
class Embed:
    """out = weight[token]."""

    out: Value
    weight: str


@dataclass(frozen=True, slots=True)
class State:
    """out = what was kept for the token before the row's, from float `offset` on; zeros before the first token.

    What a trunk keeps are its taps; what heads keep is what they recycle.
    """

    out: Value
    offset: int


@dataclass(frozen=True, slots=True)
class Concat:
    """out = the parts, one after the other."""

    out: Value
    parts: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class RmsNorm:
    """out = x / sqrt(mean(x^2) + eps) * weight, over each `span` of inputs on its own."""

    out: Value
    x: Value
    weight: str
    eps: float
    span: int


@dataclass(frozen=True, slots=True)
class Linear:
    """out = weight @ x (+ bias)."""

    out: Value
    x: Value
    weight: str
    bias: str | None


@dataclass(frozen=True, slots=True)
class Rotary:
    """out = x with each head's pairs (i, i + rotated / 2) turned by the row's position."""

    out: Value
    x: Value
    head_dim: int


@dataclass(frozen=True, slots=True)
class Attention:
    """out = softmax(q . k * scale) v over what the row may see, at most `window` positions (0: all)."""

    out: Value
    q: Value
    k: Value
    v: Value
    layer: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    window: int
    scale: float


@dataclass(frozen=True, slots=True)
class Silu:
    """out = x * sigmoid(x)."""

    out: Value
    x: Value


@dataclass(frozen=True, slots=True)
class SiluGate:
    """out = silu(gate) * up."""

    out: Value
    gate: Value
    up: Value


@dataclass(frozen=True, slots=True)
class Add:
    """out = x + y."""

    out: Value
    x: Value
    y: Value


@dataclass(frozen=True, slots=True)
class SelectWanted:
    """out = the rows of x whose logits are wanted."""

    out: Value
    x: Value


Operation = Embed | State | Concat | RmsNorm | Linear | Rotary | Attention | Silu | SiluGate | Add | SelectWanted


@dataclass(frozen=True, slots=True)
class Program:
    """Operations in order, and what comes of them.

    Attributes:
        operations: in order.
        logits: the value that holds them, of the wanted rows.
        kept: values that are kept for each row, side by side, for the `State` of the rows that follow it.
    """

    operations: tuple[Operation, ...]
    logits: Value
    kept: tuple[Value, ...] = ()


@dataclass(slots=True)
class Builder:
    """Writes a program, one call an operation."""

    operations: list[Operation] = field(default_factory=list)
    _num_values: int = 0

    def _value(self, width: int, wanted_only: bool) -> Value:
        self._num_values += 1
        return Value(self._num_values - 1, width, wanted_only)

    def embed(self, weight: str, width: int) -> Value:
        """See `Embed`."""
        out = self._value(width, False)
        self.operations.append(Embed(out, weight))
        return out

    def state(self, width: int, offset: int = 0) -> Value:
        """See `State`."""
        out = self._value(width, False)
        self.operations.append(State(out, offset))
        return out

    def concat(self, *parts: Value) -> Value:
        """See `Concat`."""
        out = self._value(sum(part.width for part in parts), parts[0].wanted_only)
        self.operations.append(Concat(out, parts))
        return out

    def rms_norm(self, x: Value, weight: str, eps: float, span: int | None = None) -> Value:
        """See `RmsNorm`; `span` is the whole width unless given."""
        out = self._value(x.width, x.wanted_only)
        self.operations.append(RmsNorm(out, x, weight, eps, span or x.width))
        return out

    def linear(self, x: Value, weight: str, width: int, bias: str | None = None) -> Value:
        """See `Linear`."""
        out = self._value(width, x.wanted_only)
        self.operations.append(Linear(out, x, weight, bias))
        return out

    def rotary(self, x: Value, head_dim: int) -> Value:
        """See `Rotary`."""
        out = self._value(x.width, x.wanted_only)
        self.operations.append(Rotary(out, x, head_dim))
        return out

    def attention(
        self,
        q: Value,
        k: Value,
        v: Value,
        *,
        layer: int,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        window: int,
        scale: float,
    ) -> Value:
        """See `Attention`."""
        out = self._value(q.width, q.wanted_only)
        self.operations.append(Attention(out, q, k, v, layer, num_heads, num_kv_heads, head_dim, window, scale))
        return out

    def silu(self, x: Value) -> Value:
        """See `Silu`."""
        out = self._value(x.width, x.wanted_only)
        self.operations.append(Silu(out, x))
        return out

    def silu_gate(self, gate: Value, up: Value) -> Value:
        """See `SiluGate`."""
        out = self._value(gate.width, gate.wanted_only)
        self.operations.append(SiluGate(out, gate, up))
        return out

    def add(self, x: Value, y: Value) -> Value:
        """See `Add`."""
        out = self._value(x.width, x.wanted_only)
        self.operations.append(Add(out, x, y))
        return out

    def select_wanted(self, x: Value) -> Value:
        """See `SelectWanted`."""
        out = self._value(x.width, True)
        self.operations.append(SelectWanted(out, x))
        return out

    def finish(self, logits: Value, kept: tuple[Value, ...] = ()) -> Program:
        """The program, ending in `logits`, with what it keeps for the rows that follow."""
        return Program(tuple(self.operations), logits, kept)
