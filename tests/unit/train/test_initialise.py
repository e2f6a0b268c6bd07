"""What heads begin with: least squares that are least, blocks that add nothing, a loss that is low from the start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402

from headstart.architectures.heads import HeadsConfig  # noqa: E402
from headstart.runtime.torch_runtime import shifted  # noqa: E402
from headstart.testing.tiny_heads import TINY_HEADS  # noqa: E402
from headstart.train.heads_loss import HeadsLossConfig, TrainingBatch, heads_loss, learnt_rows  # noqa: E402
from headstart.train.heads_module import HeadsModule  # noqa: E402
from headstart.train.initialise import initialise  # noqa: E402
from headstart.train.loss_mix import LossMix  # noqa: E402

DEPTHS = 3


def start(lab: Any, name: str, *, seed: int = 0, vocabulary: Tensor | None = None) -> tuple[Any, list[TrainingBatch]]:
    """Initialised heads of a kind, and the text."""
    heads = lab.heads(name, vocabulary)
    windows = lab.pack(lab.documents([40] * 12, seed=1), 40)
    batches = [lab.batch(windows, [index], taps=heads.config.taps) for index in range(len(windows))]
    initialise(heads, lab.weights, batches, torch.Generator().manual_seed(seed))
    return heads, batches


def mean_loss(lab: Any, heads: HeadsModule, batches: list[TrainingBatch]) -> list[float]:
    """Of each depth, against the trunk."""
    depths = min(DEPTHS, heads.config.depth)
    config = HeadsLossConfig(mix=LossMix.parse("kl"), depth_weights=[1.0] * depths)
    with torch.no_grad():
        sums = [heads_loss(heads, batch, lab.unembedding, config, [1] * depths)[1] for batch in batches]
    return [
        sum(part[depth].loss for part in sums) / sum(part[depth].num_rows for part in sums) for depth in range(depths)
    ]


def target_of(heads: HeadsModule, batch: TrainingBatch, lab: Any) -> Tensor:
    return batch.trunk_states / (1.0 if heads.config.kind == "eagle" else lab.weights["final_norm"])


def fit_error(lab: Any, heads: HeadsModule, batches: list[TrainingBatch]) -> float:
    """Squared distance of depth 1's output to the trunk's state that it stands for: what blocks of nothing leave."""
    total = 0.0
    with torch.no_grad():
        for batch in batches:
            rows = learnt_rows(heads.config, batch, 1)
            output = next(iter(heads(batch.text, batch.taps)))
            total += float((output.features - target_of(heads, batch, lab))[rows].square().sum())
    return total


@pytest.mark.parametrize(
    ("name", "projection"),
    [("sequential", "modules.0.projection"), ("sequential, several taps", "modules.0.tap_projection"),
     ("eagle", "projection"), ("eagle3", "fuse"), ("eagle3, own", "fuse")],
)  # fmt: skip
def test_no_other_projection_comes_nearer_to_the_trunks_next_state(name: str, projection: str, lab: Any) -> None:
    """As far as the ridge allows: the gradient of the distance is what the ridge holds against, and is small."""
    heads, batches = start(lab, name)
    if name == "eagle":  # whose projection serves on the trunk's states at both depths: they are the same here
        assert heads.config.hidden_stage == "post_norm"
    best = fit_error(lab, heads, batches)
    weight = heads.own_weights()[projection]
    solution = weight.detach().clone()
    random = torch.Generator().manual_seed(3)
    for size in (0.03, 0.1, 0.3):
        for _ in range(3):
            change = torch.randn(weight.shape, generator=random, dtype=lab.dtype) * solution.square().mean().sqrt()
            with torch.no_grad():
                weight.copy_(solution + size * change)
            assert fit_error(lab, heads, batches) > best
    for factor in (0.9, 1.1):
        with torch.no_grad():
            weight.copy_(factor * solution)
        assert fit_error(lab, heads, batches) > best


def test_a_map_that_exists_is_found(lab: Any) -> None:
    """The state that is to be guessed is a linear map of the one before it: then nothing is left over."""
    heads = lab.heads("eagle")
    batch = lab.batch(lab.pack(lab.documents([60] * 8, seed=1), 60), taps=(2,))
    random = torch.Generator().manual_seed(0)
    given = torch.randn(batch.taps.shape, generator=random, dtype=lab.dtype)
    width = given.shape[2]
    true = torch.randn(width, width, generator=random, dtype=lab.dtype) / width**0.5
    before = shifted(given, batch.text)
    normed = before * torch.rsqrt(before.square().mean(2, keepdim=True) + 1e-5) * lab.weights["final_norm"]
    states = normed @ true.T
    made = TrainingBatch(
        text=batch.text, supervised=batch.supervised, taps=given, trunk_states=states,
        log_normaliser=batch.log_normaliser, likeliest=batch.likeliest,
    )  # fmt: skip
    # one depth alone reads taps: the other's inputs would be states that no map gives
    single = HeadsConfig(kind="sequential", depth=1, taps=(2,), hidden_stage="post_norm", intermediate_size=96)
    heads = HeadsModule(single, heads.trunk_config, lab.weights).to(lab.dtype)
    initialise(heads, lab.weights, [made], torch.Generator().manual_seed(0))
    random_error = float((made.trunk_states / lab.weights["final_norm"])[learnt_rows(single, made, 1)].square().sum())
    assert fit_error(lab, heads, [made]) < 0.05 * random_error


@pytest.mark.parametrize("name", TINY_HEADS)
def test_blocks_add_nothing_yet_and_norms_are_the_trunks(name: str, lab: Any) -> None:
    heads, _ = start(lab, name)
    for own, weight in heads.own_weights().items():
        if own.endswith(("attention.output", "mlp.down", "bias")):
            assert not bool(weight.any()), own
        elif own.endswith("final_norm"):
            assert torch.equal(weight, lab.weights["final_norm"]), own
        elif own.endswith("unembedding"):
            assert torch.equal(weight, lab.unembedding), own
        elif weight.ndim == 1:
            assert bool((weight == 1).all()), own
        elif heads.config.kind != "medusa":
            assert bool(weight.any()), own


def test_an_own_unembedding_begins_as_the_trunks_rows_of_the_draft_vocabulary(lab: Any) -> None:
    vocabulary = torch.arange(3, 300, 7)
    heads, _ = start(lab, "eagle3, own", vocabulary=vocabulary)
    assert torch.equal(heads.own_weights()["unembedding"], lab.unembedding[vocabulary])


def test_medusa_begins_at_the_trunks_own_prediction(lab: Any) -> None:
    heads, batches = start(lab, "medusa")
    batch = batches[0]
    for output in heads(batch.text, batch.taps):
        torch.testing.assert_close(output.hidden, shifted(batch.trunk_states, batch.text), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["sequential", "sequential, unrolled", "eagle", "eagle3"])
def test_the_loss_begins_far_below_that_of_random_heads(name: str, lab: Any) -> None:
    """On other text than the map was fitted to, too, it is lower at every depth."""
    heads, batches = start(lab, name)
    others = lab.batch(lab.pack(lab.documents([40] * 4, seed=7), 40), taps=heads.config.taps)
    started, unseen = mean_loss(lab, heads, batches), mean_loss(lab, heads, [others])
    random = lab.heads(name)
    for depth, (found, found_unseen) in enumerate(zip(started, unseen, strict=True)):
        assert found < 0.8 * mean_loss(lab, random, batches)[depth]
        assert found_unseen < mean_loss(lab, random, [others])[depth]


@pytest.mark.parametrize("recycled_stage", ["pre_norm", "post_norm"])
@pytest.mark.parametrize("hidden_stage", ["pre_norm", "post_norm"])
def test_an_unrolled_projection_suits_both_what_it_is_given(hidden_stage: str, recycled_stage: str, lab: Any) -> None:
    """Depth 1 reads the trunk, deeper ones what the module recycles, which may have passed another norm."""
    config = HeadsConfig(
        kind="sequential", depth=3, taps=(2,), hidden_stage=hidden_stage, recycled_stage=recycled_stage,
        intermediate_size=96,
    )  # fmt: skip
    trunk = lab.heads("eagle3").trunk_config
    windows = lab.pack(lab.documents([40] * 12, seed=1), 40)
    batches = [lab.batch(windows, [index], taps=(2,)) for index in range(len(windows))]
    heads = HeadsModule(config, trunk, lab.weights).to(lab.dtype)
    initialise(heads, lab.weights, batches, torch.Generator().manual_seed(0))
    # against one that reads the trunk alone: the first depth pays little for the others
    single = HeadsModule(
        HeadsConfig(kind="sequential", depth=1, taps=(2,), hidden_stage=hidden_stage, intermediate_size=96),
        trunk,
        lab.weights,
    ).to(lab.dtype)
    initialise(single, lab.weights, batches, torch.Generator().manual_seed(0))
    found, alone = mean_loss(lab, heads, batches), mean_loss(lab, single, batches)
    assert found[0] < 1.1 * alone[0]
    assert max(found[1:]) < 1.8 * alone[0]


def test_the_generator_alone_decides_what_is_random(lab: Any, make_lab: Callable[..., Any]) -> None:
    (one, _), (same, _), (other, _) = (start(lab, "eagle3", seed=seed) for seed in (0, 0, 1))
    weights = [heads.own_weights() for heads in (one, same, other)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert not torch.equal(weights[0]["block.mlp.up"], weights[2]["block.mlp.up"])
