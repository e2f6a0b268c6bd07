"""A run's folder: what is refused, what survives an interruption, and that states come back bit for bit."""

from __future__ import annotations

import errno
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from headstart.errors import CheckpointError, ConfigError  # noqa: E402
from headstart.train.run_directory import RunDirectory  # noqa: E402

CONFIG = {"kind": "eagle3", "taps": [1, 2], "learning_rate": 0.002}


def test_a_run_is_gone_on_with_under_the_same_settings_only(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run", CONFIG)
    assert not run.resumed
    run.remember("steps", 3)
    assert RunDirectory(tmp_path / "run", dict(CONFIG)).resumed
    with pytest.raises(ConfigError, match=r"learning_rate was 0.002 and is now 0.001"):
        RunDirectory(tmp_path / "run", CONFIG | {"learning_rate": 0.001})
    with pytest.raises(ConfigError, match=r"extra was None and is now 1"):
        RunDirectory(tmp_path / "run", CONFIG | {"extra": 1})


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="Name another"):
        RunDirectory(tmp_path / "file" / "run", CONFIG)


def test_states_come_back_bit_for_bit(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path, CONFIG)
    assert run.load() is None
    tensors = {
        "matrix": torch.randn(3, 5, generator=torch.Generator().manual_seed(0)).T,  # not contiguous
        "number": torch.tensor(7.0),
        "odd": torch.tensor([torch.nan, torch.inf, -0.0, 1e-45]),
        "empty": torch.zeros(0, 4),
    }
    run.save(tensors, {"step": 3, "best": 1.5})
    run.save(tensors, {"step": 4, "best": 1.25})
    found, progress = RunDirectory(tmp_path, CONFIG).load() or ({}, {})
    assert progress == {"step": 4, "best": 1.25}
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].shape == tensor.shape
        assert torch.equal(found[name].view(torch.int32), tensor.contiguous().view(torch.int32)), name
    found["number"].add_(1)  # memory of its own, not the file's


def test_a_state_of_another_type_would_not_come_back_and_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="half"):
        RunDirectory(tmp_path, CONFIG).save({"half": torch.zeros(2, dtype=torch.bfloat16)}, {})


def test_a_damaged_state_is_named(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path, CONFIG)
    run.save({"weight": torch.zeros(100)}, {"step": 1})
    path = tmp_path / "state.safetensors"
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(CheckpointError, match=r"state\.safetensors"):
        run.load()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (struct.pack("<f", 1.5), struct.pack("<f", -1.5)),
        (struct.pack("<f", 2.5), struct.pack("<f", 2.625)),
        (rb"{\"step\": 100}", rb"{\"step\": 900}"),
        (b"[4,6]", b"[6,4]"),
        (b"[4, 6]", b"[6, 4]"),
    ],
)
def test_a_state_with_an_altered_number_is_named(tmp_path: Path, old: bytes, new: bytes) -> None:
    run = RunDirectory(tmp_path, CONFIG)
    run.save({"weight": torch.full((100,), 1.5), "other": torch.full((4, 6), 2.5)}, {"step": 100})
    path = tmp_path / "state.safetensors"
    content = path.read_bytes()
    if old not in content and old.startswith(b"[4"):
        return  # spelled with or without a blank, and tried so
    assert old in content
    path.write_bytes(content.replace(old, new, 1))
    with pytest.raises(CheckpointError, match=r"state\.safetensors is damaged: it does not hold what was written"):
        run.load()


def test_a_save_that_was_interrupted_leaves_the_one_before(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path, CONFIG)
    run.save({"weight": torch.ones(3)}, {"step": 1})
    (tmp_path / "state.safetensors.partial").write_bytes(b"cut off")
    loaded = run.load()
    assert loaded is not None
    assert loaded[1] == {"step": 1}
    run.save({"weight": torch.ones(3)}, {"step": 2})
    assert not list(tmp_path.glob("*.partial"))


def test_metrics_after_the_checkpoint_are_forgotten(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path, CONFIG)
    run.forget_after(3)  # nothing there is nothing to forget
    entries = [{"kind": "text"}, {"step": 0}, *({"step": step, "loss": 1 / step} for step in range(1, 6))]
    for entry in entries:
        run.log(**entry)
    run.forget_after(3)
    assert run.metrics() == entries[:5]
    run.forget_after(-1)
    assert run.metrics() == [{"kind": "text"}]


