"""A drafter that is a set of heads on the trunk.

Heads read what the trunk keeps of each token, and leave rows of their own
beside it, so they need no cache accounts. All they have to know is how far
their own rows reach:

    tokens   |------------------ known ------------------|
    trunk    |------------ committed ------------|       root
    heads    |---- run ----|------ behind, root included -|
             0

A row says what a token is after the ones before it, and nothing of what comes
later, so a full page of them serves every text that shares the trunk's page.

Rows that are behind are run when guesses are next asked for, a bounded number a
call, so that one long prompt does not hold up everyone else; a sequence that is
not there yet gets no guesses. So pausing costs no acceptance, and plain decoding
costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from headstart.decoding.drafter import DraftRequest, TrunkSlots
from headstart.engine.cache import num_pages_for
from headstart.engine.stopping import end_tokens
from headstart.errors import ConfigError
from headstart.records import EMPTY_TREE, SamplingParams, Tree
from headstart.runtime.heads_protocol import Heads, HeadsRequest
from headstart.runtime.protocol import PAGE_TOKENS, Chooser

MakeLaw = Callable[[SamplingParams, int, Sequence[int], Sequence[int]], Chooser]
"""`Trunk.make_chooser`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadsDraftConfig:
    """How heads draft.

    Attributes:
        breadth: nodes of one depth that get children at most, 1 to 64.
        max_depth: depth at most; by default what the heads can be asked for, which of an unrolled module is more than
            it was trained for.
        catch_up_rows: rows of one call over all sequences, at least 1.

    Raises:
        ConfigError: a value is out of its range.
    """

    breadth: int = 2
    max_depth: int | None = None
    catch_up_rows: int = 256

    def __post_init__(self) -> None:
        for name, value in (
            ("breadth", self.breadth),
            ("max_depth", self.max_depth),
            ("catch_up_rows", self.catch_up_rows),
        ):
            if value is not None and value < 1:
                raise ConfigError(f"{name} = {value}: it must be at least 1.")
        if self.breadth > 64:
            raise ConfigError(f"breadth = {self.breadth}: it must be at most 64. Two or so are usual.")


_USUAL = HeadsDraftConfig()


@dataclass(slots=True, eq=False)
class _Text:
    """What heads know of one sequence.

    Attributes:
        tokens: the known ones, the last is the root.
        law: by which they guess; `None` takes the likeliest.
        num_run: rows, from the first, that they have run.
        stamps: of the pages in which these lie.
        num_before: tokens that were known before the last ones were told.
    """

    tokens: list[int]
    law: Chooser | None
    num_run: int = 0
    stamps: list[int] = field(default_factory=list)
    num_before: int = 0

    def check_pages(self, slots: TrunkSlots, full_pages: Mapping[int, int]) -> None:
        """Take back the rows whose pages were given back, and take up those that another text has run.

        Args:
            slots: where the trunk keeps the text.
            full_pages: those with all rows, and their stamps when these were run.
        """
        if list(slots.stamps[: len(self.stamps)]) != self.stamps:
            num_same = 0
            for stamp, held in zip(slots.stamps, self.stamps, strict=False):
                if stamp != held:
                    break
                num_same += 1
            self.num_run = min(self.num_run, PAGE_TOKENS * num_same)
            self.stamps = self.stamps[:num_same]
        num_full = self.num_run // PAGE_TOKENS
        for page, stamp in zip(slots.page_table[num_full:].tolist(), slots.stamps[num_full:], strict=True):
            if full_pages.get(page) != stamp:
                break
            num_full += 1
        if PAGE_TOKENS * num_full > self.num_run:
            self.note_run(PAGE_TOKENS * num_full, slots)

    def note_run(self, num_run: int, slots: TrunkSlots) -> None:
        """Rows up to `num_run` have been run in these pages."""
        self.num_run = num_run
        self.stamps = list(slots.stamps[: num_pages_for(num_run)])


