"""What a server says of itself at `/metrics`: tokens that it wrote, and what its drafts came to.

Only vLLM's and llama.cpp's names are known. A server that publishes none, or others, is measured without.
"""

from __future__ import annotations

import re
import urllib.request
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from headstart.decoding.statistics import AcceptanceStatistics

_TIMEOUT_S = 5.0
_LINE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+([^\s]+)")
_POSITION = re.compile(r'position="(\d+)"')

_TOKENS = ("vllm:generation_tokens_total", "llamacpp:tokens_predicted_total")
_DRAFTS = "spec_decode_num_drafts_total"
_DRAFTED = "spec_decode_num_draft_tokens_total"
_ACCEPTED = "spec_decode_num_accepted_tokens_total"
_BY_POSITION = "spec_decode_num_accepted_tokens_per_pos_total"


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerCounters:
    """Counts over a server's life, or between two moments of it.

    Attributes:
        tokens: written.
        drafts: rounds that drafted.
        drafted: guesses that were checked.
        accepted: of these, kept.
        accepted_by_depth: kept at depth 1, 2, ...
    """

    tokens: int
    drafts: int = 0
    drafted: int = 0
    accepted: int = 0
    accepted_by_depth: tuple[int, ...] = ()

    def since(self, before: ServerCounters) -> ServerCounters:
        """What came since an earlier moment."""
        earlier = (*before.accepted_by_depth, *[0] * len(self.accepted_by_depth))
        return ServerCounters(
            tokens=self.tokens - before.tokens,
            drafts=self.drafts - before.drafts,
            drafted=self.drafted - before.drafted,
            accepted=self.accepted - before.accepted,
            accepted_by_depth=tuple(now - then for now, then in zip(self.accepted_by_depth, earlier, strict=False)),
        )


def read_counters(url: str) -> ServerCounters | None:
    """Ask a server for its counters.

    Args:
        url: where its API begins; `/metrics` lies beside.

    Returns:
        `None` if it publishes none that are known.
    """
    # proxies of the environment are not used: what is measured is the server at the address that was given
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url.rstrip("/").removesuffix("/v1") + "/metrics", timeout=_TIMEOUT_S) as response:
            return parse_counters(response.read().decode("utf-8", "replace"))
    except (OSError, ValueError):
        return None


def parse_counters(text: str) -> ServerCounters | None:
    """Read counters in Prometheus' text form; `None` if there are none that are known.

    A server of several engines has a line for each; they are added up.
    """
    totals: dict[str, float] = defaultdict(float)
    by_position: dict[int, float] = defaultdict(float)
    for line in text.splitlines():
        found = _LINE.match(line)
        if found is None:
            continue
        name, labels, value = found.groups()
        short = name if name in _TOKENS else name.partition(":")[2]
        position = _POSITION.search(labels or "")
        if short == _BY_POSITION and position is not None:
            by_position[int(position[1])] += float(value)
        else:
            totals[short] += float(value)
    written = [totals[name] for name in _TOKENS if name in totals]
    if not written:
        return None
    return ServerCounters(
        tokens=round(sum(written)),
        drafts=round(totals[_DRAFTS]),
        drafted=round(totals[_DRAFTED]),
        accepted=round(totals[_ACCEPTED]),
        accepted_by_depth=tuple(round(by_position[place]) for place in range(len(by_position))),
    )


def acceptance_of_counters(parts: Iterable[ServerCounters]) -> AcceptanceStatistics | None:
    """Acceptance of a server that drafts chains of one length; `None` if it drafted nothing."""
    total = AcceptanceStatistics()
    for part in parts:
        one = AcceptanceStatistics()
        # each round gives one token of the model's own beside those that it keeps
        one.rounds, one.tokens = part.tokens - part.accepted, part.tokens
        one.drafted, one.accepted = part.drafted, part.accepted
        one.accepted_by_depth = list(part.accepted_by_depth)
        one.drafted_by_depth = [part.drafts] * len(part.accepted_by_depth)
        one.reached_by_depth = [part.drafts, *part.accepted_by_depth][: len(part.accepted_by_depth)]
        total.merge(one)
    return total if total.drafted else None
