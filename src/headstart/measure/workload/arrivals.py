"""When requests come: so many at once, or at a rate whoever is served."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from headstart.errors import ConfigError
from headstart.measure.workload.prompts import Ask


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """So many users, each of whom asks anew when the answer is there.

    Attributes:
        concurrency: the users.

    Raises:
        ConfigError: there are none.
    """

    concurrency: int

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise ConfigError(f"batch = {self.concurrency}: it must be at least 1 request at a time.")


@dataclass(frozen=True, slots=True)
class OpenLoop:
    """Requests that come by themselves, at random, whether or not those before are answered.

    Attributes:
        rate_per_s: how many, on average.
        seed: of the times (a Poisson process).

    Raises:
        ConfigError: the rate is not positive.
    """

    rate_per_s: float
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.rate_per_s < float("inf"):
            raise ConfigError(f"rate = {self.rate_per_s}: it must be a positive number of requests a second.")

    def times_s(self, count: int) -> list[float]:
        """When the first `count` requests come, in seconds from the first one's coming; the same for every side."""
        generator, now_s = random.Random(self.seed), 0.0
        times = []
        for _ in range(count):
            times.append(now_s)
            now_s += generator.expovariate(self.rate_per_s)
        return times


Load = ClosedLoop | OpenLoop


class Feed:
    """Hands out requests when they are due.

    A follow-up is due at once: the user was waiting for the answer.

    Args:
        asks: what is asked, in this order.
        load: when.
    """

    def __init__(self, asks: Sequence[Ask], load: Load) -> None:
        """Begin at time 0."""
        times: Sequence[float | None]
        times = load.times_s(len(asks)) if isinstance(load, OpenLoop) else [None] * len(asks)
        self._waiting = deque(zip(times, asks, strict=True))
        self._follow_ups: deque[tuple[float, Ask]] = deque()
        self._most = load.concurrency if isinstance(load, ClosedLoop) else None

    def __bool__(self) -> bool:
        """Whether anything is left to be handed out."""
        return bool(self._waiting or self._follow_ups)

    def take(self, now_s: float, num_active: int) -> tuple[float, Ask] | None:
        """The next request that is due, with the time at which it came.

        In an open loop that time may be past: who was kept waiting began to wait when the request came.

        Args:
            now_s: seconds from the beginning.
            num_active: requests that are being answered.
        """
        if self._follow_ups:
            return self._follow_ups.popleft()
        if not self._waiting or (self._most is not None and num_active >= self._most):
            return None
        time_s, ask = self._waiting[0]
        if time_s is not None and time_s > now_s:
            return None
        self._waiting.popleft()
        return (now_s if time_s is None else time_s), ask

    def add_follow_up(self, now_s: float, ask: Ask) -> None:
        """Take in a request that follows on an answer."""
        self._follow_ups.append((now_s, ask))

    def next_due_s(self) -> float | None:
        """When the next request comes by itself; `None` if all that is left waits for an answer, or nothing is left."""
        return self._waiting[0][0] if self._waiting else None
