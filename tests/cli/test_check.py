from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from headstart import Engine
from headstart.checkpoint import open_checkpoint
from headstart.engine import verification
from headstart.measure.check import verify_document
from headstart.records import Verdict
from headstart.runtime.native import load_trunk
from headstart.testing.command_line import run_command
from headstart.testing.toy_server import ServerFault, ToyServerConfig, serve_toy

SMALL = ("--limit", "2", "--max-tokens", "8")


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    texts = ("once upon a time", "the quick brown fox", "hello world", "abc abc abc abc")
    path.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts))
    return path


def test_this_engine_is_exact_and_gets_a_certificate(tiny_model: str, prompts: Path, tmp_path: Path) -> None:
    certificate = tmp_path / "certificate.json"
    outcome = run_command(
        "check", tiny_model, "--draft", f"none,lookup,model:{tiny_model}", "--threads", "1,2", "--batch", "2",
        "--prompts", prompts, *SMALL, "--out", certificate, "--json",
    )  # fmt: skip
    document = outcome.document
    assert (outcome.status, outcome.err) == (0, "")
    assert (document["verdict"], document["fault"]) == ("exact", None)
    assert len(document["tests"]) == 6
    assert sum(test["figures"]["drafted"] for test in document["tests"]) > 0
    # one hash for all drafters and numbers of threads: each is of all texts, for one of three laws
    assert len({tuple(test["figures"]["token_hashes"]) for test in document["tests"]}) == 1
    assert document["model"]["model"]["digest"]
    assert document["prompts"]["num"] == 2
    assert document["settings"]["batches"] == [2]
    assert [(side["draft"], side["threads"]) for side in document["sides"]] == [
        (draft, threads) for threads in (1, 2) for draft in ("none", "lookup", f"model:{tiny_model}")
    ]
    assert json.loads(certificate.read_text()) == document
    verify_document(document)


def test_a_key_for_servers_in_the_environment_is_none_of_a_models_business(
    tiny_model: str, prompts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADSTART_API_KEY", "secret")
    outcome = run_command(
        "check", tiny_model, "--draft", "none", "--threads", "1", "--batch", "1", "--prompts", prompts, *SMALL, "--json"
    )
    assert outcome.status == 0, outcome.err
    assert "secret" not in outcome.out


@pytest.mark.parametrize(
    ("drafts", "said"),
    [("none, lookup,heds", "'heds'"), ("none,heads", "draft = 'heads'"), ("model:no.gguf", "no.gguf")],
)
def test_a_drafter_that_cannot_be_had_is_refused_before_any_is_checked(
    tiny_model: str, monkeypatch: pytest.MonkeyPatch, drafts: str, said: str
) -> None:
    monkeypatch.setattr(Engine, "step", None)  # nothing is written
    outcome = run_command("check", tiny_model, "--draft", drafts, *SMALL)
    assert outcome.status in {1, 2}
    (line,) = outcome.err.splitlines()
    assert said in line


def test_a_certificate_names_the_heads_of_each_side(tiny_model: str, tiny_heads: Path, prompts: Path) -> None:
    outcome = run_command(
        "check", tiny_model, "--draft", f"heads:{tiny_heads}, none", "--threads", "1", "--batch", "1",
        "--prompts", prompts, *SMALL, "--json",
    )  # fmt: skip
    with_heads, without = outcome.document["sides"]
    assert with_heads["heads"]["path"] == str(tiny_heads)
    assert with_heads["heads"]["digest"]
    assert (without["draft"], without["heads"]) == ("none", None)


def test_a_broken_engine_is_told_and_the_exit_status_is_one(
    tiny_model: str, prompts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def keeps_the_first_guess(tree, choices):  # type: ignore[no-untyped-def]
        return Verdict((0,), choices[1]) if tree.tokens else Verdict((), choices[0])

    monkeypatch.setattr(verification, "verify", keeps_the_first_guess)
    outcome = run_command(
        "check", tiny_model, "--draft", f"model:{tiny_model},lookup", "--threads", "1", "--batch", "1",
        "--prompts", prompts, "--limit", "4", "--max-tokens", "16",
    )  # fmt: skip
    assert outcome.status == 1
    assert "failed" in outcome.out
    assert "BROKEN: tokens differ" in outcome.out
    assert "nats apart" in outcome.out


@pytest.fixture
def served(tiny_model: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """A server of the tiny model, with the fault that the test asks for."""
    fault: ServerFault | None = request.param
    checkpoint = open_checkpoint(tiny_model)
    trunk, draft_trunk = (load_trunk(checkpoint, threads=1) for _ in range(2))
    with serve_toy(
        ToyServerConfig(fault=fault), trunk=trunk, draft_trunk=draft_trunk, tokenizer=checkpoint.tokenizer()
    ) as url:
        yield url


@pytest.mark.parametrize(("served", "status"), [(None, 0), ("wrong token count", 1)], indirect=["served"])
def test_a_server_is_held_to_the_model_file(tiny_model: str, prompts: Path, served: str, status: int) -> None:
    outcome = run_command(
        "check", tiny_model, "--url", served, "--threads", "1", "--samples", "5", "--prompts", prompts, *SMALL, "--json"
    )
    assert outcome.status == status, outcome.err
    document = outcome.document
    assert document["subject"] == served
    assert document["fault"] == (None if status == 0 else "wrong token count")
    assert document["held_to"]["model"]["path"] == tiny_model
    assert document["settings"]["num_sampled"] == 5


@pytest.mark.parametrize(("fault", "status"), [(None, 0), ("near-miss accepted", 1)])
def test_a_server_is_held_to_another(prompts: Path, fault: ServerFault | None, status: int) -> None:
    with serve_toy(ToyServerConfig(fault=fault)) as url, serve_toy(ToyServerConfig(seed=1)) as plain:
        outcome = run_command(
            "check", "--url", url, "--url-plain", plain, "--samples", "5", "--prompts", prompts, "--max-tokens", "32",
            "--json",
        )  # fmt: skip
    assert outcome.status == status, outcome.err
    assert outcome.document["fault"] == fault
    assert outcome.document["held_to"]["server"] == plain


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "Name a model"),
        (("--url", "http://localhost:1/v1"), "--url-plain"),
        (("m.gguf", "--url", "http://localhost:1/v1", "--url-plain", "http://localhost:2/v1"), "one thing"),
        (("m.gguf", "--url", "http://localhost:1/v1", "--batch", "2"), "--batch is the server's"),
        (("m.gguf", "--url", "http://localhost:1/v1", "--threads", "1,2"), "one number of threads"),
        (("--url", "http://localhost:1/v1", "--url-plain", "http://localhost:2/v1", "--threads", "1"), "server's"),
        (("--url", "http://localhost:1/v1", "--url-plain", "http://localhost:2/v1", "--weights", "f32"), "server's"),
        (("m.gguf", "--samples", "3"), "--samples has no effect"),
        (("m.gguf", "--out", "no-such-folder/certificate.json"), "a folder that is there"),
        (("m.gguf", "--out", "."), "name a file"),
        (("m.gguf", "--url-plain", "http://localhost:1/v1"), "no effect without --url"),
        (("m.gguf", "--limit", "0"), "--limit 0"),
    ],
)
def test_flags_that_do_not_fit_together_are_refused(arguments: tuple[str, ...], said: str) -> None:
    outcome = run_command("check", *arguments)
    assert outcome.status == 2
    assert said in outcome.err
