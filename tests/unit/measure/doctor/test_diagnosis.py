"""Mistakes that are planted are found, and none where there is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from headstart.architectures.heads import HeadsConfig
from headstart.checkpoint import Tensor
from headstart.measure.doctor import Diagnosis, Patient, diagnose, possible_remedies

Plant = Callable[[Patient], Patient]


def configured(**settings: Any) -> Plant:
    return lambda patient: replace(patient, config=HeadsConfig.from_json({**patient.config.to_json(), **settings}))


def with_norms(step: float) -> Plant:
    def plant(patient: Patient) -> Patient:
        weights = dict(patient.weights)
        for name, tensor in weights.items():
            if "norm" in name:
                values = (tensor.dequantize() + step).astype(np.float32)
                weights[name] = Tensor(name, tensor.shape, "F32", values.view(np.uint8))
        return replace(patient, weights=weights)

    return plant


def with_ids(change: Callable[[Any], Any]) -> Plant:
    return lambda patient: replace(patient, vocabulary=change(patient.vocabulary).astype(np.int32))


def diagnosed(ward: Any, patient: Patient) -> Diagnosis:
    return diagnose(ward.examiner, patient, ward.trunk, ward.texts)


@pytest.fixture(scope="module")
def healthy(ward: Any) -> Patient:
    patient = ward.healthy()
    assert isinstance(patient, Patient)
    return patient


def test_where_nothing_is_wrong_nothing_is_found(ward: Any, healthy: Patient) -> None:
    diagnosis = diagnosed(ward, healthy)
    assert diagnosis.found is None
    assert diagnosis.right[0] > 0.5
    assert diagnosis.num_places == 2 * (70 - 4 - 1)
    assert diagnosis.left_out == 0.0
    assert all(trial.gain_nats < 0 for trial in diagnosis.trials if trial.name != "vocabulary_map")


@pytest.mark.parametrize(
    ("plant", "name", "told"),
    [
        (configured(order="hidden_embedding"), "order", '"order" to "embedding_hidden"'),
        (with_norms(-1.0), "norms_plus_one", "Add 1"),
        (with_norms(1.0), "norms_minus_one", "Subtract 1"),
        (configured(recycled_stage="post_norm"), "recycled_stage", '"recycled_stage" to "pre_norm"'),
        (configured(taps=[0, 2]), "taps_plus_one", '"taps" to [1, 3]'),
        (configured(taps=[2, 4]), "taps_minus_one", '"taps" to [1, 3]'),
        (with_ids(lambda ids: ids - np.arange(len(ids))), "vocabulary_plus_index", "Add its place"),
        (with_ids(lambda ids: ids + np.arange(len(ids))), "vocabulary_minus_index", "Subtract its place"),
        (with_ids(lambda ids: np.arange(len(ids))), "vocabulary_map", "token ids of the training"),
        (with_ids(lambda ids: ids[::-1].copy()), "vocabulary_map", "token ids of the training"),
        (lambda patient: replace(patient, token_shift=1), "token_earlier", "Train on"),
        (lambda patient: replace(patient, token_shift=-1), "token_later", "Train on"),
    ],
)  # fmt: skip
def test_a_planted_mistake_is_found(ward: Any, healthy: Patient, plant: Plant, name: str, told: str) -> None:
    diagnosis = diagnosed(ward, plant(healthy))
    assert diagnosis.found is not None
    assert diagnosis.found.name == name
    assert told in diagnosis.found.change
    whole = diagnosed(ward, healthy).right[0]
    assert diagnosis.right[0] < whole or name == "recycled_stage"
    if name != "vocabulary_map":  # judged where guesses recur, so by another count
        assert diagnosis.found.right[0] == pytest.approx(whole)


@pytest.mark.parametrize(("trained", "said"), [("post_norm", "pre_norm"), ("pre_norm", "post_norm")])
def test_a_state_from_the_wrong_side_of_the_norm_is_found(ward: Any, trained: str, said: str) -> None:
    patient = ward.healthy(kind="eagle", taps=(4,), hidden_stage=trained)
    assert diagnosed(ward, patient).found is None
    found = diagnosed(ward, configured(hidden_stage=said)(patient)).found
    assert found is not None
    assert found.name == "hidden_stage"
    assert f'"hidden_stage" to "{trained}"' in found.change


def test_what_recycles_wrongly_is_wrong_at_the_second_guess_only(ward: Any, healthy: Patient) -> None:
    diagnosis = diagnosed(ward, configured(recycled_stage="post_norm")(healthy))
    assert diagnosis.found is not None
    assert diagnosis.right[0] == pytest.approx(diagnosis.found.right[0])
    assert diagnosis.right[1] < diagnosis.found.right[1]


def test_a_borrowed_unembedding_may_guess_among_all(ward: Any) -> None:
    lost = ward.healthy()
    config = replace(lost.config, own_unembedding=False)
    weights = {name: tensor for name, tensor in lost.weights.items() if name != "unembedding"}
    patient = replace(lost, config=config, weights=weights, vocabulary=np.arange(12, dtype=np.int32))
    diagnosis = diagnosed(ward, patient)
    assert diagnosis.left_out == 1.0
    assert "whole_vocabulary" in [trial.name for trial in diagnosis.trials]
    right_ids = diagnosed(ward, replace(patient, vocabulary=lost.vocabulary))
    assert "whole_vocabulary" not in [trial.name for trial in right_ids.trials]


def test_only_what_these_heads_have_is_tried(ward: Any) -> None:
    medusa = HeadsConfig(
        kind="medusa", depth=2, taps=(4,), hidden_stage="post_norm", num_modules=2, intermediate_size=96
    )
    names = {
        remedy.name for remedy in possible_remedies(Patient(config=medusa, weights={}, vocabulary=None), ward.trunk)
    }
    # no halves to join, no norms of their own, nothing recycled, no token beside the state; layer 4 is the last
    assert names == {"hidden_stage"}
