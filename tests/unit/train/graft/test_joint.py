"""Heads and trunk trained together: the loss, the two stages, the guard on the trunk, and what is written."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from headstart import Engine, SamplingParams  # noqa: E402
from headstart.architectures.reading import read_config  # noqa: E402
from headstart.checkpoint import open_checkpoint  # noqa: E402
from headstart.checkpoint.heads_file import open_heads  # noqa: E402
from headstart.errors import CheckpointError, ConfigError, HeadstartError, UnsupportedError  # noqa: E402
from headstart.runtime.open_heads import identify_trunk  # noqa: E402
from headstart.runtime.torch_runtime import load_weights  # noqa: E402
from headstart.testing.graft_runs import PROMPTS, stop_at, without_speed  # noqa: E402
from headstart.testing.tiny_models import write_tiny_gguf  # noqa: E402
from headstart.train.graft_config import GraftConfig  # noqa: E402
from headstart.train.heads_loss import HeadsLossConfig, learnt_rows  # noqa: E402
from headstart.train.joint import JointResult, graft_jointly  # noqa: E402
from headstart.train.joint_config import JointConfig  # noqa: E402
from headstart.train.joint_loss import count_tokens, drift, joint_loss  # noqa: E402
from headstart.train.loss_mix import LossMix  # noqa: E402
from headstart.train.phases import Progress  # noqa: E402
from headstart.train.run_directory import read_state  # noqa: E402
from headstart.train.trunk_module import TrunkModule  # noqa: E402

SMALL = JointConfig(
    graft=GraftConfig(
        kind="eagle3", depth=2, draft_vocab_size=100, text_tokens=900, window=64, epochs=4, checkpoints=2, threads=1
    ),
    trunk_learning_rate=1e-3,
    heads_weight=1.5,
    max_drift=5.0,
)
DEPTH_WEIGHTS = (1.0, 0.7, 0.4)
VOCABULARY = torch.arange(1, 300, 3)


pytestmark = pytest.mark.usefixtures("one_thread_and_no_pictures")


@pytest.fixture(scope="module")
def whole(model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, JointResult, dict[str, Any]]:
    """A run that nothing interrupted, and the state that its second stage began with."""
    path = tmp_path_factory.mktemp("runs") / "whole"
    began: dict[str, Any] = {}

    def show(progress: Progress) -> None:
        if progress.phase == "joint" and progress.done == 1 and not began:
            began.update(read_state(path)[0])  # saved when heads were measured before the first step

    result = graft_jointly(model, path, SMALL, PROMPTS, show=show)
    assert result is not None
    return path, result, began


def metrics(run: Path, kind: str) -> list[dict[str, Any]]:
    return [line for line in without_speed(run) if line["kind"] == kind]


def naive_joint_loss(trunk: Any, heads: Any, batch: Any, frozen: Any, vocabulary: Any, label_weight: float) -> Any:
    """The definition, a row at a time, with everything in autograd's hands."""
    said = trunk(batch.text)
    matrix = trunk.unembedding
    own, num_tokens = 0.0, 0
    windows, length = batch.text.tokens.shape
    documents = batch.text.documents
    for window in range(windows):
        for row in range(length):
            if documents[window, row] < 0:
                continue
            num_tokens += 1
            before = (frozen @ batch.trunk_states[window, row]).log_softmax(0)
            after = (matrix @ said.states[window, row]).log_softmax(0)
            own = own + (before.exp() * (before - after)).sum()
            ahead = row + 1
            if (
                ahead < length
                and documents[window, ahead] == documents[window, row]
                and batch.supervised[window, ahead]
            ):
                own = own - label_weight * after[batch.text.tokens[window, ahead]]
    loss = own / num_tokens
    fixed = matrix.detach()
    for output in heads(batch.text, said.taps, len(DEPTH_WEIGHTS)):
        rows = learnt_rows(heads.config, batch, output.depth)
        part = 0.0
        for window, row in rows.nonzero().tolist():
            target = fixed @ said.states[window, row + output.offset - 1].detach()
            guess = output.unembedding @ output.hidden[window, row]
            target = (target if vocabulary is None else target[vocabulary]).log_softmax(0)
            part = part + (target.exp() * (target - guess.log_softmax(0))).sum()
        loss = loss + SMALL.heads_weight * DEPTH_WEIGHTS[output.depth - 1] * part / int(rows.sum())
    return loss


