from __future__ import annotations

import dataclasses
import io
import signal
import sys
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import pytest

from headstart.cli.graft_flags import GraftFlags, read_prompt_files
from headstart.cli.phases import PhaseProgress, spoken_time
from headstart.errors import ConfigError
from headstart.testing.command_line import Outcome, run_command
from headstart.train.graft_config import GraftConfig
from headstart.train.prompts import PromptMix, shipped_openings

# what the flags are called where they are not called as the library calls them
OTHER_NAMES = {
    "draft_vocab_size": "draft_vocabulary", "num_layers": "layers", "batch_windows": "batch", "form": "linear",
    "unrolled": "separate_modules",
}  # fmt: skip
TINY = ("--text-tokens", "300", "--window", "48", "--epochs", "1", "--checkpoints", "1", "--depth", "2",
        "--draft-vocabulary", "100", "--threads", "1")  # fmt: skip


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.txt"
    path.write_text("".join(f"Say {word}.\n" for word in ("one", "two", "three", "four", "five")))
    return path


@pytest.fixture
def trains(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that need torch."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)  # drawing takes longer than training here


def graft(model: str, out: Path, *arguments: str | Path) -> Outcome:
    return run_command("graft", model, "--kind", "medusa", "--out", out, *arguments)


def test_the_defaults_are_the_librarys() -> None:
    flags, config = GraftFlags(), GraftConfig(kind="eagle3")
    assert flags.to_config("eagle3") == config
    named = {OTHER_NAMES.get(field.name, field.name) for field in dataclasses.fields(config)}
    assert {field.name for field in dataclasses.fields(flags)} == named - {"kind"} | {"config"}


@pytest.mark.parametrize("missing", ["torch", "safetensors"])
def test_without_torch_it_says_what_to_install(
    tiny_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setitem(sys.modules, "torch", sys)  # any module will do
    monkeypatch.setitem(sys.modules, missing, None)
    outcome = graft(tiny_model, tmp_path / "run")
    assert outcome.status == 1
    (line,) = outcome.err.splitlines()
    assert f"{missing} is not installed" in line
    assert "pip install 'headstart[train]'" in line
    assert not (tmp_path / "run").exists()


def test_a_torch_without_the_optimiser_is_told_before_hours_are_spent(
    tiny_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.delattr(torch.optim, "Muon")
    outcome = graft(tiny_model, tmp_path / "run")
    assert outcome.status == 1
    assert "in PyTorch 2.9 or later" in outcome.err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--kind", "medsa"), "one of parallel, medusa, sequential, eagle, eagle3"),
        (("--taps", "1;2"), "such as 10,20,30"),
        (("--kind", "sequential", "--layers", "2"), "no effect on sequential heads"),
        (("--loss", "kll"), "Did you mean 'kl'"),
        (("--minutes", "0"), "minutes = 0.0"),
        (("--seed", "-1"), "seed = -1"),
        (("--seed", str(2**64)), "between 0 and 2**64 - 1"),
        (("--text-of", "there", "--prompts", "here"), "have no effect"),
        (("--text-of", "there", "--text-tokens", "9"), "have no effect"),
        (("--minuts", "3"), "--minutes"),
        (("--threads", "0"), "threads = 0"),
    ],
)
def test_wrong_usage_is_refused_before_anything_is_loaded(
    tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    kind = () if "--kind" in arguments else ("--kind", "medusa")
    outcome = run_command("graft", "no-such.gguf", "--out", tmp_path / "run", *kind, *arguments)
    assert outcome.status == 2
    assert words in outcome.err
    assert not (tmp_path / "run").exists()


def test_prompts_come_from_files_in_shares(prompts: Path, tmp_path: Path) -> None:
    alone = read_prompt_files((str(prompts),), raw_openings=False)
    assert {prompt.turns for prompt in alone.prompts} == {
        (f"Say {n}.",) for n in ("one", "two", "three", "four", "five")
    }
    mixed = read_prompt_files(("openings:4", f"{prompts}:1"), raw_openings=False)
    assert isinstance(mixed, PromptMix)
    assert mixed.parts == ((shipped_openings(), 4), (alone, 1))
    assert read_prompt_files((), raw_openings=True) == shipped_openings(raw=True)
    odd = prompts.rename(tmp_path / "a:b")
    assert read_prompt_files((str(odd),), raw_openings=False) == alone
    counted = odd.rename(tmp_path / "a:5")
    assert read_prompt_files((str(counted),), raw_openings=False) == alone
    for names in (("openings:0", str(counted)), (f"{counted}:0",)):
        with pytest.raises(ConfigError, match="at least 1"):
            read_prompt_files(names, raw_openings=False)


def test_a_whole_run(tiny_model: str, tmp_path: Path, prompts: Path, trains: None) -> None:
    arguments = (tmp_path / "run", "--prompts", prompts, *TINY)
    outcome = graft(tiny_model, *arguments)
    assert outcome.status == 0
    heads = tmp_path / "run" / "heads.safetensors"
    _, figures, use = outcome.out.splitlines()
    assert " tokens a round" in figures
    assert "at depth 2" in figures
    assert use == f"Use them: headstart generate {tiny_model} PROMPT --draft heads:{heads}"
    for label in ("Writing text", "Reading it", "Training"):
        shown = [line for line in outcome.err.splitlines() if line.startswith(label)]
        assert "100 %" in shown[-1], label
        assert len(shown) <= 3, label
    again = graft(tiny_model, *arguments, "--json")
    document = again.document
    assert document["heads"] == str(heads)
    assert document["kind"] == "medusa"
    assert f"{document['tau']:.2f} tokens a round" in figures
    assert len(document["survival"]) == len(document["conditional_acceptance"]) == 2
    plain, drafted = (
        run_command("generate", tiny_model, "Say one.", "--max-tokens", "32", "--json", "--draft", draft).document
        for draft in ("none", f"heads:{heads}")
    )
    assert drafted["token_hash"] == plain["token_hash"]
    assert drafted["drafter"] == "heads"


@pytest.mark.parametrize("label", ["Writing text", "Training"])
def test_ctrl_c_stops_and_the_same_command_goes_on(
    tiny_model: str, tmp_path: Path, prompts: Path, trains: None, monkeypatch: pytest.MonkeyPatch, label: str
) -> None:
    show = PhaseProgress.show

    def show_and_press(bars: PhaseProgress, shown: str, *figures: Any) -> None:
        show(bars, shown, *figures)
        if shown.strip() == label:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(PhaseProgress, "show", show_and_press)
        outcome = graft(tiny_model, tmp_path / "run", "--prompts", prompts, *TINY)
    assert outcome.status == 130
    assert outcome.out == ""
    assert "the same command goes on from here" in outcome.err.splitlines()[-1]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert graft(tiny_model, tmp_path / "run", "--prompts", prompts, *TINY).status == 0


def test_a_second_ctrl_c_stops_at_once(
    tiny_model: str, tmp_path: Path, prompts: Path, trains: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def press_twice(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(PhaseProgress, "show", press_twice)
    outcome = graft(tiny_model, tmp_path / "run", "--prompts", prompts, *TINY)
    assert outcome.status == 130
    assert "the same command goes on from here" in outcome.err
    assert "Traceback" not in outcome.err


def test_other_settings_for_a_run_are_refused(tiny_model: str, tmp_path: Path, prompts: Path, trains: None) -> None:
    arguments = (tmp_path / "run", "--prompts", prompts, *TINY)
    assert graft(tiny_model, *arguments).status == 0
    outcome = graft(tiny_model, *arguments, "--seed", "1")
    assert outcome.status == 2
    assert "seed was 0 and is now 1" in outcome.err


def test_away_from_a_terminal_phases_are_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("headstart.cli.phases.time.monotonic", lambda: now)
    with redirect_stderr(io.StringIO()) as err, PhaseProgress() as bars:
        for done in range(5):
            now = 1000.0 + 20 * done
            bars.show("Reading", done, 4, f"note {done}")
        bars.show("Reading", 4, 4, "more")
    assert err.getvalue().splitlines() == [
        "Reading: 0 %, note 0",
        "Reading: 50 %, 1 min left, note 2",
        "Reading: 100 %, note 4",
    ]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_every_phase_keeps_its_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with redirect_stderr(Terminal()) as err, PhaseProgress() as bars:
        bars.show("Writing", 4, 4, "9 tokens/s")
        bars.show("Training", 1, 4, "loss [3.5]")
    last = err.getvalue().rsplit("Writing", 1)[-1]
    assert "100 %" in last
    assert "9 tokens/s" in last
    assert "25 %" in last.split("Training")[1]
    assert "loss [3.5]" in last


@pytest.mark.parametrize(
    ("seconds", "words"), [(3.4, "3 s"), (29.0, "29 s"), (60.0, "1 min"), (3599.0, "1 h 0 min"), (7500.0, "2 h 5 min")]
)
def test_lengths_of_time(seconds: float, words: str) -> None:
    assert spoken_time(seconds) == words
