from __future__ import annotations

import json

import pytest

from headstart.errors import CheckpointError
from headstart.measure.check import Certificate, prompts_document, verify_document
from headstart.measure.check.faults import Fault, root_faults
from headstart.measure.check.findings import Finding


def fault(kind) -> Fault:
    return Fault(kind=kind, evidence=f"{kind} was seen")


def certificate(*findings: Finding) -> Certificate:
    return Certificate(subject="model", findings=findings, context={"settings": {"seed": 1}}, made_at="2030-01-01")


def test_an_exact_one_says_so_and_proves_itself():
    document = certificate(Finding(test="greedy", figures={"num_places": 3})).to_json()
    assert (document["verdict"], document["fault"], document["faults"]) == ("exact", None, [])
    assert document["settings"] == {"seed": 1}
    assert document["versions"]["headstart"]
    verify_document(json.loads(json.dumps(document)))


def test_a_change_is_found():
    document = certificate(Finding(test="greedy", faults=(fault("near-miss accepted"),))).to_json()
    assert document["fault"] == "near-miss accepted"
    with pytest.raises(CheckpointError, match="changed"):
        verify_document({**document, "verdict": "exact"})
    with pytest.raises(CheckpointError, match="no certificate"):
        verify_document({"verdict": "exact"})


def test_what_was_not_tested_is_told():
    told = certificate(Finding(test="greedy"), Finding(test="seeds", untested="No log-probabilities."))
    assert told.exact
    assert "Not tested: seeds." in told.sentence


@pytest.mark.parametrize(
    ("found", "roots"),
    [
        (["draft distribution off"], ["draft distribution off"]),
        (["near-miss accepted", "draft distribution off"], ["near-miss accepted"]),
        (["seed shared", "argmax at temperature 1"], ["argmax at temperature 1"]),
        (["wrong token count", "token lost after a rejection"], ["token lost after a rejection"]),
        (["stop string missed", "stale cache row"], ["stop string missed", "stale cache row"]),
        (["stop string missed"] * 3, ["stop string missed"]),
    ],
)
def test_a_fault_that_explains_others_is_named_alone(found, roots):
    assert [root.kind for root in root_faults(map(fault, found))] == roots


def test_other_prompts_have_another_fingerprint():
    assert prompts_document(["a", "b"])["num"] == 2
    assert prompts_document(["a", "b"]) != prompts_document(["ab", ""])
