"""The usual mistakes, each as heads in which it is undone.

Every one of them lets heads load and run; guesses are wrong more often, and the
text is right as ever, so nothing else tells.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from headstart.architectures.config import TrunkConfig
from headstart.architectures.heads import HeadsConfig, heads_program
from headstart.architectures.heads.config import ConcatOrder
from headstart.architectures.program import RmsNorm
from headstart.checkpoint import Tensor
from headstart.errors import ConfigError
from headstart.measure.doctor.patient import Patient

WHOLE_VOCABULARY = "whole_vocabulary"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Remedy:
    """One thing undone.

    Attributes:
        name: for programs.
        mistake: what was wrong, if this helps.
        change: what to do about it.
        patient: the heads with it undone.
    """

    name: str
    mistake: str
    change: str
    patient: Patient


def possible_remedies(patient: Patient, trunk: TrunkConfig) -> tuple[Remedy, ...]:
    """All that can be tried on these heads. Those that need other layers of the trunk come last."""
    return (
        *_order(patient),
        *_norms(patient, trunk),
        *_stages(patient, trunk),
        *_vocabulary(patient, trunk),
        *_positions(patient),
        *_taps(patient, trunk),
    )


def _order(patient: Patient) -> Iterator[Remedy]:
    config = patient.config
    if not config.recurrent:
        return
    other: ConcatOrder = "embedding_hidden" if config.order == "hidden_embedding" else "hidden_embedding"
    yield Remedy(
        name="order",
        mistake="The two halves of the input are joined in the wrong order.",
        change=f'In the description of the heads, set "order" to "{other}".',
        patient=replace(patient, config=replace(config, order=other)),
    )


def _norms(patient: Patient, trunk: TrunkConfig) -> Iterator[Remedy]:
    names = {
        op.weight
        for stage in heads_program(patient.config, trunk).stages
        for op in stage.program.operations
        if isinstance(op, RmsNorm) and op.weight in patient.weights
    }
    if not names:
        return
    for step, mistake, change in (
        (1.0, "The norms' weights are stored less one, and nothing adds it.", "Add 1 to every norm's weights."),
        (-1.0, "One was added to the norms' weights twice.", "Subtract 1 from every norm's weights."),
    ):
        shifted = {name: _plus(tensor, step) if name in names else tensor for name, tensor in patient.weights.items()}
        name = "norms_plus_one" if step > 0 else "norms_minus_one"
        yield Remedy(name=name, mistake=mistake, change=change, patient=replace(patient, weights=shifted))


def _stages(patient: Patient, trunk: TrunkConfig) -> Iterator[Remedy]:
    for field, what in (
        ("hidden_stage", "What the heads read of the trunk's last layer"),
        ("recycled_stage", "What one depth hands to the next"),
    ):
        if not _stage_matters(patient.config, field):
            continue
        other = "pre_norm" if getattr(patient.config, field) == "post_norm" else "post_norm"
        config = HeadsConfig.from_json({**patient.config.to_json(), field: other})
        if _fits(config, trunk):
            yield Remedy(
                name=field,
                mistake=f"{what} {'lacks' if other == 'post_norm' else 'has'} the final norm.",
                change=f'In the description of the heads, set "{field}" to "{other}".',
                patient=replace(patient, config=config),
            )


def _vocabulary(patient: Patient, trunk: TrunkConfig) -> Iterator[Remedy]:
    ids = patient.vocabulary
    if ids is None:
        return
    places = np.arange(len(ids), dtype=np.int32)
    for name, other, mistake, change in (
        ("vocabulary_plus_index", ids + places, "The draft vocabulary holds offsets, not token ids.",
         "Add its place to every entry of the draft vocabulary."),
        ("vocabulary_minus_index", ids - places, "Offsets were added to the draft vocabulary twice.",
         "Subtract its place from every entry of the draft vocabulary."),
    ):  # fmt: skip
        if len(np.unique(other)) == len(other) and other.min() >= 0 and other.max() < trunk.vocab_size:
            yield Remedy(name=name, mistake=mistake, change=change, patient=replace(patient, vocabulary=other))
    if not patient.config.own_unembedding:
        yield Remedy(
            name=WHOLE_VOCABULARY,
            mistake="The draft vocabulary leaves out what the model writes, as the first ids of all do, for instance.",
            change='Put the token ids of the training into "vocabulary"; or leave it out, and set "draft_vocab_size" '
            "to 0.",
            patient=replace(patient, vocabulary=None, config=replace(patient.config, draft_vocab_size=0)),
        )


def _positions(patient: Patient) -> Iterator[Remedy]:
    if not patient.config.recurrent:
        return  # no token stands beside the state
    for step, mistake in (
        (1, "The state beside each token is one token too young: heads were trained with an older one."),
        (-1, "The state beside each token is one token too old: heads were trained with the token's own."),
    ):
        yield Remedy(
            name="token_later" if step > 0 else "token_earlier",
            mistake=mistake,
            change="A heads file cannot say this. Train on with the state of the token before each (headstart graft).",
            patient=replace(patient, token_shift=patient.token_shift + step),
        )


def _taps(patient: Patient, trunk: TrunkConfig) -> Iterator[Remedy]:
    for step in (1, -1):
        taps = tuple(tap + step for tap in patient.config.taps)
        if min(taps) < 0:
            continue
        config = replace(patient.config, taps=taps)
        if _fits(config, trunk):
            yield Remedy(
                name="taps_plus_one" if step > 0 else "taps_minus_one",
                mistake="The heads read other layers of the trunk than in training: layers are counted from the wrong "
                "number. Here 0 is the embedding.",
                change=f'In the description of the heads, set "taps" to {list(taps)}.',
                patient=replace(patient, config=config),
            )


def _stage_matters(config: HeadsConfig, field: str) -> bool:
    return field != "recycled_stage" or (config.depth > 1 and config.reads(field))


def _fits(config: HeadsConfig, trunk: TrunkConfig) -> bool:
    try:
        config.check_trunk(trunk)
    except ConfigError:
        return False
    return True


def _plus(tensor: Tensor, step: float) -> Tensor:
    values = np.ascontiguousarray(tensor.dequantize() + np.float32(step), np.float32)
    return Tensor(tensor.name, tensor.shape, "F32", values.reshape(-1).view(np.uint8))
