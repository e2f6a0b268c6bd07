"""The training loop: order of data, what a step changes and what it never does, and runs that were interrupted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from headstart.errors import ConfigError, HeadstartError  # noqa: E402
from headstart.train.heads_loss import HeadsLossConfig, TrainingBatch  # noqa: E402
from headstart.train.loss_mix import LossMix  # noqa: E402
from headstart.train.run_directory import RunDirectory  # noqa: E402
from headstart.train.trainer import HeadsTrainer, StepMetrics, TrainerConfig, state_of  # noqa: E402

Alter = Callable[[TrainingBatch, int], TrainingBatch]
SETTINGS = TrainerConfig(num_steps=8, batch_windows=3, micro_windows=2, warmup_steps=2, seed=4)


class Training:
    """A trainer of tiny heads; `alter` may change what the trunk says in the n-th call for windows."""

    def __init__(
        self,
        lab: Any,
        name: str = "eagle3, own",
        config: TrainerConfig = SETTINGS,
        *,
        seed: int = 0,
        bfloat16: bool = True,
        alter: Alter = lambda batch, call: batch,
    ) -> None:
        self.heads = lab.heads(name, seed=seed)
        self.windows = lab.pack(lab.documents([7, 12, 9, 5, 11, 10, 8]), 12)
        self.asked: list[list[int]] = []

        def batches(indices: Sequence[int]) -> TrainingBatch:
            self.asked.append(list(indices))
            return alter(lab.batch(self.windows, indices, taps=self.heads.config.taps), len(self.asked) - 1)

        loss = HeadsLossConfig(mix=LossMix.parse("kl"), depth_weights=(1.0, 0.8, 0.6))
        unembedding = lab.unembedding.bfloat16() if bfloat16 else lab.unembedding
        self.trainer = HeadsTrainer(self.heads, unembedding, loss, config, len(self.windows), batches)

    def weights(self) -> dict[str, torch.Tensor]:
        return {name: weight.detach().clone() for name, weight in self.heads.own_weights().items()}

    def take(self, count: int) -> list[StepMetrics]:
        return [replace(self.trainer.take_step(), seconds=1.0) for _ in range(count)]


def test_a_weight_that_nothing_depends_on_is_named(lab: Any) -> None:
    training = Training(lab)
    training.heads._names.append("dead")
    training.heads._own.append(torch.nn.Parameter(torch.zeros(2)))
    with pytest.raises(AssertionError, match="trained weights that nothing depends on: dead"):
        training.take(1)


@pytest.fixture
def lab(make_lab: Callable[..., Any]) -> Any:
    """In float32, as heads are trained."""
    return make_lab("float32")


@pytest.mark.parametrize("name", ["eagle3, own", "medusa", "sequential"])
def test_a_run_that_was_stopped_and_one_that_was_not_are_equal_bit_for_bit(name: str, lab: Any, tmp_path: Path) -> None:
    """Weights, what the optimiser remembers, the order of windows and the lines of the metrics."""
    whole = Training(lab, name)
    expected = whole.take(6)
    first = RunDirectory(tmp_path, {"seed": 4})
    begun = Training(lab, name)
    for metrics in begun.take(3):
        first.log(kind="step", **state_of(metrics))
    first.save(begun.trainer.tensors(), {"step": 3})
    for metrics in begun.take(2):  # lost: they came after the last checkpoint
        first.log(kind="step", **state_of(metrics))

    second = RunDirectory(tmp_path, {"seed": 4})
    saved = second.load()
    assert saved is not None
    gone_on = Training(lab, name, seed=9)  # whose weights would be others
    gone_on.trainer.restore(saved[0], saved[1]["step"])
    second.forget_after(gone_on.trainer.step)
    for metrics in gone_on.take(3):
        second.log(kind="step", **state_of(metrics))

    assert second.metrics() == [{"kind": "step", **state_of(metrics)} for metrics in expected]
    assert begun.asked[:6] + gone_on.asked == whole.asked
    tensors, expected_tensors = gone_on.trainer.tensors(), whole.trainer.tensors()
    assert tensors.keys() == expected_tensors.keys()
    assert any(name.startswith("optimiser.") for name in tensors)
    for key, tensor in tensors.items():
        assert torch.equal(tensor, expected_tensors[key]), key


def test_first_steps_of_depth_1_alone_and_a_stop_where_the_others_join(lab: Any, tmp_path: Path) -> None:
    settings = replace(SETTINGS, first_depth_steps=3)
    whole = Training(lab, "sequential, several taps", settings)
    projection = "modules.0.projection"  # which depth 1 does not read
    at_first = whole.weights()[projection]
    assert [len(metrics.depths) for metrics in whole.take(3)] == [1, 1, 1]
    assert torch.equal(whole.weights()[projection], at_first)
    run = RunDirectory(tmp_path, {})
    run.save(whole.trainer.tensors(), {"step": 3})
    assert [len(metrics.depths) for metrics in whole.take(2)] == [3, 3]
    assert not torch.equal(whole.weights()[projection], at_first)

    gone_on = Training(lab, "sequential, several taps", settings, seed=9)
    saved = run.load()
    assert saved is not None
    gone_on.trainer.restore(saved[0], 3)
    gone_on.take(2)
    assert all(torch.equal(gone_on.weights()[name], weight) for name, weight in whole.weights().items())


def test_steps_that_are_taken_back_leave_nothing(lab: Any) -> None:
    """As a run does that finds out how long steps take."""
    tried = Training(lab)
    before = {name: tensor.clone() for name, tensor in tried.trainer.tensors().items()}
    tried.take(3)
    again = tried.trainer.begun_anew(SETTINGS)
    again.restore(before, 0)
    expected = Training(lab).take(2)
    assert [replace(again.take_step(), seconds=1.0) for _ in range(2)] == expected


def test_the_trunk_is_bit_identical_after_training(lab: Any) -> None:
    training = Training(lab)
    trunk = {name: weight.clone() for name, weight in lab.weights.items()}
    before = training.weights()
    training.take(4)
    for name, weight in lab.weights.items():
        assert torch.equal(weight, trunk[name]), name
        assert weight.grad is None
    for name, weight in training.weights().items():
        assert not torch.equal(weight, before[name]), name


def test_training_lowers_the_loss_and_raises_acceptance(lab: Any) -> None:
    training = Training(lab, config=replace(SETTINGS, num_steps=20, batch_windows=6, learning_rate=2e-2))
    metrics = training.take(20)
    assert metrics[-1].loss < 0.5 * metrics[0].loss
    for before, after in zip(metrics[0].depths, metrics[-1].depths, strict=True):
        assert after.acceptance > before.acceptance + 0.1
        assert after.correct > before.correct + 0.2
    assert training.trainer.finished


def test_an_epoch_holds_each_window_once_in_an_order_of_its_own(lab: Any) -> None:
    training = Training(lab)
    count = len(training.windows)
    places = [window for step in range(2 * count) for window in training.trainer.windows_of(step)]
    epochs = [places[start : start + count] for start in range(0, len(places), count)]
    assert all(sorted(epoch) == list(range(count)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == len(epochs)
    other = Training(lab, config=replace(SETTINGS, seed=5)).trainer
    assert [other.windows_of(step) for step in range(4)] != [training.trainer.windows_of(step) for step in range(4)]


def test_a_step_is_the_same_however_its_windows_are_run(lab: Any) -> None:
    whole, cut = (
        Training(lab, config=replace(SETTINGS, batch_windows=6, micro_windows=micro), bfloat16=False)
        for micro in (6, 1)
    )
    (one,), (other,) = whole.take(1), cut.take(1)
    assert (len(whole.asked), len(cut.asked)) == (1, 6)
    assert other.loss == pytest.approx(one.loss, rel=1e-5)
    assert other.gradient_norm == pytest.approx(one.gradient_norm, rel=1e-4)
    assert [depth.num_rows for depth in other.depths] == [depth.num_rows for depth in one.depths]
    for found, expected in zip(other.depths, one.depths, strict=True):
        assert found.loss == pytest.approx(expected.loss, rel=1e-5)
        assert found.acceptance == pytest.approx(expected.acceptance, rel=1e-5)


def damaged(batch: TrainingBatch, field: str) -> TrainingBatch:
    values = getattr(batch, field).clone()
    values[0] = torch.nan
    return replace(batch, **{field: values})


@pytest.mark.parametrize("field", ["taps", "trunk_states"])
def test_a_nan_stops_training_before_it_reaches_the_weights(field: str, lab: Any) -> None:
    """In the second micro-batch of the third step, when the first one's gradients are there already."""
    training = Training(lab, alter=lambda batch, call: damaged(batch, field) if call == 5 else batch)
    training.take(2)
    before, remembered = training.weights(), {k: t.clone() for k, t in training.trainer.tensors().items()}
    with pytest.raises(HeadstartError, match=r"Step 3: .*nan"):
        training.trainer.take_step()
    assert training.trainer.step == 2
    for name, weight in training.weights().items():
        assert torch.equal(weight, before[name]), name
    for name, tensor in training.trainer.tensors().items():
        assert torch.equal(tensor, remembered[name]), name
    # and none is left to poison the next step
    assert training.take(1) == Training(lab).take(3)[2:]


