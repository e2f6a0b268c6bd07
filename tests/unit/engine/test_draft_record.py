from __future__ import annotations

import pytest

from headstart.decoding.trees import chain
from headstart.engine.draft_record import FAIR_TRIAL, FAIR_TRIAL_OF_SEQUENCE, DraftRecord, TypicalTree
from headstart.records import Tree


def test_a_typical_tree_is_the_average_at_each_rank():
    typical = TypicalTree(0.01)
    typical.learn([0.8, 0.4])
    typical.learn([0.6])
    typical.learn([0.4, 0.2, 0.1])
    assert typical.probabilities == pytest.approx([0.6, 0.2, 0.1 / 3])


def test_a_few_bad_trees_are_no_fair_trial():
    typical = TypicalTree(0.01)
    assert typical.hoped == (1.0,)
    for _ in range(FAIR_TRIAL - 1):
        typical.learn([0.1, 0.05])
        assert typical.on_trial
    assert typical.hoped == pytest.approx((1.0, 0.05))
    assert typical.expected == pytest.approx([0.1, 0.05])
    typical.learn([0.1, 0.05])
    assert not typical.on_trial


def test_a_new_text_is_another_trial():
    all_texts = TypicalTree(0.02)
    for _ in range(FAIR_TRIAL):
        all_texts.learn([0.1])
    own = TypicalTree(0.1, all_texts)
    assert own.on_trial
    for _ in range(FAIR_TRIAL_OF_SEQUENCE):
        own.learn([0.8])
    assert not own.on_trial
    assert own.expected == [0.8]


def test_new_trees_weigh_more_than_old_ones():
    typical = TypicalTree(0.1)
    for _ in range(100):
        typical.learn([0.9, 0.8])
    for _ in range(20):
        typical.learn([0.1])
    assert typical.probabilities == pytest.approx([0.1 + 0.8 * 0.9**20, 0.8 * 0.9**20])


def test_a_good_tree_gives_hope_for_one_more():
    typical = TypicalTree(0.1)
    for _ in range(30):
        typical.learn([0.1])
    typical.learn([0.9, 0.8])
    assert typical.expected == [0.9, 0.8]
    typical.learn([0.2])
    assert sum(typical.expected) < 0.4


def test_a_new_text_is_believed_to_be_like_the_others_until_it_shows_its_own():
    all_texts = TypicalTree(0.02)
    for _ in range(5):
        all_texts.learn([0.9])
    own = TypicalTree(0.1, all_texts)
    assert own.probabilities == pytest.approx([0.9])
    for _ in range(10):
        own.learn([0.0])
    assert own.probabilities[0] < 0.4
    assert all_texts.probabilities == pytest.approx([0.9])


def test_continuation_is_judged_where_a_node_with_children_was_right():
    record = DraftRecord()
    assert record.continuation == 1.0
    fork = Tree((1, 2, 3, 4), (-1, -1, 0, 0), (0.6, 0.3, 0.3, 0.2))
    for _ in range(300):
        record.observe(fork, [1, 4, 9])  # one of two children is right
        record.observe(fork, [1, 5])  # none is
        record.observe(fork, [2, 5])  # that one has none
        record.observe(fork, [7])  # not even the first
        record.observe(chain([1, 2], [0.5, 0.5]), [1])  # the text ended there
    assert record.continuation == pytest.approx(0.5, abs=0.02)
