from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from headstart.errors import ConfigError
from headstart.train.corpus import CorpusWindows, open_corpus, validation_windows
from headstart.train.pretrain.blueprint import make_blueprint
from headstart.train.pretrain.config import PretrainConfig

torch = pytest.importorskip("torch")

from headstart.train.heads_module import HeadsModule  # noqa: E402
from headstart.train.pretrain.batch import LabelledText, labelled_text, labels  # noqa: E402
from headstart.train.pretrain.parts import make_model  # noqa: E402
from headstart.train.pretrain.team import Team  # noqa: E402
from headstart.train.pretrain.trainer import PretrainTrainer  # noqa: E402
from headstart.train.pretrain.validation import validate  # noqa: E402

if TYPE_CHECKING:
    from torch import Tensor

MakeConfig = Callable[..., PretrainConfig]
CPU = torch.device("cpu")


def make_trainer(config: PretrainConfig, *, supervised: bool = True) -> PretrainTrainer:
    corpus, team = open_corpus(config.data.path), Team("cpu")
    model = team.place(make_model(make_blueprint(config, corpus.vocab_size), 0))
    windows = CorpusWindows(corpus.train, config.data.window, config.train.batch_windows, 0)

    def batches(step: int) -> LabelledText:
        batch = labelled_text(windows.batch(step), CPU)
        return LabelledText(batch.text, batch.supervised & supervised)

    return PretrainTrainer(model, config.train, config.heads, config.train.steps, batches, team)


def copied(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in tensors.items()}


def held_out(config: PretrainConfig, windows: int) -> list[LabelledText]:
    store = open_corpus(config.data.path).validation
    return labelled_text(validation_windows(store, config.data.window, 5), CPU).split(windows)


def test_steps_that_are_timed_are_taken_back_and_train_all_heads(
    tiny_run: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make_trainer(tiny_run({"curriculum": "forward"}, {"ema": 0.5}))
    trainer.take_step()
    tensors, progress = trainer.state()
    before = copied(tensors)
    ran: list[int] = []
    alone = HeadsModule.alone

    def counted(heads: HeadsModule, text: Any, taps: Tensor, depth: int, weights: Any) -> Any:
        ran.append(depth)
        return alone(heads, text, taps, depth, weights)

    monkeypatch.setattr(HeadsModule, "alone", counted)
    assert trainer.time_steps(2) > 0
    assert sorted(set(ran)) == [1, 2]
    after, same = trainer.state()
    assert same == progress
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], before[name]) for name in before)


def test_weights_decay_only_as_matrices_and_move_only_with_gradients(tiny_run: MakeConfig) -> None:
    """Where gradients are nothing, matrices shrink by rate times decay, norms stay, and idle heads are not touched."""
    train = {"weight_decay": 0.5, "learning_rate": 0.1, "schedule": "constant", "warmup_share": 0.0}
    trainer = make_trainer(tiny_run({"curriculum": "forward"}, train))
    before = copied({name: weight.detach() for name, weight in trainer.model.weights().items()})
    with pytest.MonkeyPatch.context() as patch:
        original = torch.nn.utils.clip_grad_norm_

        def silence(parameters: Any, *_: Any) -> Tensor:
            parameters = list(parameters)
            norm = original(parameters, 1.0)
            for parameter in parameters:
                if parameter.grad is not None:
                    parameter.grad.zero_()
            return norm

        patch.setattr(torch.nn.utils, "clip_grad_norm_", silence)
        trainer.take_step()
    for name, weight in trainer.model.weights().items():
        factor = 0.95 if weight.ndim == 2 and name.startswith("trunk.") else 1.0
        torch.testing.assert_close(weight.detach(), before[name] * factor, msg=name)


def test_the_moving_average_is_what_is_judged_and_looks_back_no_further_than_there_were_steps(
    tiny_run: MakeConfig,
) -> None:
    config = tiny_run({"n": 1}, {"ema": 0.15})
    trainer = make_trainer(config)
    expected = copied(trainer.weights())
    for decay in (0.1, 0.15, 0.15):  # of (1 + 0) / (10 + 0), and then (1 + 1) / (10 + 1) is more than was asked for
        trainer.take_step()
        trained = copied({name: weight.detach() for name, weight in trainer.model.weights().items()})
        expected = {name: decay * expected[name] + (1 - decay) * trained[name] for name in trained}
        for name, average in trainer.weights().items():
            torch.testing.assert_close(average, expected[name], msg=name)
    token_bytes = torch.ones(257, dtype=torch.int64)
    judged = validate(trainer, held_out(config, 5), token_bytes)
    assert all(torch.equal(weight, trained[name]) for name, weight in trainer.model.weights().items())
    with torch.no_grad():
        for name, weight in trainer.model.weights().items():
            weight.copy_(trainer.weights()[name])
    assert validate(trainer, held_out(config, 5), token_bytes) == judged


