"""Whose a trunk's cache is: of whoever made it last.

A trunk has one cache. Two engines over one trunk would write into each other's
pages and find nothing amiss but the text; the earlier one is to stop instead.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from headstart.errors import ConfigError
from headstart.runtime.protocol import Trunk


class CacheClaim:
    """A right to a trunk's cache, until the next one is made for the same trunk."""

    # a claim must not hold its trunk, or no trunk would ever be freed
    __slots__ = ()


_holders: WeakKeyDictionary[Trunk, CacheClaim] = WeakKeyDictionary()


def claim_cache(trunk: Trunk, num_pages: int) -> CacheClaim:
    """Make a trunk's cache, and take it from whoever had it.

    Args:
        trunk: whose cache.
        num_pages: pages of the cache.

    Raises:
        CapacityError: the cache does not fit into memory.
    """
    trunk.make_cache(num_pages)
    claim = _holders[trunk] = CacheClaim()
    return claim


def check_claim(trunk: Trunk, claim: CacheClaim) -> None:
    """Refuse to go on with a cache that was made anew by someone else.

    Raises:
        ConfigError: it was.
    """
    if _holders.get(trunk) is not claim:
        raise ConfigError(
            "The trunk's cache was taken by an engine or drafter made after this one. A trunk serves one at a time: "
            "load it once for each, or be through with one before the next is made."
        )