class HeadsDrafter:
    """Drafts with heads. They must be made for the trunk that the engine runs, and keep their rows under its pages.

    Example:
        >>> drafter = HeadsDrafter(heads, trunk.make_chooser, end_ids=tokenizer.end_ids)
        >>> engine = Engine(trunk, tokenizer, drafter=drafter)

    Attributes:
        max_depth: of its trees.
    """

    name = "heads"

    def __init__(
        self, heads: Heads, make_law: MakeLaw, *, end_ids: Sequence[int] = (), config: HeadsDraftConfig = _USUAL
    ) -> None:
        """Begin without sequences.

        Args:
            heads: who guesses.
            make_law: makes the law by which they guess where tokens are sampled.
            end_ids: ids that end a text, for laws that bar them at first.
            config: how to draft.
        """
        self._heads = heads
        self._make_law = make_law
        self._end_ids = tuple(end_ids)
        self._config = config
        self.max_depth = heads.max_depth if config.max_depth is None else config.max_depth
        self._full_pages: dict[int, int] = {}  # page of which all rows were run -> its stamp then

    def open(self, prompt: Sequence[int], params: SamplingParams, seed: int) -> object:
        """Begin a sequence. No row runs before it is first asked for."""
        law = None
        if params.temperature > 0.0:
            law = self._make_law(params, seed, prompt, end_tokens(params, self._end_ids))
        return _Text(tokens=list(prompt), law=law, num_before=len(prompt))

    def extend(self, state: object, token_ids: Sequence[int]) -> None:
        """Take tokens that became final."""
        text = cast(_Text, state)
        text.num_before = len(text.tokens)
        text.tokens += token_ids
        if text.law is not None:
            text.law.extend(token_ids)

    def backlog(self, state: object, trunk_slots: TrunkSlots) -> int:
        """Tokens to be read before the ones that were told last."""
        text = cast(_Text, state)
        if not self._heads.follows_text:
            return 0
        text.check_pages(trunk_slots, self._full_pages)
        return max(0, text.num_before - text.num_run)

    def propose(self, requests: Sequence[DraftRequest]) -> list[Tree]:
        """A tree for each that is caught up, as far as the trunk has run its text."""
        behind = [self._num_behind(request) for request in requests]
        jobs: dict[int, HeadsRequest] = {}
        rows_left = self._config.catch_up_rows
        # those with little to read come first, so that none waits for another's prompt; each reads at least a row
        for index in sorted(range(len(requests)), key=behind.__getitem__):
            text, slots = _parts(requests[index])
            if slots.committed < len(text.tokens) - 1:
                continue  # the trunk itself has yet to read what comes before the root
            num_rows = max(1, min(behind[index], rows_left))
            rows_left -= num_rows
            jobs[index] = self._job(requests[index], len(text.tokens) - behind[index], num_rows)
        trees = [EMPTY_TREE] * len(requests)
        if not jobs:
            return trees
        for (index, job), tree in zip(jobs.items(), self._heads.draft(list(jobs.values())), strict=True):
            text, slots = _parts(requests[index])
            num_run = job.first + len(job.tokens)
            text.note_run(num_run, slots)
            for place in range(job.first // PAGE_TOKENS, num_run // PAGE_TOKENS):
                self._full_pages[int(slots.page_table[place])] = slots.stamps[place]
            trees[index] = tree
        return trees

    def close(self, state: object) -> None:
        """Forget a sequence; its rows lie in the trunk's pages."""

    def _num_behind(self, request: DraftRequest) -> int:
        """Rows to run before guesses can be made; the root's is run anew if it has been already."""
        text, slots = _parts(request)
        if not self._heads.follows_text:
            return 1
        text.check_pages(slots, self._full_pages)
        return max(1, len(text.tokens) - text.num_run)

    def _job(self, request: DraftRequest, first: int, num_rows: int) -> HeadsRequest:
        text, slots = _parts(request)
        # where all depths come out of one pass, a further one costs nothing that it would have to bring
        least_parent = request.min_parent_probability if self._heads.recurrent else 0.0
        reaches_root = first + num_rows == len(text.tokens)
        return HeadsRequest(
            page_table=slots.page_table,
            first=first,
            tokens=np.array(text.tokens[first : first + num_rows], dtype=np.int32),
            chooser=text.law,
            max_nodes=request.max_nodes if reaches_root else 0,
            max_depth=min(request.max_depth, self.max_depth),
            breadth=self._config.breadth,
            min_path_probability=request.min_path_probability,
            min_parent_probability=max(least_parent, request.min_confidence),
        )


def _parts(request: DraftRequest) -> tuple[_Text, TrunkSlots]:
    slots = request.trunk_slots
    assert slots is not None, "an engine says where its trunk keeps a sequence"
    return cast(_Text, request.state), slots
