"""Who may use which cache page, and how far each sequence is committed.

Accounts only: the storage lies in the trunk. The slots of a sequence, seen
along its page table:

    0            committed            committed + rows       pages * PAGE_TOKENS
    |-- committed --|-- rows of this pass --|-- free slots of its last page --|

`reserve` takes pages for the rows of a pass. `commit` moves the first border to
the right over rows that proved true; `rollback` gives back the pages beyond it.
What a rejected row left in a slot is never seen: it lies right of the border
and is written over by the next pass.

Pages are in one of three states:

    free        nobody's; content without meaning
    referenced  in the tables of one or more sequences
    cached      in nobody's table, but published: its content may be met again

A *published* page is full, committed, and stands in the prefix index under
(key of the page before it, its 16 tokens); a later prompt that begins with the
same tokens shares it. Only committed pages are published, so a rejected draft
can never be found there, and no one writes left of a committed border, so a
shared page is never written and never needs a copy.
"""

from __future__ import annotations

import itertools
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from headstart.errors import ConfigError
from headstart.runtime.protocol import PAGE_TOKENS

# Cache memory if no size is given; a request that needs more is refused with a text that says so.
DEFAULT_CACHE_BYTES = 1 << 29

_ROOT_KEY = 0

# of all caches together: a drafter that goes from one engine to the next must not take its pages for those it knew
_stamps = itertools.count(1)

_IndexEntry = tuple[int, tuple[int, ...]]