def test_a_step_has_the_rate_of_its_number(tiny_run: MakeConfig) -> None:
    """Adam moves each weight by the rate at its first step, whatever the gradient; vectors have no decay besides."""
    trainer = make_trainer(tiny_run({"n": 1}, {"steps": 8, "warmup_share": 0.5, "learning_rate": 4e-3}))
    before = copied(trainer.weights())
    metrics = trainer.take_step()
    assert metrics.learning_rate == pytest.approx(1e-3)  # the first of four steps of a rise to 4e-3
    moved = trainer.weights()["trunk.final_norm"] - before["trunk.final_norm"]
    assert float(moved.abs().max()) == pytest.approx(1e-3, rel=1e-3)
    assert [trainer.take_step().learning_rate for _ in range(3)] == pytest.approx([2e-3, 3e-3, 4e-3])


def test_bits_per_byte_of_a_model_that_knows_nothing(tiny_run: MakeConfig) -> None:
    """Uniform over 257 tokens; the end of a text is predicted as well, and stands for no byte."""
    config = tiny_run()
    trainer = make_trainer(config)
    with torch.no_grad():
        trainer.model.trunk.unembedding.zero_()
    token_bytes = torch.from_numpy(open_corpus(config.data.path).token_bytes)
    judged = validate(trainer, held_out(config, 2), token_bytes)
    targets = torch.cat([labels(None, batch, 0)[0].flatten() for batch in held_out(config, 5)])
    targets = targets[targets >= 0]
    num_bytes = int((targets < 256).sum())
    assert num_bytes < len(targets)
    assert judged.bits_per_byte == pytest.approx(len(targets) * math.log2(257) / num_bytes, rel=1e-6)
    assert [head.loss for head in judged.heads] == pytest.approx([math.log(257)] * 3, rel=1e-6)
    assert judged.heads[0].num_rows == len(targets)


def test_judging_does_not_depend_on_how_windows_are_cut(tiny_run: MakeConfig) -> None:
    config = tiny_run({"kind": "sequential"})
    trainer = make_trainer(config)
    trainer.take_step()
    token_bytes = torch.from_numpy(open_corpus(config.data.path).token_bytes)
    one, all_at_once = (validate(trainer, held_out(config, windows), token_bytes) for windows in (1, 5))
    assert one.bits_per_byte == pytest.approx(all_at_once.bits_per_byte, rel=1e-5)
    for left, right in zip(one.heads, all_at_once.heads, strict=True):
        assert (left.loss, left.correct, left.num_rows) == pytest.approx((right.loss, right.correct, right.num_rows))


def test_a_batch_that_teaches_nothing_is_refused(tiny_run: MakeConfig) -> None:
    with pytest.raises(ConfigError, match="step 1"):
        make_trainer(tiny_run(), supervised=False).take_step()


def test_heads_that_join_on_the_way_are_no_spike(tiny_run: MakeConfig) -> None:
    """A loss many times as large once heads weigh something, each step of it taken."""
    trainer = make_trainer(tiny_run({"n": 8, "weight": "0,3@0.5"}, {"steps": 40, "spike_factor": 3.0}))
    steps = [trainer.take_step() for _ in range(40)]
    assert steps[20].loss > 10 * steps[19].loss
    assert not any(step.skipped for step in steps)


def test_depths_that_weigh_nothing_are_not_judged_in_a_step(tiny_run: MakeConfig) -> None:
    trainer = make_trainer(tiny_run({"n": 3, "weight": "0,1@0.5"}, {"steps": 2}))
    before, after = trainer.take_step(), trainer.take_step()
    assert [math.isnan(head.loss) for head in before.heads] == [False, True, True]
    assert [math.isnan(head.correct) for head in before.heads] == [False, True, True]
    assert [head.loss > 1.0 for head in after.heads] == [True, True, True]