def test_a_line_that_was_cut_off_spoils_no_other(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path, CONFIG)
    run.log(step=1)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 2, "lo')
    assert run.metrics() == [{"step": 1}]
    gone_on = RunDirectory(tmp_path, CONFIG)
    gone_on.log(step=2)
    assert gone_on.metrics() == [{"step": 1}, {"step": 2}]


def test_decisions_are_kept(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path, CONFIG)
    assert run.recall("num_steps") is None
    run.remember("num_steps", 10)
    run.remember("plan", {"every": 3})
    gone_on = RunDirectory(tmp_path, CONFIG)
    assert (gone_on.recall("num_steps"), gone_on.recall("plan")) == (10, {"every": 3})


def test_a_run_that_left_nothing_may_begin_again_with_other_settings(tmp_path: Path) -> None:
    RunDirectory(tmp_path, CONFIG)
    run = RunDirectory(tmp_path, CONFIG | {"learning_rate": 0.001})
    assert not run.resumed
    run.remember("steps", 3)
    with pytest.raises(ConfigError, match=r"learning_rate was 0.001 and is now 0.002"):
        RunDirectory(tmp_path, CONFIG)


@pytest.mark.parametrize("name", ["model/model.safetensors", "config.json", "notes.txt"])
def test_a_folder_with_something_else_is_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("{}")
    (tmp_path / "other").write_text("")
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(ConfigError, match="holds no run, but other files"):
        RunDirectory(tmp_path, CONFIG)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert (tmp_path / name).read_text() == "{}"


@pytest.mark.parametrize("beside", [None, ".git"])
def test_a_config_of_something_else_is_left_alone(tmp_path: Path, beside: str | None) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    if beside:
        (tmp_path / beside).mkdir()
    with pytest.raises(ConfigError, match=r"holds no run, but other files, such as config\.json"):
        RunDirectory(tmp_path, CONFIG)
    assert (tmp_path / "config.json").read_text() == '{"model_type": "llama"}'


def test_a_folder_is_one_process_s_at_a_time(tmp_path: Path) -> None:
    """A second one is refused while the first lives, before it has left anything as well; a kill lets go."""
    script = "import sys; from headstart.train.run_directory import RunDirectory as R; from pathlib import Path; "
    script += "run = R(Path(sys.argv[1]), {}); print('begun', flush=True); input(); run.remember('x', 1); "
    script += "print('left', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "run")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        for said in ("begun\n", "left\n"):
            assert other.stdout.readline() == said
            with pytest.raises(ConfigError, match="another process is at work in this folder"):
                RunDirectory(tmp_path / "run", {})
            if said == "begun\n":
                other.stdin.write("\n")
                other.stdin.flush()
        other.kill()
    run = RunDirectory(tmp_path / "run", {})
    assert run.recall("x") == 1
    assert RunDirectory(tmp_path / "run", {}).recall("x") == 1  # the same process may open it again
    refused = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "run")], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert "another process is at work" in refused.stderr  # though the second one is gone


def test_a_finished_run_that_was_made_read_only_can_be_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    RunDirectory(tmp_path / "run", {}).remember("x", 1)
    shutil.move(tmp_path / "run", tmp_path / "moved")
    opened = Path.open

    def refuse(path: Path, mode: str = "r", *arguments: Any, **named: Any) -> Any:
        if not mode.startswith("r"):
            raise PermissionError(errno.EACCES, "read-only")
        return opened(path, mode, *arguments, **named)

    monkeypatch.setattr(Path, "open", refuse)
    assert RunDirectory(tmp_path / "moved", {}).recall("x") == 1


def test_a_run_may_begin_where_only_an_interrupted_beginning_or_hidden_files_lie(tmp_path: Path) -> None:
    for name in ("config.json.partial", ".gitignore"):
        (tmp_path / name).write_text("")
    assert not RunDirectory(tmp_path, CONFIG).resumed


def test_what_is_written_whole_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    sync, place = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda file: done.append("synced") or sync(file))
    monkeypatch.setattr(os, "replace", lambda old, new: done.append(Path(new).name) or place(old, new))
    RunDirectory(tmp_path, CONFIG).remember("steps", 3)
    assert done == ["synced", "config.json", "synced", "decisions.json"]


def test_metrics_are_json_whatever_a_step_came_to(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path, CONFIG)
    run.log(step=1, loss=float("nan"), losses=[1.5, float("inf")], by_kind={"a": -float("inf")}, skipped=True)
    text = (tmp_path / "metrics.jsonl").read_text()
    assert text == '{"step": 1, "loss": null, "losses": [1.5, null], "by_kind": {"a": null}, "skipped": true}\n'