@pytest.mark.parametrize(
    ("kind", "vocabulary", "tied", "label_weight"),
    [("medusa", None, True, 0.0), ("sequential, several taps", VOCABULARY, False, 0.3), ("eagle", None, False, 0.3)],
)
def test_the_gradient_is_that_of_the_definition(
    kind: str, vocabulary: Any, tied: bool, label_weight: float, make_lab: Callable[..., Any]
) -> None:
    lab = make_lab(tied=tied)
    heads = lab.heads(kind, vocabulary)
    batch = lab.batch(lab.pack(lab.documents([7, 12, 3, 9, 5]), 12), taps=heads.config.taps)
    trunk = TrunkModule(read_config(lab.checkpoint)[1], lab.weights, heads.config.taps)
    with torch.no_grad():  # else the trunk's own loss is at its least, and its gradient 0
        for weight in trunk.weights().values():
            weight.mul_(1.03)
    heads._trunk_weights = trunk.weights()
    heads.borrow()
    parameters = {**{f"heads {n}": w for n, w in heads.own_weights().items()}, **trunk.weights()}
    rows = [int(learnt_rows(heads.config, batch, depth).sum()) for depth in (1, 2, 3)]
    found, _ = joint_loss(
        trunk, heads, batch, lab.unembedding, HeadsLossConfig(mix=LossMix.parse("kl"), depth_weights=DEPTH_WEIGHTS),
        heads_weight=SMALL.heads_weight, label_weight=label_weight, num_rows=rows, num_tokens=count_tokens(batch),
    )  # fmt: skip
    expected = naive_joint_loss(trunk, heads, batch, lab.unembedding, vocabulary, label_weight)
    assert float(found.detach()) == pytest.approx(float(expected.detach()), rel=1e-6)
    one = torch.autograd.grad(found, list(parameters.values()))
    other = torch.autograd.grad(expected, list(parameters.values()))
    for name, a, b in zip(parameters, one, other, strict=True):
        assert float(b.abs().max()) > 0, name
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7, msg=name)


def test_drift_is_0_of_a_trunk_that_stays_and_grows_with_what_changes(make_lab: Callable[..., Any]) -> None:
    lab = make_lab("float32")
    batch = lab.batch(lab.pack(lab.documents([12, 9, 5]), 12))
    trunk = TrunkModule(read_config(lab.checkpoint)[1], lab.weights, (2,))
    found = []
    for scale in (1.0, 1.05, 1.3):
        with torch.no_grad():
            for name, weight in trunk.weights().items():
                weight.copy_(scale * lab.weights[name])
        found.append(drift(trunk, [batch], lab.unembedding))
    assert 0 <= found[0] < 1e-3  # weights are rounded as they will be written
    assert found[0] < 0.1 * found[1] < 0.1 * found[2]


def test_the_first_stage_leaves_the_trunk_bit_identical_and_the_second_moves_it(
    model: Path, whole: tuple[Path, JointResult, dict[str, Any]]
) -> None:
    run, result, began = whole
    ended, progress = read_state(run)
    assert progress["step"] == result.num_steps
    original = load_weights(open_checkpoint(model))
    alone, _ = read_state(run / "alone")
    for name, weight in original.items():
        assert torch.equal(began[f"trunk.{name}"], weight), name
        assert not torch.equal(ended[f"trunk.{name}"], weight), name
    for name in (name for name in alone if name.startswith("weights.")):
        assert torch.equal(began[name], alone[name]), name
        assert not torch.equal(ended[name], alone[name]), name
    drifts = [line["drift"] for line in metrics(run, "drift")]
    assert [line["step"] for line in metrics(run, "drift")] == [line["step"] for line in metrics(run, "measured")]
    assert drifts[0] < 0.01  # what files and runtimes round
    assert drifts[0] < 0.2 * drifts[-1]


def test_the_written_model_and_its_heads_write_what_the_model_writes_alone(
    model: Path, whole: tuple[Path, JointResult, dict[str, Any]]
) -> None:
    run, result, _ = whole
    assert result.step > 0, "the trunk that was kept is a trained one"
    assert (result.model_folder, result.heads) == (run / "model", run / "heads.safetensors")
    params = SamplingParams(max_tokens=40)
    with Engine.load(result.model_folder, draft="none", threads=1) as plain:
        expected = plain.generate("Say one.", params)
    with Engine.load(result.model_folder, draft=f"heads:{result.heads}", threads=1) as engine:
        drafted = engine.generate("Say one.", params)
    assert drafted.token_ids == expected.token_ids
    assert drafted.drafter == "heads"
    written = open_checkpoint(result.model_folder)
    header = open_heads(result.heads).header
    assert header.trunk == identify_trunk(written)
    assert header.recipe["joint"]["trunk_learning_rate"] == 1e-3
    assert written.tokenizer().digest() == open_checkpoint(model).tokenizer().digest()
    assert not (run / "model.next").exists()
    with (
        pytest.raises(CheckpointError, match="do not fit: weights"),
        Engine.load(model, draft=f"heads:{result.heads}", threads=1),
    ):
        pass


def test_what_is_kept_is_what_was_measured(whole: tuple[Path, JointResult, dict[str, Any]]) -> None:
    run, result, _ = whole
    best = max(metrics(run, "measured"), key=lambda line: (line["tau"], line["step"]))
    assert (result.step, result.measured.tau) == (best["step"], best["tau"])
    assert result.drift == next(line["drift"] for line in metrics(run, "drift") if line["step"] == best["step"])
    assert result.alone.tau == max(line["tau"] for line in metrics(run / "alone", "measured"))


