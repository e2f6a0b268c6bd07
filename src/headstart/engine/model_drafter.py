"""A drafter that is a model: a smaller one with the same vocabulary.

It has a cache of its own and keeps it as the engine keeps the trunk's. Each
depth of all sequences' chains is one pass. Tokens that it has not run (a
prompt, or what was written while no one asked) are caught up with when it is
next asked, a bounded number of rows a call, so that one long prompt does not
hold up everyone else; a sequence that is not there yet gets no guesses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from headstart.decoding.drafter import DraftRequest, Draws, TrunkSlots
from headstart.engine.cache import PageAccounts, PageTable, choose_num_pages, num_pages_for
from headstart.engine.cache_claim import check_claim, claim_cache
from headstart.engine.draft_state import DraftState
from headstart.engine.guessing import CoupledGuessing, DrawnGuessing, Guessing
from headstart.engine.stopping import end_tokens
from headstart.errors import ConfigError
from headstart.records import SamplingParams, Tree
from headstart.runtime.protocol import PAGE_TOKENS, Rows, Trunk


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelDraftConfig:
    """How a model drafts.

    Attributes:
        coupled: guess in step with the trunk, by the same noise; else draw from
            the model's own distribution, which the trees then carry.
        branches: guesses for one place at most. The chain goes on with one of
            them; the others stand beside it, for a row of the trunk each.
        min_path_probability: a chain less likely to be accepted than this is not
            made longer, in [0, 1]. Of no effect on drawn guesses.
        max_batch: sequences that the cache is made for, at least 1.
        cache_tokens: tokens that the cache holds, over all sequences; by default
            what `max_batch` full contexts need, or what 512 MiB hold if that is less.
        catch_up_rows: rows of one call that may go to tokens not run yet, at least 1.
        share_prefixes: whether what was read of a prompt serves another that begins alike.

    Raises:
        ConfigError: a value is out of its range.
    """

    coupled: bool = True
    branches: int = 1
    min_path_probability: float = 0.3
    max_batch: int = 16
    cache_tokens: int | None = None
    catch_up_rows: int = 256
    share_prefixes: bool = True

    def __post_init__(self) -> None:
        for name in ("branches", "max_batch", "catch_up_rows"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} = {getattr(self, name)}: it must be at least 1.")
        if self.branches > 100:
            raise ConfigError(f"branches = {self.branches}: it must be at most 100. One or two are usual.")
        if not 0.0 <= self.min_path_probability <= 1.0:
            raise ConfigError(f"min_path_probability = {self.min_path_probability}: it must be between 0 and 1.")


_USUAL = ModelDraftConfig()


class ModelDrafter:
    """Drafts with a second model. The two must mean the same by the same token ids; see `vocabulary`.

    Example:
        >>> drafter = ModelDrafter(small_trunk, vocab_size=trunk.vocab_size, end_ids=tokenizer.end_ids)
        >>> engine = Engine(trunk, tokenizer, drafter=drafter)
    """

    name = "model"

    def __init__(
        self, trunk: Trunk, *, vocab_size: int, end_ids: Sequence[int] = (), config: ModelDraftConfig = _USUAL
    ) -> None:
        """Allocate its cache.

        Args:
            trunk: the drafting model; no one else may use it.
            vocab_size: ids of the model drafted for. Its own may be more or
                fewer, as far as they are padding.
            end_ids: ids that end a text, for laws that bar them at first.
            config: how to draft.

        Raises:
            ConfigError: `cache_tokens` is out of its range.
            CapacityError: the cache does not fit into memory.
        """
        num_pages = choose_num_pages(config.cache_tokens, trunk.page_bytes(), config.max_batch * trunk.max_context)
        self._claim = claim_cache(trunk, num_pages)
        self._trunk = trunk
        self._vocab_size = vocab_size
        self._end_ids = tuple(end_ids)
        self._config = config
        self._accounts = PageAccounts(num_pages, share_prefixes=config.share_prefixes)
        self._guessing: Guessing = (
            CoupledGuessing(trunk, branches=config.branches, min_path_probability=config.min_path_probability)
            if config.coupled
            else DrawnGuessing(trunk, vocab_size, branches=config.branches)
        )
        self._holders: dict[DraftState, None] = {}  # those with pages, least recently asked first

    @property
    def draws(self) -> Draws:
        """What its trees carry distributions for."""
        if self._config.coupled:
            return "nothing"
        return "chains" if self._config.branches == 1 else "trees"

    def open(self, prompt: Sequence[int], params: SamplingParams, seed: int) -> DraftState | None:
        """Begin a sequence. No row runs before it is first asked for.

        Returns:
            Its state; `None` for one that this model's vocabulary cannot follow.
        """
        own_params = _own_params(params, self._trunk.vocab_size, self._vocab_size)
        if own_params is None or max(prompt) >= self._trunk.vocab_size:
            return None
        chooser = self._guessing.make_chooser(own_params, seed, prompt, end_tokens(params, self._end_ids))
        return DraftState(
            params=own_params,
            seed=seed,
            chooser=chooser,
            tokens=list(prompt),
            num_before=len(prompt),
            num_known=self._accounts.num_known(prompt),
        )

    def extend(self, state: object, token_ids: Sequence[int]) -> None:
        """Take tokens that became final: rows that agree with them are kept, others rolled back."""
        sequence = cast(DraftState, state)
        if sequence.is_lost or max(token_ids) >= self._trunk.vocab_size:
            sequence.is_lost = True
            return
        self._guessing.observe(sequence, token_ids)
        sequence.learn(token_ids, self._accounts, keep_guesses=self._guessing.keeps_guesses)

    def backlog(self, state: object, trunk_slots: TrunkSlots) -> int:
        """Tokens to be run before the ones that were told last."""
        sequence = cast(DraftState, state)
        num_run = sequence.num_known if sequence.pages is None else sequence.num_run
        return max(0, sequence.num_before - num_run)

    def propose(self, requests: Sequence[DraftRequest]) -> list[Tree]:
        """A tree for each that is caught up: a chain, and what stands beside it."""
        check_claim(self._trunk, self._claim)
        states = [cast(DraftState, request.state) for request in requests]
        asking = self._hold_those_that_fit(
            [(state, request) for state, request in zip(states, requests, strict=True) if self._can_follow(state)]
        )
        parts = self._behind(asking) + self._growing(asking)
        while parts := self._reserve(parts, asking):
            self._run(parts)
            parts = self._growing(asking)
        return [
            state.tree(request.max_nodes, request.max_depth) for state, request in zip(states, requests, strict=True)
        ]

    def close(self, state: object) -> None:
        """Forget a sequence; its pages are free at once."""
        self._release(cast(DraftState, state))

    @property
    def num_holding(self) -> int:
        """Sequences that hold cache pages."""
        return len(self._holders)

    def check_integrity(self) -> None:
        """Prove the cache accounts.

        Raises:
            AssertionError: they are not right.
        """
        self._accounts.check_integrity()
        assert self._accounts.num_tables == len(self._holders)
        for state in self._holders:
            assert state.pages is not None
            assert state.pages.committed <= min(state.num_run, len(state.tokens))
            assert state.num_run <= PAGE_TOKENS * len(state.pages.pages)

    def _can_follow(self, state: DraftState) -> bool:
        """Whether a sequence is within this model's vocabulary and context; else its pages are of no more use."""
        if not state.is_lost and len(state.tokens) <= self._trunk.max_context:
            return True
        self._release(state)
        return False

    def _behind(self, asking: Sequence[_Asking]) -> list[_Part]:
        """Known tokens to run now, oldest first; each runs at least one."""
        rows_left = self._config.catch_up_rows
        parts = []
        for state, request in asking:
            num_behind = len(state.tokens) - state.num_run
            if num_behind > 0:
                num_rows = max(1, min(num_behind, rows_left))
                rows_left -= num_rows
                parts.append((state, request, num_rows))
        return parts

    def _growing(self, asking: Sequence[_Asking]) -> list[_Part]:
        """The ends of chains that are to go deeper, a row each."""
        parts = []
        for state, request in asking:
            # the last guess that can be made follows the row at the last position of the context
            most = min(request.max_depth, self._trunk.max_context - len(state.tokens) + 1)
            if 0 < len(state.guesses) < most and self._guessing.wants_more(state, request):
                parts.append((state, request, 1))
        return parts

    def _run(self, parts: Sequence[_Part]) -> None:
        """Run the next rows of each, and guess where that reaches the end of what is there."""
        self._trunk.forward(_rows(parts))
        ended = [(state, request.max_nodes) for state, request, num_rows in parts if num_rows == len(state.unrun)]
        # before anything is noted: if it fails for one sequence, the others can be asked again
        guesses = self._guessing.guess([state for state, _ in ended], [most for _, most in ended]) if ended else []
        for state, _, num_rows in parts:
            state.num_run += num_rows
            if not state.guesses:
                state.commit(self._accounts)
        for (state, _), guess in zip(ended, guesses, strict=True):
            state.guesses.append(guess)

    def _hold_those_that_fit(self, asking: Sequence[_Asking]) -> list[_Asking]:
        """Give page tables to those that have none, and note who is in use.

        Who could not have pages for all of its text gets none, and is not served: half a text is of no use, and would
        be read again and again.
        """
        askers = {state for state, _ in asking}
        idle = [holder.pages for holder in self._holders if holder not in askers and holder.pages is not None]
        wanted = sum(_num_missing(state, state.pages) for state in askers if state.pages is not None)
        held: list[_Asking] = []
        for state, request in asking:
            if state.pages is None:
                pages = self._accounts.open(state.tokens)
                missing = _num_missing(state, pages)
                if wanted + missing > self._accounts.num_available + self._accounts.num_freed_by(idle):
                    self._accounts.close(pages)
                    continue
                wanted += missing
                state.pages, state.num_run = pages, pages.committed
            self._holders.pop(state, None)
            self._holders[state] = None
            held.append((state, request))
        return held

    def _reserve(self, parts: Sequence[_Part], asking: Sequence[_Asking]) -> list[_Part]:
        """Those parts that get pages; sequences that no one asks for now are driven out as long as needed."""
        askers = {state for state, _ in asking}
        idle = [state for state in self._holders if state not in askers]
        served = []
        for part in parts:
            state, _, num_rows = part
            assert state.pages is not None
            num_slots = state.num_run + num_rows - state.pages.committed
            while not (has_pages := self._accounts.reserve(state.pages, num_slots)) and idle:
                self._release(idle.pop(0))
            if has_pages:
                served.append(part)
            elif not state.guesses:
                self._release(state)  # half a text is of no use, and others may need the room
        return served

    def _release(self, state: DraftState) -> None:
        if state.pages is not None:
            self._accounts.close(state.pages)
            del self._holders[state]
        state.pages, state.num_run, state.guesses = None, 0, []


