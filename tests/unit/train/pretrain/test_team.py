"""Several processes on one machine, forked so that they need not load PyTorch again."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.distributed.checkpoint.api import CheckpointException  # noqa: E402

from headstart.checkpoint.safetensors import read_safetensors  # noqa: E402
from headstart.errors import CheckpointError, ConfigError  # noqa: E402
from headstart.train.corpus import CorpusWindows, open_corpus  # noqa: E402
from headstart.train.pretrain import state_store  # noqa: E402
from headstart.train.pretrain.batch import LabelledText, count_rows, labelled_text  # noqa: E402
from headstart.train.pretrain.blueprint import make_blueprint  # noqa: E402
from headstart.train.pretrain.config import PretrainConfig  # noqa: E402
from headstart.train.pretrain.parts import make_model  # noqa: E402
from headstart.train.pretrain.run import pretrain  # noqa: E402
from headstart.train.pretrain.team import Team  # noqa: E402

MakeConfig = Callable[..., PretrainConfig]
KINDS: dict[str, dict[str, Any]] = {
    "parallel": {},
    "sequential": {"kind": "sequential"},
    "unrolled": {"kind": "sequential", "unrolled": True},
}
TIED = {"hidden_size": 32, "num_layers": 2, "num_heads": 2, "intermediate_size": 64, "context": 256, "tied": True}


FORK = multiprocessing.get_context("fork")


def started(size: int, work: Callable[[], Any], results: Any) -> list[Any]:
    """So many processes that do `work`, and put what it gives, or the error, into a queue with their rank."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def run(rank: int) -> None:
        os.environ |= {
            "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }  # fmt: skip
        torch.set_num_threads(1)
        try:
            results.put((rank, True, work()))
        except BaseException as error:
            results.put((rank, False, f"{type(error).__name__}: {error}"))

    processes = [FORK.Process(target=run, args=(rank,)) for rank in range(size)]
    for process in processes:
        process.start()
    return processes


def together(size: int, work: Callable[[], Any]) -> list[Any]:
    """What `work` gives in each of so many processes, in order of ranks."""
    results = FORK.Queue()
    processes = started(size, work, results)
    found = [results.get(timeout=60) for _ in processes]
    for process in processes:
        process.join(timeout=60)
    failed = [text for _, succeeded, text in found if not succeeded]
    if failed:
        raise AssertionError(failed)
    return [value for _, _, value in sorted(found, key=lambda entry: entry[0])]


def batch_of(config: PretrainConfig, rank: int, size: int) -> LabelledText:
    windows = CorpusWindows(open_corpus(config.data.path).train, 48, 4, 0, rank=rank, world_size=size)
    return labelled_text(windows.batch(0), torch.device("cpu"))


def gradients_of(
    configs: dict[str, PretrainConfig], learns: Callable[[LabelledText], LabelledText] = lambda batch: batch
) -> dict[str, tuple[float, dict[str, Any]]]:
    """Of each run: loss and gradients of one step, in float64, by as many processes as there are."""
    team = Team("cpu")
    found = {}
    for kind, config in configs.items():
        blueprint = make_blueprint(config, open_corpus(config.data.path).vocab_size)
        model = team.place(make_model(blueprint, 0).double())
        batch = learns(batch_of(config, team.rank, team.size))
        counts = team.sum(torch.tensor(count_rows(model.heads_config, batch, 2))).tolist()
        loss = model(batch, (0.5, 0.25), counts).loss
        (loss * team.loss_factor).backward()
        whole = team.whole({name: weight.grad for name, weight in model.weights().items()})
        found[kind] = float(team.sum(loss.detach())), {name: gradient.numpy() for name, gradient in whole.items()}
    team.leave()
    return found


@pytest.mark.parametrize("size", [2, 4])
def test_loss_and_gradients_are_those_of_one_process(tiny_run: MakeConfig, size: int) -> None:
    configs = {kind: tiny_run(heads) for kind, heads in KINDS.items()}
    configs |= {f"{kind}, tied": tiny_run(heads, model=TIED) for kind, heads in KINDS.items()}
    require_alike(gradients_of(configs), together(size, lambda: gradients_of(configs)))


def test_a_process_whose_windows_teach_nothing_adds_nothing(tiny_run: MakeConfig) -> None:
    """The first window alone learns, so that all processes but the first have no rows."""
    configs = {kind: tiny_run(heads) for kind, heads in KINDS.items()}
    first = batch_of(configs["parallel"], 0, 1).text.tokens[:1]

    def learns(batch: LabelledText) -> LabelledText:
        is_first = (batch.text.tokens == first).all(dim=1, keepdim=True)
        return LabelledText(batch.text, batch.supervised & is_first)

    found = together(4, lambda: gradients_of(configs, learns))
    require_alike(gradients_of(configs, learns), found)


def require_alike(wanted: dict[str, tuple[float, dict[str, Any]]], found: list[Any]) -> None:
    """Of one process and of several: loss and gradients."""
    for kind, (loss, gradients) in wanted.items():
        assert [part[kind][0] for part in found] == pytest.approx([loss] * len(found), rel=1e-12)
        leading = found[0][kind][1]
        assert leading.keys() == gradients.keys()
        for name, gradient in gradients.items():
            assert leading[name] == pytest.approx(gradient, rel=1e-8, abs=1e-12), f"{kind}: {name}"
        assert not any(part[kind][1] for part in found[1:])


def figures(config: PretrainConfig, out: Path, stop_after: int | None = None) -> tuple[float, ...] | None:
    """What a run ends with; `None` if it was stopped after some steps."""
    steps = [0]

    def should_stop() -> bool:
        steps[0] += 1
        return steps[0] == stop_after

    result = pretrain(config, out, should_stop=should_stop)
    return None if result is None else (result.bits_per_byte, *result.losses)


def weights_of(out: Path) -> dict[str, Any]:
    return {name: tensor.dequantize() for name, tensor in read_safetensors(out / "model.safetensors").items()}


def test_four_begin_two_go_on_and_one_ends_what_one_would_have_done(tiny_run: MakeConfig, tmp_path: Path) -> None:
    config = tiny_run({"curriculum": "forward"}, {"steps": 9, "ema": 0.9, "micro_windows": 1})
    alone = figures(config, tmp_path / "alone")
    shared = tmp_path / "shared"
    assert together(4, lambda: figures(config, shared, 3)) == [None] * 4
    assert sorted(path.name for path in (shared / "run").iterdir() if path.name.startswith("state")) == ["state"]
    assert len(list((shared / "run" / "state").glob("*.safetensors"))) == 4
    assert together(2, lambda: figures(config, shared, 3)) == [None] * 2
    ended = figures(config, shared)
    assert ended == pytest.approx(alone, rel=1e-5)
    assert (shared / "run" / "state.safetensors").exists()
    assert not (shared / "run" / "state").exists()
    # what is written is rounded to bfloat16, which may turn a last bit
    for name, weight in weights_of(tmp_path / "alone").items():
        assert weights_of(shared)[name] == pytest.approx(weight, rel=2**-7, abs=2e-4), name


def test_two_go_on_from_what_one_has_saved_each_with_half_of_the_windows(
    tiny_run: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny_run(train={"measure_every": 100})
    alone = figures(config, tmp_path / "alone")
    assert figures(config, tmp_path / "shared", 2) is None
    seen: list[list[list[int]]] = []
    batch = CorpusWindows.batch

    def noted(windows: CorpusWindows, step: int) -> Any:
        found = batch(windows, step)
        if step == 4:
            seen.append(found.tokens.tolist())
        return found

    monkeypatch.setattr(CorpusWindows, "batch", noted)

    def work() -> tuple[Any, Any]:
        seen.clear()
        return figures(config, tmp_path / "shared"), seen[0]

    windows = []
    for part, own in together(2, work):
        assert part == pytest.approx(alone, rel=1e-5)
        windows += own
    whole = CorpusWindows(open_corpus(config.data.path).train, config.data.window, 4, config.train.seed)
    assert sorted(windows) == sorted(whole.batch(4).tokens.tolist())


def test_processes_killed_together_at_random_moments_end_with_the_same_weights(
    tiny_run: MakeConfig, tmp_path: Path
) -> None:
    config = tiny_run(train={"steps": 12, "save_every_s": 0.0, "measure_every": 100})
    began = time.monotonic()
    whole = together(2, lambda: figures(config, tmp_path / "whole"))
    whole_s = time.monotonic() - began
    chance = random.Random(4)
    for _ in range(6):
        processes = started(2, lambda: figures(config, tmp_path / "killed"), FORK.Queue())
        processes[0].join(timeout=chance.uniform(0.2, 0.8) * whole_s)
        for process in processes:
            process.kill()
            process.join()
    assert together(2, lambda: figures(config, tmp_path / "killed")) == whole
    for name, weight in weights_of(tmp_path / "whole").items():
        assert (weights_of(tmp_path / "killed")[name] == weight).all(), name


def cut_short(shard: Path) -> None:
    shard.write_bytes(shard.read_bytes()[:64])


def alter(shard: Path) -> None:
    content = bytearray(shard.read_bytes())
    content[-8] ^= 1
    shard.write_bytes(content)


def test_an_altered_place_in_the_run_is_named(tiny_run: MakeConfig, tmp_path: Path) -> None:
    config = tiny_run()
    together(2, lambda: figures(config, tmp_path, 2))
    about = tmp_path / "run" / "state" / "progress.json"
    assert '"step": 2' in about.read_text()
    about.write_text(about.read_text().replace('"step": 2', '"step": 3'))
    with pytest.raises(CheckpointError, match=r"run/state: the state is damaged, for progress is missing or not what"):
        pretrain(config, tmp_path)


def test_all_stop_together_while_a_text_is_prepared_and_one_s_failure_ends_all(
    tiny_run: MakeConfig, tmp_path: Path
) -> None:
    (tmp_path / "a.py").write_text("x = 1\n" * 400)
    sources = (f"tree:{tmp_path}:*.py",)
    config = replace(tiny_run(), data=replace(tiny_run().data, path="", sources=sources))
    assert together(2, lambda: pretrain(config, tmp_path / "out", should_stop=lambda: True)) == [None, None]
    nowhere = replace(config, data=replace(config.data, sources=(f"tree:{tmp_path / 'nowhere'}:*.py",)))

    def ended() -> str:
        try:
            return str(pretrain(nowhere, tmp_path / "other"))
        except ConfigError as error:
            return str(error)

    leading, other = together(2, ended)
    assert "nowhere" in leading
    assert other == "None"


@pytest.mark.parametrize("harm", [Path.unlink, cut_short, alter])
@pytest.mark.parametrize("number", [0, 1])
def test_a_state_of_several_that_is_damaged_is_named(
    tiny_run: MakeConfig, tmp_path: Path, harm: Callable[[Path], None], number: int
) -> None:
    config = tiny_run()
    together(2, lambda: figures(config, tmp_path, 2))
    shard = sorted((tmp_path / "run" / "state").glob("*.safetensors"))[number]
    harm(shard)
    words = rf"run/state: the state is damaged, for {shard.name} is missing or not what was written"
    with pytest.raises(CheckpointError, match=words):
        pretrain(config, tmp_path)

    def refused() -> str:
        with pytest.raises(CheckpointError) as failure:
            pretrain(config, tmp_path)
        return str(failure.value)

    assert len(set(together(2, refused))) == 1


def test_what_the_library_cannot_read_or_write_is_told_in_words(
    tiny_run: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own failures are no `Exception`s, and would go past whoever expects these."""
    config = tiny_run()
    together(2, lambda: figures(config, tmp_path, 2))

    def fail(*_: Any, **__: Any) -> None:
        raise CheckpointException("no room", {})

    monkeypatch.setattr(state_store, "load_shards", fail)
    with pytest.raises(CheckpointError, match=r"run/state: the state cannot be read \(CheckpointException"):
        pretrain(config, tmp_path)
    monkeypatch.setattr(state_store, "save_shards", fail)

    def refused() -> str:
        with pytest.raises(CheckpointError) as failure:
            figures(config, tmp_path / "other", 2)
        return str(failure.value)

    assert all("the state cannot be written" in text for text in together(2, refused))


def test_windows_that_cannot_be_shared_evenly_are_refused(tiny_run: MakeConfig, tmp_path: Path) -> None:
    config = tiny_run(train={"batch_windows": 3})

    def refused() -> str:
        with pytest.raises(ConfigError) as failure:
            pretrain(config, tmp_path)
        return str(failure.value)

    assert all("3" in text for text in together(2, refused))


@pytest.mark.parametrize(("rank", "size"), [("x", "2"), ("2", "2"), ("-1", "2"), ("0", ""), ("0", "two")])
def test_what_the_environment_says_of_processes_must_hold(
    monkeypatch: pytest.MonkeyPatch, rank: str, size: str
) -> None:
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", size)
    with pytest.raises(ConfigError, match="torchrun"):
        Team("cpu")


def test_a_rank_without_a_number_of_processes_is_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    team = Team("cpu")
    assert team.leads
    assert team.size == 1


def test_a_kill_while_an_older_state_is_removed_leaves_the_newer_one(
    tiny_run: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What several saved is being removed, since one has taken the run up and saved: it goes on from what one saved."""
    alone = figures(tiny_run(), tmp_path / "alone")
    out = tmp_path / "model"
    together(2, lambda: figures(tiny_run(), out, stop_after=2))
    remove = shutil.rmtree

    def cut_off(path: Path, **_: Any) -> None:
        if shards := sorted(Path(path).glob("shard-*")):
            shards[0].unlink()
            raise KeyboardInterrupt
        remove(path, ignore_errors=True)

    monkeypatch.setattr(shutil, "rmtree", cut_off)
    with pytest.raises(KeyboardInterrupt):
        figures(tiny_run(), out, stop_after=2)
    monkeypatch.setattr(shutil, "rmtree", remove)
    assert figures(tiny_run(), out) == pytest.approx(alone, rel=1e-5)
    assert sorted(path.name for path in (out / "run").glob("state*")) == ["state.safetensors"]