def test_a_weight_that_is_not_finite_stops_training(lab: Any) -> None:
    training = Training(lab)
    with torch.no_grad():
        training.heads.own_weights()["fuse"][3, 3] = torch.inf
    before = training.weights()
    with pytest.raises(HeadstartError, match="Step 1"):
        training.trainer.take_step()
    for name, weight in training.weights().items():
        assert torch.equal(weight, before[name]), name


def test_a_batch_without_anything_to_learn_is_refused_by_name(lab: Any) -> None:
    training = Training(lab, alter=lambda batch, _: replace(batch, supervised=torch.zeros_like(batch.supervised)))
    before = training.weights()
    with pytest.raises(ConfigError, match="step 1: none of its 36 positions has a supervised target"):
        training.trainer.take_step()
    for name, weight in training.weights().items():
        assert torch.equal(weight, before[name]), name


def test_one_empty_micro_batch_beside_others_is_none_to_stop_at(lab: Any) -> None:
    def alter(batch: TrainingBatch, call: int) -> TrainingBatch:
        return replace(batch, supervised=torch.zeros_like(batch.supervised)) if call == 0 else batch

    (metrics,) = Training(lab, alter=alter).take(1)
    assert 0 < metrics.depths[0].num_rows < 12


def test_validation_changes_nothing_and_gives_the_figures_of_a_step(lab: Any) -> None:
    training = Training(lab, config=replace(SETTINGS, batch_windows=3, micro_windows=3))
    batch = training.trainer._batches(training.trainer.windows_of(0))
    before = training.weights()
    depths = training.trainer.validate([batch])
    assert all(weight.grad is None for weight in training.heads.parameters())
    for name, weight in training.weights().items():
        assert torch.equal(weight, before[name]), name
    assert depths == training.take(1)[0].depths
