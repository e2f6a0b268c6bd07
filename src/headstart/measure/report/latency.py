"""What senders of requests waited for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headstart.measure.bench.records import RequestRecord
from headstart.measure.report.spread import percentile

_POINTS = 40


@dataclass(frozen=True, kw_only=True, slots=True)
class Distribution:
    """Waiting times, in seconds.

    Attributes:
        count: how many there are.
        p50, p95, p99: percentiles.
        points: values at evenly spaced shares, the least first and the greatest last.
    """

    count: int
    p50: float
    p95: float
    p99: float
    points: tuple[float, ...]

    @staticmethod
    def of(values: Iterable[float]) -> Distribution | None:
        """Of some values; `None` if there are none."""
        ordered = sorted(values)
        if not ordered:
            return None
        points = (ordered[round(index * (len(ordered) - 1) / _POINTS)] for index in range(_POINTS + 1))
        p50, p95, p99 = (percentile(ordered, share) for share in (0.5, 0.95, 0.99))
        return Distribution(count=len(ordered), p50=p50, p95=p95, p99=p99, points=tuple(points))


@dataclass(frozen=True, kw_only=True, slots=True)
class Latency:
    """Waiting times of a side in a cell.

    Attributes:
        first_token_s: from a request's coming to its first token.
        request_s: from its coming to its end.
        token_s: of each request, from its first token to its last, over the tokens after the first.
        pause_s: between one arrival of text and the next. Tokens that come together are one arrival, so drafting makes
            pauses longer and fewer; and where a server sends several at once, so does the server.
    """

    first_token_s: Distribution | None
    request_s: Distribution | None
    token_s: Distribution | None
    pause_s: Distribution | None

    @staticmethod
    def of(requests: Sequence[RequestRecord]) -> Latency:
        """Of some requests."""
        return Latency(
            first_token_s=Distribution.of(request.first_s for request in requests),
            request_s=Distribution.of(request.end_s for request in requests),
            token_s=Distribution.of(
                request.writing_s / (request.num_tokens - 1) for request in requests if request.num_tokens > 1
            ),
            pause_s=Distribution.of(pause for request in requests for pause in request.pauses_s),
        )
