"""Who runs in the next pass: admission, prompt chunks, and who waits when pages run out.

Pure logic over sequences and page accounts. What is drafted is not decided here.

Nothing can wait for ever. Sequences are admitted in order; a pass serves the
running ones oldest first; when pages run out the youngest goes back to the head
of the queue and is computed again later, which changes no token, since a choice
depends on tokens, position and seed only. The oldest thus always proceeds, and
a request that would not fit even alone is refused when it comes.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from headstart.engine.cache import PageAccounts, PageTable, num_pages_for
from headstart.engine.sequence import Sequence
from headstart.errors import ConfigError
from headstart.records import EMPTY_TREE, Tree


@dataclass(frozen=True, kw_only=True, slots=True)
class SchedulerConfig:
    """Bounds of a pass.

    Attributes:
        max_batch: sequences that run at the same time.
        max_rows: rows of one pass, drafted ones included; at least `max_batch`.
        prefill_chunk: rows of one pass that may go to prompts.

    Raises:
        ConfigError: a value is out of its range.
    """

    max_batch: int = 16
    max_rows: int = 512
    prefill_chunk: int = 256

    def __post_init__(self) -> None:
        for name in ("max_batch", "max_rows", "prefill_chunk"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} = {getattr(self, name)}: it must be at least 1.")
        if self.max_rows < self.max_batch:
            raise ConfigError(
                f"max_rows = {self.max_rows} is below max_batch = {self.max_batch}: each running sequence "
                "needs a row of every pass. Raise max_rows or lower max_batch."
            )


@dataclass(slots=True, eq=False)
class Round:
    """A sequence's part in one pass.

    Attributes:
        sequence: whose.
        num_tokens: how many of its pending tokens run, at least 1.
        tree: drafted nodes that run after them.
    """

    sequence: Sequence
    num_tokens: int
    tree: Tree = EMPTY_TREE

    @property
    def reaches_root(self) -> bool:
        """Whether the last known token runs, so that the pass yields new ones."""
        return self.num_tokens == self.sequence.num_pending


class Scheduler:
    """The queue of waiting sequences and the set of running ones.

    Attributes:
        config: bounds of a pass.
        num_preemptions: times a sequence lost its pages to an older one.
        num_shared_tokens: tokens that an admission met in the prefix index.
    """

    def __init__(self, accounts: PageAccounts, config: SchedulerConfig) -> None:
        """Start empty.

        Args:
            accounts: the pages to be shared out.
            config: bounds of a pass.
        """
        self.config = config
        self.num_preemptions = 0
        self.num_shared_tokens = 0
        self._accounts = accounts
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []  # in order of admission
        self._refused: tuple[int, int, int] | None = None  # who found no room last, beside how many, with what left

    @property
    def num_running(self) -> int:
        """Sequences that hold pages."""
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        """Sequences that wait for admission."""
        return len(self._waiting)

    def add(self, sequence: Sequence) -> None:
        """Put a new sequence at the end of the queue."""
        self._waiting.append(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Take out a sequence that has ended, wherever it stands, and give back its pages."""
        if sequence.pages is None:
            self._waiting.remove(sequence)
        else:
            self._running.remove(sequence)
            self._give_back(sequence)

    def plan(self, now: float) -> list[Round]:
        """The rounds of the next pass, their pages reserved; empty if nothing lives.

        A sequence with one pending token always gets its row. Prompts share
        what `prefill_chunk` and `max_rows` leave, oldest first.

        Args:
            now: seconds on the engine's clock, noted for those admitted.
        """
        self._admit(now)
        num_decoding = sum(sequence.num_pending == 1 for sequence in self._running)
        prompt_rows = min(self.config.prefill_chunk, self.config.max_rows - num_decoding)
        rounds: list[Round] = []
        # `_running` shrinks from its end while we go, never before the sequence at hand
        index = 0
        while index < len(self._running):
            sequence = self._running[index]
            pending = sequence.num_pending
            num_tokens = pending if pending == 1 else min(pending, prompt_rows)
            if num_tokens and self._reserve(sequence, num_tokens):
                rounds.append(Round(sequence, num_tokens))
                prompt_rows -= num_tokens if pending > 1 else 0
            index += 1
        return rounds

    def reserve_tree(self, round_: Round, tree: Tree) -> None:
        """Give a planned round its drafted nodes if pages suffice; a draft never drives anyone out."""
        pages = round_.sequence.pages
        assert pages is not None
        if self._accounts.reserve(pages, round_.num_tokens + len(tree)):
            round_.tree = tree

    def check_integrity(self) -> None:
        """Prove that running sequences, and no others, hold pages, and that each has a token to run.

        Raises:
            AssertionError: it is not so.
        """
        assert all(sequence.pages is not None and sequence.num_pending >= 1 for sequence in self._running)
        assert all(sequence.pages is None for sequence in self._waiting)
        assert self._accounts.num_tables == len(self._running)

    def _admit(self, now: float) -> None:
        while self._waiting and len(self._running) < self.config.max_batch:
            sequence = self._waiting[0]
            situation = (sequence.id, len(self._running), self._accounts.num_available)
            if situation == self._refused:
                return  # nothing was given back since; to look up a long prompt in the index takes time
            pages = self._accounts.open(sequence.tokens)
            # what all of them still need for the tokens they know, and a page of growth for each that
            # runs, so that the newcomer is not driven out at once
            needed = sum(1 + _pages_missing(running, running.pages) for running in self._running)
            needed += _pages_missing(sequence, pages)
            # alone, a sequence always fits
            if self._running and needed > self._accounts.num_available:
                self._accounts.close(pages)
                self._refused = situation
                return
            sequence.pages = pages
            if sequence.admitted_s is None:  # later it meets what it wrote itself
                sequence.admitted_s = now
                self.num_shared_tokens += pages.num_shared
            self._running.append(self._waiting.popleft())

    def _reserve(self, sequence: Sequence, num_tokens: int) -> bool:
        """Reserve slots, driving out the youngest as long as needed; False if that was `sequence` itself."""
        assert sequence.pages is not None
        while not self._accounts.reserve(sequence.pages, num_tokens):
            youngest = self._running.pop()
            self.num_preemptions += 1
            self._give_back(youngest)
            self._waiting.appendleft(youngest)
            if youngest is sequence:
                return False
        return True

    def _give_back(self, sequence: Sequence) -> None:
        assert sequence.pages is not None
        self._accounts.close(sequence.pages)
        sequence.pages = None


def _pages_missing(sequence: Sequence, pages: PageTable | None) -> int:
    """Pages that a sequence needs for its known tokens beyond those in `pages`."""
    assert pages is not None
    return max(0, num_pages_for(len(sequence.tokens)) - len(pages.pages))
