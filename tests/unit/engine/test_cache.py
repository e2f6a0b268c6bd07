from __future__ import annotations

import pytest

from headstart.engine.cache import PageAccounts, choose_num_pages
from headstart.errors import ConfigError
from headstart.runtime.protocol import PAGE_TOKENS

TEXT = list(range(100, 200))


def write(accounts: PageAccounts, tokens: list[int], *, close: bool = False):
    """A sequence with all of `tokens` committed."""
    table = accounts.open(tokens)
    missing = len(tokens) - table.committed
    assert accounts.reserve(table, missing)
    accounts.commit(table, missing, tokens)
    if close:
        accounts.close(table)
    accounts.check_integrity()
    return table


def test_rollback_returns_pages_of_rejected_rows_only():
    accounts = PageAccounts(4)
    table = accounts.open(TEXT)
    accounts.reserve(table, PAGE_TOKENS + 1)
    accounts.commit(table, PAGE_TOKENS - 1, TEXT)
    assert len(table.pages) == 1
    assert accounts.num_available == 3
    assert accounts.reserve(table, 2)  # the last slot of its page and one of another
    assert len(table.pages) == 2
    accounts.rollback(table)
    assert len(table.pages) == 1
    accounts.check_integrity()


def test_reserve_refuses_whole_or_not_at_all():
    accounts = PageAccounts(2)
    table = accounts.open(TEXT)
    assert not accounts.reserve(table, 2 * PAGE_TOKENS + 1)
    assert table.pages == []
    assert accounts.num_available == 2
    assert accounts.reserve(table, 2 * PAGE_TOKENS)


def test_full_pages_are_shared_but_never_the_last_token():
    accounts = PageAccounts(8)
    first = write(accounts, TEXT[: 2 * PAGE_TOKENS])
    second = accounts.open(TEXT[: 2 * PAGE_TOKENS])
    assert second.pages == first.pages[:1]  # the second page holds the last token, which must run
    longer = accounts.open(TEXT[: 2 * PAGE_TOKENS + 1])
    assert longer.pages == first.pages
    assert longer.committed == longer.num_shared == 2 * PAGE_TOKENS
    accounts.check_integrity()


def test_what_a_table_would_share_is_known_before_it_is_opened():
    accounts = PageAccounts(8)
    write(accounts, TEXT[: 2 * PAGE_TOKENS + 5], close=True)
    for tokens in (TEXT[: 2 * PAGE_TOKENS], TEXT[: 2 * PAGE_TOKENS + 1], [*TEXT[:20], 0], [0, *TEXT[1:]]):
        known = accounts.num_known(tokens)
        table = accounts.open(tokens)
        assert known == table.num_shared
        accounts.close(table)
    assert PageAccounts(8, share_prefixes=False).num_known(TEXT) == 0


def test_other_tokens_before_or_in_a_page_are_no_match():
    accounts = PageAccounts(8)
    write(accounts, TEXT[:40])
    assert accounts.open([0, *TEXT[1:40]]).committed == 0
    assert accounts.open([*TEXT[:20], 0, *TEXT[21:40]]).committed == PAGE_TOKENS
    # the same 16 tokens behind another page are another entry
    assert accounts.open(TEXT[16:40]).committed == 0
    accounts.check_integrity()


def test_uncommitted_rows_are_never_found():
    accounts = PageAccounts(8)
    table = accounts.open(TEXT)
    accounts.reserve(table, 3 * PAGE_TOKENS)
    assert accounts.open(TEXT).committed == 0
    accounts.commit(table, PAGE_TOKENS + 3, TEXT)
    assert accounts.open(TEXT).committed == PAGE_TOKENS
    accounts.check_integrity()


def test_released_pages_stay_until_they_are_needed_leaf_first():
    accounts = PageAccounts(4)
    write(accounts, TEXT[: 3 * PAGE_TOKENS], close=True)
    assert accounts.num_cached == 3
    assert accounts.num_available == 4
    other = accounts.open([1])
    accounts.reserve(other, 2 * PAGE_TOKENS)  # one free page, one evicted
    accounts.check_integrity()
    assert accounts.open(TEXT).committed == 2 * PAGE_TOKENS  # the last page of the three went
    accounts.check_integrity()


