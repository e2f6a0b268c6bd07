from __future__ import annotations

from pathlib import Path

import pytest

from headstart.errors import CheckpointError, ConfigError
from headstart.measure.bench import CostSample, Journal, PassSize, Turn

COST = CostSample(cell="c", side="none", repeat=0, group="g", context=3, seconds={PassSize(1, 1): 0.25})


def test_another_run_is_refused_and_what_differs_is_named(tmp_path: Path) -> None:
    Journal(tmp_path, {"model": {"name": "a"}, "threads": 2, "settings": {"cells": [1]}})
    Journal(tmp_path, {"model": {"name": "a"}, "threads": 2, "settings": {"cells": (1,)}})
    with pytest.raises(ConfigError, match="another model, threads"):
        Journal(tmp_path, {"model": {"name": "b"}, "threads": 3, "settings": {"cells": [1]}})


def test_a_line_that_was_cut_off_is_measured_again(tmp_path: Path) -> None:
    journal = Journal(tmp_path, {})
    journal.add(COST)
    path = tmp_path / "turns.jsonl"
    whole = path.read_text()
    path.write_text(whole + '{"kind": "turn", "cel')
    again = Journal(tmp_path, {})
    assert again.costs == [COST]
    assert path.read_text() == whole
    assert again.has(CostSample, "c", "none", 0, "g")
    assert not again.has(CostSample, "c", "none", 1, "g")
    assert not again.has(Turn, "c", "none", 0, "g")


@pytest.mark.parametrize(
    "text", ["\n", "{}\n", '{"form": 99, "subject": {}}\n', '{"form": 1, "subject": {}}\n{"kind": 3}\n']
)
def test_what_is_no_journal_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "turns.jsonl").write_text(text)
    with pytest.raises(CheckpointError, match="is damaged"):
        Journal(tmp_path, {})


def test_nothing_is_written_without_a_folder() -> None:
    journal = Journal(None, {})
    assert journal.is_new
    journal.add(COST)
    assert journal.has(CostSample, "c", "none", 0, "g")
