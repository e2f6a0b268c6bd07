"""Targets against a naive loop over documents: every shift, border and mask in one place."""

from __future__ import annotations

from itertools import pairwise

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from headstart.errors import ConfigError  # noqa: E402
from headstart.train.targets import (  # noqa: E402
    IGNORE_INDEX,
    future_targets,
    position_in_document,
    require_supervision,
)

Document = list[tuple[int, bool]]
documents_of = st.lists(
    st.lists(st.tuples(st.integers(0, 50), st.booleans()), min_size=1, max_size=8), min_size=1, max_size=5
)


def naive(document: Document, offset: int) -> list[int]:
    """Targets of one document, by a loop."""
    targets = []
    for position in range(len(document)):
        ahead = position + offset
        token, supervised = document[ahead] if ahead < len(document) else (0, False)
        targets.append(token if supervised else IGNORE_INDEX)
    return targets


def packed(documents: list[Document], ids: list[int]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rows = [
        (token, number, supervised)
        for number, document in zip(ids, documents, strict=True)
        for token, supervised in document
    ]
    tokens, numbers, mask = zip(*rows, strict=True)
    return torch.tensor(tokens), torch.tensor(numbers), torch.tensor(mask)


@settings(max_examples=150, deadline=None)
@given(documents=documents_of, offset=st.integers(1, 9))
def test_packed_is_unpacked_is_the_naive_loop(documents: list[Document], offset: int) -> None:
    targets, valid = future_targets(*packed(documents, list(range(len(documents)))), offset)
    expected = [target for document in documents for target in naive(document, offset)]
    assert targets.tolist() == expected
    assert valid.tolist() == [target != IGNORE_INDEX for target in expected]
    alone = [future_targets(*packed([document], [7]), offset)[0] for document in documents]
    assert torch.cat(alone).tolist() == expected


@settings(max_examples=100, deadline=None)
@given(documents=documents_of)
def test_positions_begin_anew_in_each_document(documents: list[Document]) -> None:
    numbers = packed(documents, list(range(len(documents))))[1]
    expected = [position for document in documents for position in range(len(document))]
    assert position_in_document(numbers).tolist() == expected
    assert position_in_document(numbers.expand(2, -1)).tolist() == [expected, expected]


def test_rows_of_a_batch_are_windows_of_their_own() -> None:
    tokens = torch.tensor([[1, 2, 3], [4, 5, 6]])
    targets, valid = future_targets(tokens, torch.zeros_like(tokens), torch.ones_like(tokens, dtype=torch.bool), 2)
    assert targets.tolist() == [[3, IGNORE_INDEX, IGNORE_INDEX], [6, IGNORE_INDEX, IGNORE_INDEX]]
    assert valid.tolist() == [[True, False, False], [True, False, False]]


def test_an_id_that_comes_again_is_another_document() -> None:
    numbers = torch.tensor([1, 2, 1])
    targets, _ = future_targets(torch.tensor([10, 11, 12]), numbers, torch.ones(3, dtype=torch.bool), 2)
    assert targets.tolist() == [IGNORE_INDEX] * 3
    assert position_in_document(numbers).tolist() == [0, 0, 0]


def test_the_mask_moves_with_its_target() -> None:
    """The first answer token is learnt from the last prompt token; a mask left unshifted trains the one after it."""
    answer = torch.tensor([False, False, True, True])
    _, valid = future_targets(torch.arange(4), torch.zeros(4, dtype=torch.int64), answer, 1)
    assert valid.tolist() == [False, True, True, False]


def test_each_depth_keeps_every_position_it_can_supervise() -> None:
    one = torch.zeros(6, dtype=torch.int64)
    counts = [
        int(future_targets(torch.arange(6), one, torch.ones(6, dtype=torch.bool), k)[1].sum()) for k in range(1, 8)
    ]
    assert all(later == max(0, earlier - 1) for earlier, later in pairwise(counts))
    assert counts[0] == 5


def test_a_window_without_supervision_stops_the_run() -> None:
    require_supervision(torch.tensor([[False], [True]]), "step 3")
    with pytest.raises(ConfigError, match=r"step 3: none of its 4 positions"):
        require_supervision(torch.zeros(2, 2, dtype=torch.bool), "step 3")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"offset": 0}, "offset = 0"),
        ({"documents": torch.zeros(2, dtype=torch.int64)}, r"documents \[2\]"),
        ({"supervised": torch.ones(3)}, "must be bool"),
        ({"tokens": torch.ones(3)}, "whole numbers"),
    ],
)
def test_what_does_not_fit_is_refused(changed: dict[str, object], message: str) -> None:
    right = {
        "tokens": torch.zeros(3, dtype=torch.int64),
        "documents": torch.zeros(3, dtype=torch.int64),
        "supervised": torch.ones(3, dtype=torch.bool),
        "offset": 1,
    }
    with pytest.raises(ConfigError, match=message):
        future_targets(**{**right, **changed})