def test_a_page_in_use_is_not_evicted():
    accounts = PageAccounts(2)
    holder = write(accounts, TEXT[: PAGE_TOKENS + 1])
    other = accounts.open([1])
    assert not accounts.reserve(other, 1)
    accounts.close(holder)
    assert accounts.reserve(other, 1)
    accounts.check_integrity()


def test_equal_pages_written_side_by_side_become_one():
    accounts = PageAccounts(4)
    first, second = accounts.open(TEXT), accounts.open(TEXT)
    for table in (first, second):
        accounts.reserve(table, PAGE_TOKENS)
    assert first.pages != second.pages
    for table in (first, second):
        accounts.commit(table, PAGE_TOKENS, TEXT)
    assert first.pages == second.pages == second.array.tolist()
    assert accounts.num_available == 3
    accounts.check_integrity()
    accounts.close(first)
    accounts.check_integrity()
    accounts.close(second)
    assert accounts.num_cached == 1


def test_without_sharing_nothing_is_kept():
    accounts = PageAccounts(4, share_prefixes=False)
    write(accounts, TEXT[:40], close=True)
    assert accounts.num_cached == 0
    assert accounts.open(TEXT[:40]).committed == 0


@pytest.mark.parametrize(
    "damage",
    [
        lambda accounts, table: accounts._references.__setitem__(table.pages[0], 2),
        lambda accounts, table: accounts._free.append(table.pages[0]),
        lambda accounts, table: accounts._free.pop(),
        lambda accounts, table: setattr(table, "committed", 8),
        lambda accounts, table: table.pages.append(table.pages[0]),
        lambda accounts, table: accounts._entries.pop(table.pages[0]),
        lambda accounts, table: setattr(table, "num_published", 2),
    ],
)
def test_integrity_check_sees_damage(damage):
    accounts = PageAccounts(4)
    table = write(accounts, TEXT[:20])
    damage(accounts, table)
    with pytest.raises((AssertionError, KeyError)):
        accounts.check_integrity()


def test_cache_size():
    assert choose_num_pages(33, page_bytes=1, most_tokens=10**9) == 3
    assert choose_num_pages(None, page_bytes=1 << 20, most_tokens=10**9) == 512
    assert choose_num_pages(None, page_bytes=1 << 40, most_tokens=10**9) == 1
    assert choose_num_pages(None, page_bytes=1, most_tokens=100) == 7
    with pytest.raises(ConfigError, match="cache_tokens"):
        choose_num_pages(0, page_bytes=1, most_tokens=1)


def test_a_stamp_tells_whether_a_page_was_taken_anew():
    accounts = PageAccounts(3)
    first = write(accounts, TEXT[:20])
    stamps = list(first.stamps)
    accounts.close(first)
    again = accounts.open(TEXT[:20])
    assert again.stamps == stamps[:1]  # its first page was published, and is there still
    assert accounts.reserve(again, 4)
    assert again.stamps[1] != stamps[1]
    accounts.close(again)
    other = write(accounts, TEXT[40:88])  # takes all pages
    assert not {*other.stamps} & {*stamps, *again.stamps}


def test_of_two_that_write_the_same_the_second_takes_over_page_and_stamp_of_the_first():
    accounts = PageAccounts(4)
    tables = [accounts.open(TEXT), accounts.open(TEXT)]
    for table in tables:
        assert accounts.reserve(table, PAGE_TOKENS + 1)
    kept, lost = ([*table.stamps] for table in tables)
    for table in tables:
        accounts.commit(table, PAGE_TOKENS + 1, TEXT)
        accounts.check_integrity()
    assert tables[0].stamps == kept
    assert tables[1].stamps == [kept[0], lost[1]]
