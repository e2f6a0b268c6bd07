"""Flags from a file and from the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from headstart.testing.command_line import run_command


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    return tmp_path / "settings.toml"


def _num_written(model: str, *flags: str | Path) -> int:
    return len(run_command("generate", model, "abc", "--json", *flags).document["token_ids"])


def test_flag_before_environment_before_file(tiny_model: str, settings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.write_text('[generate]\nmax_tokens = 3\nstop = ["§", "¶"]\n')
    assert _num_written(tiny_model, "--config", settings) == 3
    monkeypatch.setenv("HEADSTART_CONFIG", str(settings))
    assert _num_written(tiny_model) == 3
    monkeypatch.setenv("HEADSTART_MAX_TOKENS", "4")
    assert _num_written(tiny_model) == 4
    assert _num_written(tiny_model, "--max-tokens", "5") == 5
    assert run_command("generate", tiny_model, "abc", "--json").document["sampling"]["stop"] == ["§", "¶"]


@pytest.mark.parametrize(
    ("value", "stops"),
    [
        ("User: x", ["User: x"]),
        ('["a b", "c"]', ["a b", "c"]),
        ("[x", ["[x"]),
        ("3", ["3"]),
        ('{"a": 1}', ['{"a": 1}']),
    ],
)
def test_a_variable_is_one_value_unless_it_is_a_list(
    tiny_model: str, monkeypatch: pytest.MonkeyPatch, value: str, stops: list[str]
) -> None:
    monkeypatch.setenv("HEADSTART_STOP", value)
    outcome = run_command("generate", tiny_model, "abc", "--max-tokens", "3", "--json")
    assert outcome.document["sampling"]["stop"] == stops


def test_other_verbs_tables_do_not_count(tiny_model: str, settings: Path) -> None:
    settings.write_text("[chat]\nmax_tokens = 3\n")
    assert _num_written(tiny_model, "--config", settings, "--ignore-eos") == 256


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[generate]\nmax_tokes = 3\n", "--max-tokens"),
        ("[generate]\nmax_tokens = 'many'\n", "many"),
        ("[generate]\nmax_tokens = 0\n", "at least 1"),
        ("[genrate]\nmax_tokens = 3\n", "[generate]"),
        ("max_tokens = 3\n", "max_tokens"),
        ("[train]\nsteps = 3\n", "'train' is no table"),
        ("[generate\n", "TOML"),
        ("[generate]\nstop = '\udcff'\n", "TOML"),
    ],
)
def test_a_wrong_file_is_a_usage_error(tiny_model: str, settings: Path, text: str, said: str) -> None:
    settings.write_bytes(text.encode("utf-8", "surrogateescape"))
    outcome = run_command("generate", tiny_model, "abc", "--config", settings)
    assert outcome.status == 2
    (line,) = outcome.err.splitlines()
    assert said in line
    assert "settings.toml" in line or said == "at least 1"


def test_a_missing_file_is_a_usage_error(tiny_model: str, settings: Path) -> None:
    outcome = run_command("generate", tiny_model, "abc", "--config", settings)
    assert outcome.status == 2
    assert str(settings) in outcome.err


def test_verbs_without_a_model_read_their_tables(
    tmp_path: Path, settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("some text, which is a document\n" * 50)
    settings.write_text('[data]\ntokenizer = "bpe:300"\n\n[inspect]\nrevison = "main"\n')
    monkeypatch.setenv("HEADSTART_CONFIG", str(settings))
    outcome = run_command("data", tmp_path / "out", "--source", f"text:{tmp_path}/a.txt", "--json")
    assert outcome.status == 0, outcome.err
    assert outcome.document["settings"]["tokenizer"] == "bpe:300"
    outcome = run_command("inspect", tmp_path)
    assert outcome.status == 2
    assert "revison" in outcome.err


def test_a_file_of_flags_is_no_run_to_train(settings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.write_text("[generate]\nmax_tokens = 3\n")
    monkeypatch.setenv("HEADSTART_CONFIG", str(settings))
    outcome = run_command("train")
    assert outcome.status == 2
    assert "settings.toml" not in outcome.err
