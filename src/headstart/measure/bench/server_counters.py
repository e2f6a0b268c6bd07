"""What a server says of itself at `/metrics`: tokens that it wrote, and what its drafts came to.

Only vLLM's and llama.cpp's names are known. A server that publishes none, or others, is measured without.
"""

from __future__ import annotations

import re
import urllib.request
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from headstart.decoding.statistics import AcceptanceStatistics

_TIMEOUT_S = 5.0
_LINE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+([^\s]+)")
_POSITION = re.compile(r'position="(\d+)"')

_TOKENS = ("vllm:generation_tokens_total", "llamacpp:tokens_predicted_total")
# of both together there is one for each pass that gave a request tokens
_FIRST_PASSES = "vllm:time_to_first_token_seconds_count"
_LATER_PASSES = "vllm:inter_token_latency_seconds_count"
_DRAFTS = ("vllm:spec_decode_num_drafts_total", "llamacpp:spec_decode_num_drafts_total")
_DRAFTED = ("vllm:spec_decode_num_draft_tokens_total", "llamacpp:spec_decode_num_draft_tokens_total")
_ACCEPTED = ("vllm:spec_decode_num_accepted_tokens_total", "llamacpp:spec_decode_num_accepted_tokens_total")
_BY_POSITION = (
    "vllm:spec_decode_num_accepted_tokens_per_pos_total",
    "llamacpp:spec_decode_num_accepted_tokens_per_pos_total",
)
# it publishes the counters of drafts if it drafts, so without them there are none
_DRAFTS_UNLESS_SILENT = "vllm:generation_tokens_total"


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerCounters:
    """Counts over a server's life, or between two moments of it.

    Attributes:
        tokens: written.
        rounds: passes that gave a request tokens, each request counted for itself; 0 if the server does not tell.
        drafts: rounds that drafted.
        drafted: guesses that were checked.
        accepted: of these, kept; also those behind the token that ended a text, which is not among the written.
        accepted_by_depth: kept at depth 1, 2, ...
        tells_drafts: whether no drafts here means that there were none, not that they are not told.
    """

    tokens: int
    rounds: int = 0
    drafts: int = 0
    drafted: int = 0
    accepted: int = 0
    accepted_by_depth: tuple[int, ...] = ()
    tells_drafts: bool = False

    def since(self, before: ServerCounters) -> ServerCounters:
        """What came since an earlier moment."""
        earlier = (*before.accepted_by_depth, *[0] * len(self.accepted_by_depth))
        return ServerCounters(
            tokens=self.tokens - before.tokens,
            rounds=self.rounds - before.rounds,
            drafts=self.drafts - before.drafts,
            drafted=self.drafted - before.drafted,
            accepted=self.accepted - before.accepted,
            accepted_by_depth=tuple(now - then for now, then in zip(self.accepted_by_depth, earlier, strict=False)),
            tells_drafts=self.tells_drafts,
        )


def read_counters(url: str) -> ServerCounters | None:
    """Ask a server for its counters.

    Args:
        url: where its API begins; `/metrics` lies beside.

    Returns:
        `None` if it publishes none that are known.
    """
    text = read_metrics(url)
    return None if text is None else parse_counters(text)


def read_metrics(url: str) -> str | None:
    """All that a server publishes of itself, in Prometheus' text form; `None` if nothing.

    Args:
        url: where its API begins; `/metrics` lies beside.
    """
    # proxies of the environment are not used: what is measured is the server at the address that was given
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url.rstrip("/").removesuffix("/v1") + "/metrics", timeout=_TIMEOUT_S) as response:
            text: bytes = response.read()
    except (OSError, ValueError):
        return None
    return text.decode("utf-8", "replace")


def parse_totals(text: str) -> dict[str, float]:
    """The values in Prometheus' text form by name.

    A server of several engines has a line for each; they are added up, and so is whatever else labels keep apart.

    Example:
        >>> parse_totals('a_total{engine="0"} 2\\na_total{engine="1"} 3')
        {'a_total': 5.0}
    """
    totals: dict[str, float] = defaultdict(float)
    for name, _, value in _samples(text):
        totals[name] += value
    return dict(totals)


def parse_counters(text: str) -> ServerCounters | None:
    """Read counters in Prometheus' text form; `None` if there are none that are known."""
    totals = parse_totals(text)
    written = [totals[name] for name in _TOKENS if name in totals]
    if not written:
        return None
    by_position: dict[int, float] = defaultdict(float)
    for name, labels, value in _samples(text):
        position = _POSITION.search(labels)
        if name in _BY_POSITION and position is not None:
            by_position[int(position[1])] += value

    def count(*names: str) -> int:
        return round(sum(totals.get(name, 0.0) for name in names))

    return ServerCounters(
        tokens=round(sum(written)),
        rounds=count(_FIRST_PASSES, _LATER_PASSES) if _LATER_PASSES in totals else 0,
        drafts=count(*_DRAFTS),
        drafted=count(*_DRAFTED),
        accepted=count(*_ACCEPTED),
        accepted_by_depth=tuple(round(by_position[place]) for place in range(len(by_position))),
        tells_drafts=any(name in totals for name in (*_DRAFTED, _DRAFTS_UNLESS_SILENT)),
    )


def _samples(text: str) -> Iterator[tuple[str, str, float]]:
    """Name, labels and value of each line that has them."""
    for line in text.splitlines():
        found = _LINE.match(line)
        if found is None:
            continue
        try:
            value = float(found[3])
        except ValueError:  # another page at that address
            continue
        yield found[1], found[2] or "", value


def acceptance_of_counters(parts: Iterable[ServerCounters]) -> AcceptanceStatistics | None:
    """Acceptance of a server that drafts chains of one length; `None` if it drafted nothing."""
    total = AcceptanceStatistics()
    for part in parts:
        one = AcceptanceStatistics()
        # where rounds are not told: each gives one token of the model's own beside those that it keeps, which is too
        # few rounds if guesses behind the end of a text were counted as kept
        one.rounds, one.tokens = part.rounds or part.tokens - part.accepted, part.tokens
        one.drafted, one.accepted = part.drafted, part.accepted
        one.accepted_by_depth = list(part.accepted_by_depth)
        one.drafted_by_depth = [part.drafts] * len(part.accepted_by_depth)
        one.reached_by_depth = [part.drafts, *part.accepted_by_depth][: len(part.accepted_by_depth)]
        total.merge(one)
    return total if total.drafted else None
