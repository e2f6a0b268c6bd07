"""Texts after which a drafter guesses and the model cannot know: where a wrong way of drawing shows.

Most texts are of no use for that: where a drafter that looks words up finds something, the model is sure of what
comes, and where the model is not, there is nothing to be found. Here both hold by construction. The words of a small
set follow each other as in a de Bruijn sequence: every run of so many words occurs just once, so each shorter run was
followed by every word equally often. Hence the end of the text was always there before, and what came after it then
says nothing about what comes now. A drafter that is a model guesses anyway.

Source: van Aardenne-Ehrenfest and de Bruijn, Circuits and trees in oriented linear graphs (1951).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product

# The words, what stands between them, and the length of the runs that occur once: longer for fewer words, for texts of
# like length. They end with a separator, so that a whole word comes next, in whatever way a vocabulary cuts words.
_GAMES: tuple[tuple[tuple[str, ...], str, int], ...] = (
    (("yes", "no"), "\n", 6),
    (("left", "right", "up", "down"), "\n", 3),
    (("red", "blue", "green"), ",", 4),
)


def chance_texts(seed: int = 0) -> tuple[str, ...]:
    """Texts of some 70 to 90 words that go on by chance.

    Args:
        seed: of the order of the words.
    """
    source = random.Random(seed)
    return tuple(
        "".join(words[index] + separator for index in every_run_once(len(words), length, source))
        for words, separator, length in _GAMES
    )


def every_run_once(num_symbols: int, length: int, source: random.Random) -> list[int]:
    """A random sequence in which each run of symbols occurs exactly once.

    Args:
        num_symbols: how many different ones there are.
        length: of a run, at least 2.
        source: of chance.

    Returns:
        Symbols from 0, `num_symbols ** length + length - 1` of them.
    """
    # a walk over all edges of the graph whose nodes are the runs of one symbol less (Hierholzer)
    unused = {
        node: source.sample(range(num_symbols), num_symbols) for node in product(range(num_symbols), repeat=length - 1)
    }
    path: list[Sequence[int]] = [next(iter(unused))]
    circuit: list[Sequence[int]] = []
    while path:
        if unused[tuple(path[-1])]:
            path.append((*path[-1][1:], unused[tuple(path[-1])].pop()))
        else:
            circuit.append(path.pop())
    circuit.reverse()
    return [*circuit[0], *(node[-1] for node in circuit[1:])]