def num_pages_for(num_slots: int) -> int:
    """Pages that hold `num_slots` slots."""
    return -(-num_slots // PAGE_TOKENS)


def choose_num_pages(cache_tokens: int | None, page_bytes: int, most_tokens: int) -> int:
    """Pages of a cache.

    Args:
        cache_tokens: tokens it is to hold; `None` for a fitting size.
        page_bytes: bytes of a page over all layers.
        most_tokens: tokens beyond which a cache is of no use.

    Raises:
        ConfigError: `cache_tokens` is below 1.
    """
    if cache_tokens is None:
        return max(1, min(DEFAULT_CACHE_BYTES // page_bytes, num_pages_for(most_tokens)))
    if cache_tokens < 1:
        raise ConfigError(f"cache_tokens = {cache_tokens}: it must be at least 1. Leave it out for a fitting size.")
    return num_pages_for(cache_tokens)


class PageTable:
    """The pages of one sequence. Only `PageAccounts` changes it.

    Attributes:
        stamps: of each page, the number it was given when it was last taken from the free ones; no other page has it,
            in any cache. What was stored under a page is there as long as its stamp is the same.
        committed: slots, from the first, whose content is final.
        num_shared: slots that came from the prefix index when it was opened.
    """

    __slots__ = ("_array", "_view", "committed", "num_published", "num_shared", "pages", "parent_key", "stamps")

    def __init__(self) -> None:
        """An empty table."""
        self.pages: list[int] = []
        self.stamps: list[int] = []
        self.committed = 0
        self.num_shared = 0
        self.num_published = 0  # pages, from the first, that stand in the prefix index
        self.parent_key = _ROOT_KEY  # of the last published page
        self._array = np.empty(8, dtype=np.int32)
        self._view = self._array[:0]

    @property
    def array(self) -> NDArray[np.int32]:
        """Page numbers in slot order, int32 [pages]; valid until the next change."""
        return self._view

    def refresh(self, first: int) -> None:
        """Copy `pages[first:]` to the array the trunk reads."""
        count = len(self.pages)
        if count > len(self._array):
            self._array = np.concatenate((self._array, np.empty(count, dtype=np.int32)))
        self._array[first:count] = self.pages[first:]
        self._view = self._array[:count]


class PageAccounts:
    """Free list, reference counts and prefix index of a cache of `num_pages` pages."""

    def __init__(self, num_pages: int, *, share_prefixes: bool = True) -> None:
        """Start with all pages free.

        Args:
            num_pages: pages of the cache, at least 1.
            share_prefixes: whether committed pages are published and met again.
        """
        self.num_pages = num_pages
        self._share_prefixes = share_prefixes
        self._free: deque[int] = deque(range(num_pages))
        self._references = [0] * num_pages
        self._stamps = [0] * num_pages
        self._tables: set[PageTable] = set()
        self._next_key = _ROOT_KEY + 1
        self._index: dict[_IndexEntry, int] = {}  # -> page
        self._entries: dict[int, _IndexEntry] = {}  # published page -> its entry
        self._keys: dict[int, int] = {}  # published page -> the key its successors name
        # Least recently used first. A page is released after its successors (see `close`) and a
        # referenced page holds all before it, so a successor always stands left of its predecessor
        # and eviction from the left never leaves a page that cannot be reached.
        self._cached: OrderedDict[int, None] = OrderedDict()

    @property
    def num_available(self) -> int:
        """Pages that can be taken: free, or cached and evictable."""
        return len(self._free) + len(self._cached)

    @property
    def num_cached(self) -> int:
        """Pages kept only because their prefix may come again."""
        return len(self._cached)

    @property
    def num_tables(self) -> int:
        """Tables that were opened and not closed."""
        return len(self._tables)

    def open(self, tokens: Sequence[int]) -> PageTable:
        """A table for a new sequence, with the published pages its tokens begin with.

        The last token is never covered: its row has to run to yield a choice.
        """
        table = PageTable()
        self._tables.add(table)
        for page in self._find(tokens):
            self._acquire(page)
            table.pages.append(page)
            table.stamps.append(self._stamps[page])
            table.parent_key = self._keys[page]
        table.num_published = len(table.pages)
        table.num_shared = table.committed = PAGE_TOKENS * len(table.pages)
        table.refresh(0)
        return table

    def num_known(self, tokens: Sequence[int]) -> int:
        """Slots that a table for these tokens would share if it were opened now."""
        return PAGE_TOKENS * sum(1 for _ in self._find(tokens))

    def reserve(self, table: PageTable, num_slots: int) -> bool:
        """Take pages for `num_slots` slots after the committed ones.

        Returns:
            False, with nothing changed, if there are not enough.
        """
        before = len(table.pages)
        missing = num_pages_for(table.committed + num_slots) - before
        if missing <= 0:
            return True
        if missing > self.num_available:
            return False
        for _ in range(missing):
            page = self._take()
            table.pages.append(page)
            table.stamps.append(self._stamps[page])
        table.refresh(before)
        return True

    def commit(self, table: PageTable, num_slots: int, tokens: Sequence[int]) -> None:
        """Make the first `num_slots` reserved slots final, give back the pages beyond, publish full ones.

        Args:
            table: whose slots.
            num_slots: how many, at most those reserved.
            tokens: the sequence's tokens from its first, at least to the new border.
        """
        committed = table.committed + num_slots
        assert committed <= PAGE_TOKENS * len(table.pages), "commit of slots that were not reserved"
        assert committed <= len(tokens), "commit of slots without tokens"
        table.committed = committed
        self.rollback(table)
        if self._share_prefixes and committed >= PAGE_TOKENS * (table.num_published + 1):
            self._publish(table, tokens)

    def rollback(self, table: PageTable) -> None:
        """Give back the pages beyond the committed slots."""
        keep = num_pages_for(table.committed)
        if keep < len(table.pages):
            while len(table.pages) > keep:
                self._release(table.pages.pop())
            del table.stamps[keep:]
            table.refresh(keep)

    def num_freed_by(self, tables: Iterable[PageTable]) -> int:
        """Pages that would become available if these tables were closed."""
        held = Counter(page for table in tables for page in table.pages)
        return sum(self._references[page] == count for page, count in held.items())

    def close(self, table: PageTable) -> None:
        """Forget a sequence; its published pages stay cached until they are needed."""
        self._tables.remove(table)
        while table.pages:
            self._release(table.pages.pop())
        table.stamps.clear()
        table.refresh(0)

    def check_integrity(self) -> None:
        """Prove the accounts: every page in one state, counts right, sharing only of published pages.

        Raises:
            AssertionError: they are not right.
        """
        held = [0] * self.num_pages
        for table in self._tables:
            assert table.array.tolist() == table.pages, "the array differs from the pages"
            assert table.stamps == [self._stamps[page] for page in table.pages], "a stamp is not its page's"
            assert len(set(table.pages)) == len(table.pages), "a page twice in one table"
            assert 0 <= table.committed <= PAGE_TOKENS * len(table.pages), "committed slots without a page"
            assert PAGE_TOKENS * table.num_published <= table.committed, "an uncommitted page is published"
            key = _ROOT_KEY
            for index, page in enumerate(table.pages):
                held[page] += 1
                assert (page in self._entries) == (index < table.num_published), "a writable page is published"
                if index < table.num_published:
                    assert self._entries[page][0] == key, "the table does not follow the index"
                    key = self._keys[page]
            assert key == table.parent_key, "the table's key is not its last published page's"
        assert held == self._references, "reference counts differ from the tables"
        assert all(count <= 1 or page in self._entries for page, count in enumerate(held)), (
            "an unpublished page is shared"
        )
        free, cached = set(self._free), set(self._cached)
        referenced = {page for page, count in enumerate(held) if count}
        assert len(self._free) + len(self._cached) + len(referenced) == self.num_pages, "pages lost or doubled"
        assert free | cached | referenced == set(range(self.num_pages)), "pages lost or doubled"
        assert cached <= self._entries.keys(), "a cached page cannot be found"
        assert not free & self._entries.keys(), "a free page is published"
        assert {entry: page for page, entry in self._entries.items()} == self._index, "the index differs from its pages"
        reachable = {_ROOT_KEY, *self._keys.values()}
        assert all(entry[0] in reachable for entry in self._index), "a published page cannot be reached"

    def _find(self, tokens: Sequence[int]) -> Iterator[int]:
        """The published pages that tokens begin with; the last token's is none of them."""
        if not self._share_prefixes:
            return
        key = _ROOT_KEY
        for end in range(PAGE_TOKENS, len(tokens), PAGE_TOKENS):
            page = self._index.get((key, tuple(tokens[end - PAGE_TOKENS : end])))
            if page is None:
                return
            key = self._keys[page]
            yield page

    def _publish(self, table: PageTable, tokens: Sequence[int]) -> None:
        for index in range(table.num_published, table.committed // PAGE_TOKENS):
            page = table.pages[index]
            entry = (table.parent_key, tuple(tokens[PAGE_TOKENS * index : PAGE_TOKENS * (index + 1)]))
            known = self._index.get(entry)
            if known is None:
                self._index[entry] = page
                self._entries[page] = entry
                self._keys[page] = self._next_key
                self._next_key += 1
            else:
                # Someone wrote the same tokens meanwhile. Rows do not depend on their company, so
                # the two pages are equal bit for bit: keep theirs, give ours back.
                self._acquire(known)
                table.pages[index] = known
                table.stamps[index] = self._stamps[known]
                table.refresh(index)
                self._release(page)
                page = known
            table.parent_key = self._keys[page]
            table.num_published = index + 1

    def _take(self) -> int:
        """A free page, after an eviction if there is none."""
        if not self._free:
            page, _ = self._cached.popitem(last=False)
            del self._index[self._entries.pop(page)], self._keys[page]
            self._free.append(page)
        page = self._free.popleft()
        self._references[page] = 1
        self._stamps[page] = next(_stamps)
        return page

    def _acquire(self, page: int) -> None:
        self._cached.pop(page, None)
        self._references[page] += 1

    def _release(self, page: int) -> None:
        self._references[page] -= 1
        if self._references[page] == 0:
            if page in self._entries:
                self._cached[page] = None
            else:
                self._free.append(page)