_Asking = tuple[DraftState, DraftRequest]
_Part = tuple[DraftState, DraftRequest, int]


def _num_missing(state: DraftState, pages: PageTable) -> int:
    """Pages that a text needs beyond those in `pages`."""
    return max(0, num_pages_for(len(state.tokens)) - len(pages.pages))


def _rows(parts: Sequence[_Part]) -> Rows:
    """One pass over the next rows of each sequence, a chain; its last row is wanted if nothing is left to run."""
    tokens: list[int] = []
    positions: list[int] = []
    parents: list[int] = []
    sequences: list[int] = []
    wanted: list[int] = []
    for index, (state, _, num_rows) in enumerate(parts):
        first_row, unrun = len(tokens), state.unrun
        tokens += unrun[:num_rows]
        positions += range(state.num_run, state.num_run + num_rows)
        parents += (-1, *range(first_row, first_row + num_rows - 1))
        sequences += [index] * num_rows
        if num_rows == len(unrun):
            wanted.append(len(tokens) - 1)
    return Rows(
        tokens=np.array(tokens, dtype=np.int32),
        positions=np.array(positions, dtype=np.int32),
        parents=np.array(parents, dtype=np.int32),
        sequences=np.array(sequences, dtype=np.int32),
        page_tables=[state.pages.array for state, _, _ in parts if state.pages is not None],
        committed=np.array([state.num_run for state, _, _ in parts], dtype=np.int32),
        wanted=np.array(wanted, dtype=np.int32),
    )


def _own_params(params: SamplingParams, own_vocab_size: int, vocab_size: int) -> SamplingParams | None:
    """A law for another size of vocabulary; `None` if it allows no token that is in both."""
    bias = {token: value for token, value in params.logit_bias.items() if token < own_vocab_size}
    bias.update(dict.fromkeys(range(vocab_size, own_vocab_size), -math.inf))
    if params.allowed_tokens is None:
        return replace(params, logit_bias=bias)
    allowed = tuple(token for token in params.allowed_tokens if token < own_vocab_size)
    if all(bias.get(token, 0.0) == -math.inf for token in allowed):
        return None
    return replace(params, logit_bias=bias, allowed_tokens=allowed)
