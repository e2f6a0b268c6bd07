from __future__ import annotations

import sys
from pathlib import Path

import pytest

from headstart.testing.command_line import run_command


def test_the_figures_that_scripts_rely_on() -> None:
    document = run_command("plan", "--acceptance", "0.9,0.8", "--draft-cost", "0.05", "--json").document
    assert document["best_depth"] == 2
    assert document["speedup"] == pytest.approx(2.62 / 1.1)
    assert document["break_even_acceptance"] == pytest.approx(0.05)


def test_a_cost_curve_counts() -> None:
    arguments = ("plan", "--acceptance", "0.9,0.8", "--draft-cost", "0.05", "--cost-curve", "1:2,8:3")
    document = run_command(*arguments, "--json").document
    assert document["speedup"] == pytest.approx(2.62 / (1 + 0.5 * 2 / 7 + 0.1))
    assert document["break_even_acceptance"] == pytest.approx(0.05 + 0.5 / 7)
    # two sequences beside one another are within the curve, four with two guesses each are not
    assert document["notes"] == ["The cost curve ends at 8 rows; up to 12 it is taken to go on as it did last."]


def test_the_table_says_what_is_best_and_what_was_taken_for_granted() -> None:
    outcome = run_command("plan", "--acceptance", "0.9/0.05,0.8/0.1", "--draft-cost", "0.05", "--entropy", "1.1,4")
    assert (outcome.status, outcome.err) == (0, "")
    assert "Draft 2 deep: 2.38 times plain speed." in outcome.out
    assert "The best tree has" in outcome.out
    assert "4.0 of 4 rows" in outcome.out
    assert "checking guesses is taken to cost nothing" in outcome.out


def test_a_tree_that_pays_where_no_chain_does_is_what_is_advised() -> None:
    outcome = run_command("plan", "--acceptance", "0.5/0.3/0.15", "--draft-cost-per-round", "0.6")
    assert "Draft trees: no chain of guesses pays." in outcome.out
    assert "Do not draft" not in outcome.out
    assert "The best tree has 3 guesses" in outcome.out
    alike = "0.9/0.05,0.9/0.05,0.9/0.05"
    outcome = run_command("plan", "--acceptance", alike, "--draft-cost-per-round", "1.2", "--max-nodes", "1")
    assert "Draft 3 deep" in outcome.out
    assert "No tree pays." in outcome.out


def test_rows_beyond_the_curve_are_told_of_trees_and_tables_too() -> None:
    shares = "0.6/0.2/0.1,0.5/0.2/0.1,0.4/0.2/0.1"
    document = run_command("plan", "--acceptance", shares, "--cost-curve", "1:1,8:1.05", "--json").document
    rows = 1 + document["tree"]["nodes"]
    assert rows > 8
    assert document["notes"] == [f"The cost curve ends at 8 rows; up to {rows} it is taken to go on as it did last."]


def test_what_does_not_pay_is_said() -> None:
    outcome = run_command("plan", "--acceptance", "1", "--draft-cost", "2")
    assert "Do not draft" in outcome.out
    assert "though every guess were right" in outcome.out


def test_a_machine_says_how_many_sequences_it_bears() -> None:
    machine = ("--parameters", "27", "--bits", "4.5", "--bandwidth", "936", "--tflops", "71")
    outcome = run_command("plan", "--acceptance", "0.9", "--draft-cost", "0.05", *machine)
    assert "It pays up to 19 sequences at once." in outcome.out
    assert "nearly free up to 21 in a pass" in outcome.out
    with_experts = run_command("plan", "--acceptance", "0.9", *machine, "--experts", "8/256/0.5", "--json").document
    assert "experts of its own" in with_experts["notes"][0]
    assert with_experts["depths"][0]["check_cost"] == pytest.approx(0.5 + 0.5 * (2 - 8 / 256))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--acceptance", "0.9;0.8"), "commas between depths"),
        (("--acceptance", "1.5"), "share from 0 to 1"),
        (("--acceptance", "0.9", "--cost-curve", "1-1"), "ROWS:TIME"),
        (("--acceptance", "0.9", "--cost-curve", "0:1"), "rows must be at least 1"),
        (("--acceptance", "0.9", "--entropy", "1"), "two numbers"),
        (("--acceptance", "0.9", "--experts", "8/256/1"), "no effect"),
        (("--acceptance", "0.9", "--bandwidth", "900"), "give --parameters, --tflops too"),
        (("--acceptance", "0.9", "--max-nodes", "4"), "has an effect only on trees"),
        (("--acceptance", "0.9/0.05", "--max-nodes", "0"), "at least 1"),
        (("--acceptance", "0.9", "--max-depth", "0"), "from 1 to 64"),
        (("--acceptance", "0.9", "--draft-cost", "-1"), "0 or more"),
        (
            ("--acceptance", "0.9", "--cost-curve", "1:1", "--parameters", "1", "--bandwidth", "1", "--tflops", "1"),
            "one or the other",
        ),
    ],
)
def test_wrong_usage_is_told_in_a_line(arguments: tuple[str, ...], told: str) -> None:
    outcome = run_command("plan", *arguments)
    assert outcome.status == 2
    assert told in outcome.err
    assert outcome.err.count("\n") == 1


def test_a_picture_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "plan.svg"
    outcome = run_command("plan", "--acceptance", "0.9,0.8", "--cost-curve", "1:1,8:2", "--plot", path)
    assert outcome.status == 0
    assert "</svg>" in path.read_text()
    assert run_command("plan", "--acceptance", "0.9", "--plot", tmp_path / "plan.nonsense").status == 2


def test_without_matplotlib_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    outcome = run_command("plan", "--acceptance", "0.9", "--plot", tmp_path / "plan.svg")
    assert outcome.status == 1
    assert "pip install matplotlib" in outcome.err
