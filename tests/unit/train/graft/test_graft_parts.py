"""Which of a text's tokens heads learn, and by which they are judged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")

from headstart.architectures.reading import read_config
from headstart.train.graft_config import GraftConfig
from headstart.train.graft_parts import make_trainer_config, part_text

from ..conftest import random_documents

CONFIG = GraftConfig(kind="medusa", depth=2, draft_vocab_size=50, window=64)


def test_prompts_are_learnt_too_but_neither_judged_by_nor_counted_as_common(tiny_checkpoint):
    trunk = read_config(tiny_checkpoint())[1]
    documents = random_documents([30] * 20)
    whole, answers = (
        part_text(documents, replace(CONFIG, learn=learn), CONFIG.heads_config(trunk), trunk)
        for learn in ("all", "answers")
    )
    assert np.array_equal(whole.windows.tokens, answers.windows.tokens)
    assert whole.windows.supervised.sum() == (whole.windows.documents >= 0).sum()
    assert 0 < answers.windows.supervised.sum() < 0.9 * whole.windows.supervised.sum()
    assert np.array_equal(whole.validation.supervised, answers.validation.supervised)
    assert whole.vocabulary is not None
    assert np.array_equal(whole.vocabulary, answers.vocabulary)
    assert whole.coverage == answers.coverage < 1


def test_the_trainer_is_told_what_was_asked_for():
    asked = replace(CONFIG, learning_rate=0.5, weight_decay=0.25, batch_windows=3, seed=7)
    config = make_trainer_config(asked)
    assert (config.learning_rate, config.weight_decay, config.batch_windows, config.seed) == (0.5, 0.25, 3, 7)
