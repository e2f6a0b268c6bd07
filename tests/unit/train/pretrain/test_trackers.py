"""What other programs are sent, read back from what they wrote. Each is tried where it is installed."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from headstart.errors import UnsupportedError  # noqa: E402
from headstart.train.pretrain.config import PretrainConfig  # noqa: E402
from headstart.train.pretrain.run import pretrain  # noqa: E402
from headstart.train.pretrain.trackers import flat  # noqa: E402

MakeConfig = Callable[..., PretrainConfig]
Figures = dict[tuple[str, int], float]

_LOG_BLOCK, _LOG_HEADER, _FILE_HEADER = 32768, 7, 7


def logged(out: Path) -> Figures:
    """Figures by name and step, as the run's own file has them."""
    found: Figures = {}
    for line in (out / "run" / "metrics.jsonl").read_text().splitlines():
        entry = json.loads(line)
        kind, step = entry.pop("kind"), entry.pop("step")
        found |= {(name, step): value for name, value in flat(entry, kind).items()}
    return found


def interrupted_and_finished(config: PretrainConfig, out: Path) -> Figures:
    """What a run logged that was stopped and taken up."""
    asked = iter([False, False, True])
    assert pretrain(config, out, should_stop=lambda: next(asked)) is None
    assert pretrain(config, out) is not None
    found = logged(out)
    # a line of every kind, tables in tables and lists among its figures
    assert {"step/losses/2", "validation/bits_per_byte", "measured/drawn/tau"} <= {name for name, _ in found}
    assert {step for _, step in found} == set(range(1, 7))
    return found


def test_a_tracker_is_begun_sent_to_and_closed(
    tiny_run: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a stand-in, so that it is tried where none is installed."""
    sent: dict[int, dict[str, float]] = {}
    begun: list[dict[str, Any]] = []
    closed: list[bool] = []

    class Trackio:
        @staticmethod
        def init(**named: Any) -> None:
            begun.append(named)

        @staticmethod
        def log(figures: dict[str, float], step: int) -> None:
            sent.setdefault(step, {}).update(figures)

        @staticmethod
        def finish() -> None:
            closed.append(True)

    monkeypatch.setitem(sys.modules, "trackio", Trackio)
    expected = interrupted_and_finished(tiny_run(train={"track": ("trackio",)}), tmp_path / "one")
    assert {(name, step): value for step, figures in sent.items() for name, value in figures.items()} == expected
    assert len(begun) == len(closed) == 2
    assert begun[0] == begun[1]
    assert (begun[0]["project"], begun[0]["resume"], begun[0]["config"]["heads.n"]) == ("headstart", "allow", 3)
    assert begun[0]["name"].startswith("one-")


def test_tensorboard_has_every_figure_once(tiny_run: MakeConfig, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    expected = interrupted_and_finished(tiny_run(train={"track": ("tensorboard",)}), tmp_path / "model")
    reader = EventAccumulator(str(tmp_path / "model" / "run" / "tensorboard"), size_guidance={"scalars": 0})
    reader.Reload()
    events = [(name, event.step, event.value) for name in reader.Tags()["scalars"] for event in reader.Scalars(name)]
    assert len(events) == len(expected)
    assert {(name, step): value for name, step, value in events} == pytest.approx(expected, rel=1e-6)


def test_wandb_has_every_figure_also_without_a_network(
    tiny_run: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    expected = interrupted_and_finished(tiny_run(train={"track": ("wandb",)}), tmp_path / "model")
    files = sorted((tmp_path / "model" / "run" / "wandb").glob("offline-run-*/run-*.wandb"))
    found: Figures = {}
    for file in files:
        found |= _wandb_history(file)
    assert found == expected
    assert len({file.stem for file in files}) == 1, "one run, taken up again"


def test_trackio_has_every_figure(
    tiny_run: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))  # read when it is imported
    pytest.importorskip("trackio")
    expected = interrupted_and_finished(tiny_run(train={"track": ("trackio",)}), tmp_path / "model")
    assert capsys.readouterr().out == ""  # stdout is for results
    with sqlite3.connect(tmp_path / "trackio" / "headstart.db") as database:
        rows = database.execute("SELECT run_name, step, metrics FROM metrics").fetchall()
    found: Figures = {(name, step): value for _, step, row in rows for name, value in json.loads(row).items()}
    assert found == expected
    (name,) = {name for name, _, _ in rows}  # one run, taken up again
    assert name.startswith("model-")


def test_a_tracker_that_does_not_begin_is_named(
    tiny_run: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = pytest.importorskip("wandb")

    def refuse(**settings: Any) -> None:
        raise wandb.errors.UsageError("No API key configured")

    monkeypatch.setattr(wandb, "init", refuse)
    with pytest.raises(UnsupportedError, match=r"No API key configured.*WANDB_MODE=offline.*metrics\.jsonl"):
        pretrain(tiny_run(train={"track": ("wandb",)}), tmp_path)


def _wandb_history(file: Path) -> Figures:
    from wandb.proto.wandb_internal_pb2 import Record

    found: Figures = {}
    for content in _log_records(file.read_bytes()):
        record = Record()
        record.ParseFromString(content)
        if record.WhichOneof("record_type") != "history":
            continue
        row = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        found |= {(name, row["_step"]): value for name, value in row.items() if not name.startswith("_")}
    return found


def _log_records(content: bytes) -> Iterator[bytes]:
    """Records of a log in LevelDB's format: blocks of parts, each with a checksum, a length and a kind."""
    place, parts = _FILE_HEADER, b""
    while place + _LOG_HEADER <= len(content):
        if _LOG_BLOCK - place % _LOG_BLOCK < _LOG_HEADER:  # the rest of a block that holds no header is padding
            place += _LOG_BLOCK - place % _LOG_BLOCK
            continue
        length, kind = int.from_bytes(content[place + 4 : place + 6], "little"), content[place + 6]
        parts += content[place + _LOG_HEADER : place + _LOG_HEADER + length]
        place += _LOG_HEADER + length
        if kind in (1, 4):  # whole, or the last part
            yield parts
            parts = b""
