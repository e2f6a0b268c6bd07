from __future__ import annotations

import json
from pathlib import Path

import pytest

from headstart.checkpoint.safetensors import read_safetensors, read_safetensors_header
from headstart.checkpoint.safetensors_writing import write_safetensors
from headstart.testing.command_line import run_command


def altered(path: Path, copy: Path, **changes: object) -> Path:
    """A heads file with other entries in its description; `heads` is updated, the rest replaced."""
    metadata, _ = read_safetensors_header(path)
    document = json.loads(metadata["headstart"])
    for name, value in changes.items():
        document[name] = {**document[name], **value} if isinstance(value, dict) else value
    write_safetensors(copy, read_safetensors(path).values(), {"headstart": json.dumps(document)})
    return copy


def test_heads_that_promise_nothing_are_healthy(tiny_model: str, tiny_heads: Path) -> None:
    outcome = run_command("doctor", tiny_model, "--draft", f"heads:{tiny_heads}", "--threads", "1", "--json")
    document = outcome.document
    assert (outcome.status, outcome.err) == (0, "")
    assert (document["verdict"], document["found"]) == ("healthy", None)
    names = [trial["name"] for trial in document["diagnosis"]["trials"]]
    assert {"order", "norms_plus_one", "hidden_stage", "recycled_stage", "token_later"} <= set(names)


def test_heads_far_below_their_promise_are_not_healthy(tiny_model: str, tiny_heads: Path, tmp_path: Path) -> None:
    promising = altered(
        tiny_heads, tmp_path / "promising.heads.safetensors", measured={"conditional_acceptance": [0.9, 0.8]}
    )
    outcome = run_command("doctor", tiny_model, "--draft", f"heads:{promising}", "--threads", "1")
    assert outcome.status == 1
    assert "The file says that 90% were kept at depth 1" in outcome.out
    assert "none of the usual mistakes is why" in outcome.out


def test_heads_of_another_template_are_noted(tiny_model: str, tiny_heads: Path, tmp_path: Path) -> None:
    other = altered(tiny_heads, tmp_path / "other.heads.safetensors", trunk={"template_digest": "0" * 32})
    outcome = run_command("doctor", tiny_model, "--draft", f"heads:{other}", "--threads", "1", "--tokens", "64")
    assert "note: The heads were trained with another chat template" in outcome.out
    assert outcome.status == 0  # no form of asking makes random heads right


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--draft", "lookup"), "only heads can be examined"),
        (("--draft", "heads:"), "only heads can be examined"),
        ((), "There are no heads for this model"),
        (("--tokens", "3"), "too few"),
        (("--frame", "Say it:"), "no place for a question"),
    ],
)
def test_wrong_usage_is_told_in_a_line(
    tiny_model: str, tiny_heads: Path, arguments: tuple[str, ...], told: str
) -> None:
    draft = () if "--draft" in arguments or not arguments else ("--draft", f"heads:{tiny_heads}")
    outcome = run_command("doctor", tiny_model, *draft, *arguments)
    assert outcome.status == 2
    assert told in outcome.err


def test_heads_beside_the_model_are_examined_though_they_are_refused(tiny_model: str, tiny_heads: Path) -> None:
    beside = Path(tiny_model).with_suffix(".heads.safetensors")
    beside.write_bytes(b"no heads")
    try:
        outcome = run_command("doctor", tiny_model, "--draft", "heads")
    finally:
        beside.unlink()
    assert outcome.status == 1
    assert str(beside) in outcome.err


def test_a_frame_may_say_a_new_line_in_two_characters(tiny_model: str, tiny_heads: Path) -> None:
    reports = [
        run_command(
            "doctor", tiny_model, "--draft", f"heads:{tiny_heads}", "--threads", "1", "--frame", frame, "--json"
        ).document["diagnosis"]
        for frame in (r"Q: {}\nA:", "Q: {}\nA:", "Q: {} A:")
    ]
    assert reports[0] == reports[1] != reports[2]


def test_a_frame_may_have_other_braces(tiny_model: str, tiny_heads: Path) -> None:
    frame = '{"q": "{}"} {% %}'
    outcome = run_command(
        "doctor", tiny_model, "--draft", f"heads:{tiny_heads}", "--threads", "1", "--frame", frame, "--json"
    )
    assert outcome.status == 0, outcome.err