def test_a_run_that_is_stopped_ends_as_one_that_is_not(
    model: Path, whole: tuple[Path, JointResult, dict[str, Any]], tmp_path: Path
) -> None:
    run, expected, _ = whole
    for phase, done in (("training", 1.0), ("joint", 1.0), ("joint", 9.0)):
        show, should_stop = stop_at(phase, done)
        assert graft_jointly(model, tmp_path, SMALL, PROMPTS, show=show, should_stop=should_stop) is None
    result = graft_jointly(model, tmp_path, SMALL, PROMPTS)
    assert result is not None
    assert replace(result, spent_s=0.0) == replace(
        expected, spent_s=0.0, heads=result.heads, model_folder=result.model_folder
    )
    for name in ("heads.safetensors", "state.safetensors", "model/model.safetensors", "model/config.json"):
        assert (tmp_path / name).read_bytes() == (run / name).read_bytes(), name
    for kind in ("step", "validation", "drift", "measured"):
        assert metrics(tmp_path, kind) == metrics(run, kind)


def test_steps_that_a_time_limit_has_tried_out_leave_nothing(
    model: Path, whole: tuple[Path, JointResult, dict[str, Any]], tmp_path: Path
) -> None:
    limited = replace(SMALL, graft=replace(SMALL.graft, text_tokens=None, minutes=600.0))
    assert graft_jointly(model, tmp_path, limited, whole[0] / "alone") is not None
    found, expected = read_state(tmp_path)[0], read_state(whole[0])[0]
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


def test_a_finished_run_only_reports(model: Path, whole: tuple[Path, JointResult, dict[str, Any]]) -> None:
    seen: list[Progress] = []
    result = graft_jointly(model, whole[0], SMALL, PROMPTS, show=seen.append)
    assert result is not None
    assert not seen
    assert replace(result, spent_s=0.0) == replace(whole[1], spent_s=0.0)


@pytest.fixture
def begin(
    model: Path, whole: tuple[Path, JointResult, dict[str, Any]], tmp_path: Path
) -> Callable[[JointConfig], Path]:
    """Makes a run of some settings, whose first stage another has done already."""

    def begin(config: JointConfig) -> Path:
        assert graft_jointly(model, tmp_path, config, PROMPTS, should_stop=lambda: True) is None
        shutil.rmtree(tmp_path / "alone")
        shutil.copytree(whole[0] / "alone", tmp_path / "alone")
        return tmp_path

    return begin


def test_a_trunk_that_goes_too_far_stops_and_the_last_good_one_stays(
    model: Path, begin: Callable[[JointConfig], Path]
) -> None:
    wild = replace(SMALL, trunk_learning_rate=0.05, max_drift=0.05)
    begun = begin(wild)
    for _ in range(2):  # the same command meets the same end
        with pytest.raises(HeadstartError, match=r"has gone .* nats a token .* max_drift = 0\.05 .*best one within"):
            graft_jointly(model, begun, wild, PROMPTS)
    assert metrics(begun, "drift")[-1]["drift"] > 0.05
    original = load_weights(open_checkpoint(model))
    kept = load_weights(open_checkpoint(begun / "model"))
    for name, weight in original.items():
        assert torch.equal(kept[name], weight.bfloat16().float()), name
    assert open_heads(begun / "heads.safetensors").header.recipe["step"] == 0
    assert not (begun / "model.next").exists()
    assert graft_jointly(model, begun, replace(wild, max_drift=1e9), PROMPTS) is not None


def test_a_training_that_diverges_stops_before_it_reaches_what_is_saved(
    model: Path, begin: Callable[[JointConfig], Path]
) -> None:
    diverging = replace(SMALL, trunk_learning_rate=1e30)
    begun = begin(diverging)
    with pytest.raises(HeadstartError, match=r"Step \d+: the loss is .*lower learning rate"):
        graft_jointly(model, begun, diverging, PROMPTS)
    assert all(bool(tensor.isfinite().all()) for tensor in read_state(begun)[0].values())
    assert [line["step"] for line in metrics(begun, "measured")] == [0]


def test_a_window_that_cuts_documents_is_refused(
    model: Path, whole: tuple[Path, JointResult, dict[str, Any]], tmp_path: Path
) -> None:
    cut = replace(SMALL, graft=replace(SMALL.graft, text_tokens=None, window=40))
    with pytest.raises(ConfigError, match=r"documents of up to \d+ tokens, more than window = 40"):
        graft_jointly(model, tmp_path, cut, whole[0] / "alone")
    assert not (tmp_path / "alone").exists()  # before hours were spent on the first stage


def test_a_model_that_could_not_be_written_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    odd = write_tiny_gguf(tmp_path / "odd.gguf", rotary_factors=True)
    with pytest.raises(UnsupportedError, match="rotary frequencies as a table"):
        graft_jointly(odd, tmp_path / "run", SMALL, PROMPTS)
    assert not (tmp_path / "run" / "alone").exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"trunk_learning_rate": 0.0}, "trunk_learning_rate = 0"),
        ({"heads_weight": float("nan")}, "heads_weight = nan"),
        ({"label_weight": -1.0}, "label_weight = -1"),
        ({"max_drift": 0.0}, "max_drift = 0"),
    ],
)
def test_what_cannot_be_trained_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        replace(SMALL, **changes)
