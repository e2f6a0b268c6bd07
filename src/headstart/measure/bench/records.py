"""What one turn of a side leaves behind, and its form in the journal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from headstart.decoding.statistics import AcceptanceStatistics
from headstart.measure.bench.server_counters import ServerCounters

# Times are kept to a microsecond: no clock here is finer, and a run has many.
_DIGITS = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestRecord:
    """One request, as its sender saw it.

    Attributes:
        name: of the request; the same on every side.
        category: of its prompt.
        prompt_tokens: by the tokenizer, or the server's own count.
        num_tokens: written tokens, likewise.
        token_hash: of the token ids, or of the text where a server tells no ids.
        finish_reason: why it ended.
        first_s: seconds from its coming to its first token.
        end_s: seconds from its coming to its end.
        pauses_s: seconds between one arrival of text and the next. Tokens that come together are one arrival.
        acceptance: what its drafts came to, if the side tells; see `AcceptanceStatistics.to_json`.
        sample: its pieces of text, each with the depth at which it was guessed, 0 for the model's own; only of some.
    """

    name: str
    category: str
    prompt_tokens: int
    num_tokens: int
    token_hash: str
    finish_reason: str
    first_s: float
    end_s: float
    pauses_s: tuple[float, ...]
    acceptance: Mapping[str, Any] | None = None
    sample: tuple[tuple[str, int], ...] = ()

    @property
    def writing_s(self) -> float:
        """Seconds from the first token to the last."""
        return self.end_s - self.first_s


@dataclass(frozen=True, kw_only=True, slots=True)
class PassTally:
    """Passes of one shape, in which no prompt was read.

    Attributes:
        sequences: that wrote in the pass.
        drafted: rows of guesses.
        passes: how many there were.
        tokens: written in them.
        seconds: that they took, drafting and all other work of the engine included.
        trunk_s: of these, in the trunk, choices included.
    """

    sequences: int
    drafted: int
    passes: int
    tokens: int
    seconds: float
    trunk_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """One side, once through one group of requests.

    Attributes:
        cell: key of the load and context.
        side: who wrote.
        repeat: 0, 1, ...
        group: which of the requests.
        seconds: from the first request's coming to the last one's end.
        requests: in the order of their ends.
        passes: the trunk's, if the side tells.
        counters: what the server says that it did meanwhile, if the side is one and tells.
    """

    cell: str
    side: str
    repeat: int
    group: str
    seconds: float
    requests: tuple[RequestRecord, ...]
    passes: tuple[PassTally, ...] = ()
    counters: ServerCounters | None = None

    @property
    def num_tokens(self) -> int:
        """Tokens that were written."""
        return sum(request.num_tokens for request in self.requests)

    def to_json(self) -> dict[str, Any]:
        """As plain data, times rounded."""
        return {"kind": "turn", **_rounded(asdict(self))}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Turn:
        """From what `to_json` gave."""
        fields = {key: value for key, value in data.items() if key != "kind"}
        fields["requests"] = tuple(_request(request) for request in data["requests"])
        fields["passes"] = tuple(PassTally(**tally) for tally in data["passes"])
        if data["counters"] is not None:
            by_depth = tuple(data["counters"]["accepted_by_depth"])
            fields["counters"] = ServerCounters(**{**data["counters"], "accepted_by_depth": by_depth})
        return cls(**fields)


class PassSize(NamedTuple):
    """A pass of so many sequences, with so many rows in all."""

    sequences: int
    rows: int


@dataclass(frozen=True, kw_only=True, slots=True)
class CostSample:
    """What passes took at one moment, outside of all requests.

    Rows that look back on one sequence share the reading of its cache, those of several sequences do not.

    Attributes:
        cell: key of the load and context.
        side: whose trunk.
        repeat, group: of the turn that came next.
        context: tokens that each sequence looked back on.
        seconds: by size.
    """

    cell: str
    side: str
    repeat: int
    group: str
    context: int
    seconds: Mapping[PassSize, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {"kind": "cost", **asdict(self), "seconds": [[*size, time_s] for size, time_s in self.seconds.items()]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CostSample:
        """From what `to_json` gave."""
        fields = {key: value for key, value in data.items() if key != "kind"}
        fields["seconds"] = {PassSize(sequences, rows): time_s for sequences, rows, time_s in data["seconds"]}
        return cls(**fields)


def acceptance_of(requests: Iterable[RequestRecord]) -> AcceptanceStatistics | None:
    """The counts of several requests together; `None` if none of them has any."""
    counted = [request.acceptance for request in requests if request.acceptance is not None]
    return AcceptanceStatistics.total(map(AcceptanceStatistics.from_json, counted)) if counted else None


def _request(data: Mapping[str, Any]) -> RequestRecord:
    sample = tuple((text, depth) for text, depth in data["sample"])
    return RequestRecord(**{**data, "pauses_s": tuple(data["pauses_s"]), "sample": sample})


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, _DIGITS)
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return value
