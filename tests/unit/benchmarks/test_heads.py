"""What heads are worth: what is asked, how figures are made of counts and turns, and one whole run on a tiny model."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import heads
from head_figures import measurement
from head_figures.acceptance import Acceptance, Identity, answer_all_turns, measure_acceptance
from head_figures.engines import Engines, complete
from head_figures.speed import AUTO, PEER, PLAIN, DraftCost, Race, Sides, Turn, measure_draft_cost, race_singly
from head_figures.workload import Question, make_prompt, read_questions
from headstart import Engine, SamplingParams
from headstart.errors import ConfigError
from headstart.records import Completion
from headstart.testing.tiny_heads import write_tiny_heads
from headstart.testing.tiny_models import write_tiny_gguf
from peer_workers.process import FOLDER

SPEC_BENCH = [
    {"id": "s1", "category": "writing", "turns": ["the rain in the north", "and the wind?"]},
    {"id": "s2", "category": "math", "turns": ["one and one"]},
    {"id": "s3", "category": "math_reasoning", "turns": ["two and one and two"]},
    {"id": "s4", "category": "coding", "turns": ["a sum"]},
]
HUMANEVAL = [{"id": "h1", "category": "code-completion", "turns": ["def the_sum(a, b):"]}]
GSM8K = [{"id": f"g{number}", "category": "math", "turns": [f"and {number} others"]} for number in range(4)]
NUM_TURNS, MAX_TOKENS = 10, 24

# a peer that is asked for as many tokens as were written plainly, and takes a second for each
FAKE_PEER = f"""
import sys
sys.path.insert(0, {str(FOLDER)!r})
from protocol import Loaded, Worker, serve

class Fake(Worker):
    def load(self, *, model, threads, context, weights_folder):
        return Loaded(name="Fake", version="fake 1.0", weights="none")
    def generate(self, *, prompt_ids, max_tokens):
        return {{"token_ids": [7] * max_tokens, "prefill_s": 0.5, "generation_s": max_tokens - 1.0}}

serve(Fake())
"""


def write_lines(path: Path, questions: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(question) + "\n" for question in questions))


def write_data(folder: Path) -> Path:
    write_lines(folder / "spec_bench.jsonl", SPEC_BENCH)
    write_lines(folder / "humaneval.jsonl", HUMANEVAL)
    write_lines(folder / "gsm8k.jsonl", GSM8K)
    return folder


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A tiny model, random heads for it, and a folder with questions."""
    folder = tmp_path_factory.mktemp("heads")
    model = write_tiny_gguf(folder / "model.gguf")
    return model, write_tiny_heads(folder / "x.heads.safetensors", model, "sequential"), write_data(folder)


@pytest.fixture(scope="module")
def engines(files: tuple[Path, Path, Path]) -> Engines:
    return Engines.load(files[0], files[1], threads=1)


def nothing() -> None:
    """No progress is shown."""


def completion(tokens: tuple[int, ...], accepted: tuple[int, ...], reached: tuple[int, ...], rounds: int) -> Completion:
    return Completion(
        text="", token_ids=tokens, finish_reason="length", prompt_tokens=1, seed=0, rounds=rounds, drafted=9,
        accepted=sum(accepted), accepted_by_depth=accepted, drafted_by_depth=(rounds,) * len(accepted),
        reached_by_depth=reached, first_round_tokens=1, generation_s=1.0, prefill_s=1.0, drafter="heads",
    )  # fmt: skip


# ---- what is asked


def test_categories_are_spec_bench_s_own_and_the_names_of_the_other_files(files: tuple[Path, Path, Path]) -> None:
    questions = read_questions(files[2])
    assert [question.category for question in questions] == [
        "writing", "math", "math_reasoning", "coding", "humaneval", *["gsm8k"] * 4,
    ]  # fmt: skip
    assert [question.is_chat for question in questions] == [True] * 4 + [False] + [True] * 4


def test_a_limit_takes_questions_evenly_from_each_file(files: tuple[Path, Path, Path]) -> None:
    assert [question.id for question in read_questions(files[2], limit=2)] == ["s1", "s3", "h1", "g0", "g2"]


def test_code_is_written_on_as_it_stands_and_questions_are_put_into_the_template(engines: Engines) -> None:
    tokenizer = engines.plain.tokenizer
    text, chat = (
        Question(id="x", category="c", turns=("the rain", "and"), is_chat=is_chat) for is_chat in (False, True)
    )
    assert make_prompt(tokenizer, text).token_ids == tuple(tokenizer.encode("the rain"))
    assert make_prompt(tokenizer, chat).token_ids == tuple(
        tokenizer.encode_chat([{"role": "user", "content": "the rain"}])
    )
    conversation = [
        {"role": "user", "content": "the rain"},
        {"role": "assistant", "content": "falls"},
        {"role": "user", "content": "and"},
    ]
    assert make_prompt(tokenizer, chat, ["falls"]).token_ids == tuple(tokenizer.encode_chat(conversation))


@pytest.mark.parametrize(
    "line", ["{", "[]", '{"id": "x", "category": "c"}', '{"id": "x", "category": "c", "turns": []}',
             '{"id": "x", "category": "c", "turns": "the rain"}', '{"id": 1, "category": "c", "turns": ["a"]}'],
)  # fmt: skip
def test_a_line_that_is_no_question_is_refused_by_number(tmp_path: Path, line: str) -> None:
    write_data(tmp_path)
    with (tmp_path / "gsm8k.jsonl").open("a") as file:
        file.write(f"\n{line}\n")
    with pytest.raises(ConfigError, match=r"gsm8k\.jsonl, line 6: no question"):
        read_questions(tmp_path)


def test_a_file_without_questions_is_refused(tmp_path: Path) -> None:
    (write_data(tmp_path) / "humaneval.jsonl").write_text("\n")
    with pytest.raises(ConfigError, match=r"humaneval\.jsonl: there is no question"):
        read_questions(tmp_path)


# ---- counts


def test_acceptance_is_pooled_over_rounds_not_averaged_over_texts() -> None:
    acceptance = Acceptance()
    params = SamplingParams()
    acceptance.add("gsm8k", completion(tuple(range(10)), (4, 2), (8, 4), rounds=8), params)
    acceptance.add("math", completion((1, 2), (0, 0), (2, 0), rounds=2), params)
    acceptance.add("humaneval", completion(tuple(range(6)), (2, 2), (2, 2), rounds=2), params)
    assert acceptance.tau == 18 / 12
    assert acceptance.tau_by_category() == {
        "gsm8k": 10 / 8, "math": 1.0, "humaneval": 3.0, "maths": 12 / 10, "code": 3.0, "all": 18 / 12,
    }  # fmt: skip
    assert acceptance.over_all.conditional_acceptance == (6 / 12, 4 / 6)
    assert acceptance.over_all.survival == pytest.approx((6 / 12, 4 / 12))
    # of twelve rounds six kept nothing, two one guess, four two
    assert acceptance.share_of_rounds_by_length() == pytest.approx({"1": 6 / 12, "2": 2 / 12, "3": 4 / 12})


def test_texts_that_repeat_themselves_are_told() -> None:
    acceptance = Acceptance()
    acceptance.add("qa", completion((5,) * 17, (0,), (1,), rounds=17), SamplingParams())
    assert acceptance.distinct_share() == 1 / 10


def test_without_texts_there_are_no_figures() -> None:
    acceptance = Acceptance()
    assert acceptance.tau is None
    assert acceptance.tau_by_category() == {"maths": None, "code": None, "all": None}
    assert acceptance.share_of_rounds_by_length() == {}
    assert acceptance.distinct_share() is None
    assert Identity().holds is None


def test_acceptance_does_not_depend_on_the_order_and_the_texts_are_plain_ones(
    engines: Engines, files: tuple[Path, Path, Path]
) -> None:
    params = SamplingParams(max_tokens=MAX_TOKENS)
    references = answer_all_turns(engines.plain, read_questions(files[2]), params, nothing)
    assert len(references) == NUM_TURNS
    taus = []
    for order in (references, references[::-1]):
        acceptance, identity = Acceptance(), Identity()
        measure_acceptance(engines.with_heads(), order, [params] * NUM_TURNS, acceptance, identity, nothing)
        assert (identity.holds, identity.num_compared) == (True, NUM_TURNS)
        taus.append(acceptance.tau)
    assert taus[0] == taus[1]


def test_a_text_that_differs_is_named(engines: Engines) -> None:
    prompt = make_prompt(engines.plain.tokenizer, Question(id="x", category="c", turns=("the rain",)))
    params = SamplingParams(max_tokens=8, ignore_eos=True)
    other = engines.plain.generate(prompt.token_ids, SamplingParams(max_tokens=7, ignore_eos=True))
    identity = Identity()
    measure_acceptance(engines.with_heads(), [(prompt, other)], [params], Acceptance(), identity, nothing)
    assert identity.holds is False
    assert identity.different == ["x"]


def test_answers_come_with_their_prompts_whichever_ends_first(engines: Engines) -> None:
    question = Question(id="x", category="c", turns=("the rain",))
    prompts = [make_prompt(engines.plain.tokenizer, question)] * 3
    params = [SamplingParams(max_tokens=count, ignore_eos=True) for count in (9, 3, 6)]
    answers = dict(complete(engines.plain, prompts, params))
    assert {index: len(answer.token_ids) for index, answer in answers.items()} == {0: 9, 1: 3, 2: 6}


# ---- turns


def turn(number: int, name: str, **seconds: float) -> Turn:
    return Turn(round=number, name=name, num_tokens=12, seconds={side: seconds[side] for side in seconds})


def test_a_ratio_is_of_a_round_s_sums_and_a_round_broken_off_does_not_count() -> None:
    race = Race([turn(0, "a", plain=3.0, auto=1.0), turn(0, "b", plain=1.0, auto=1.0)])
    race.turns += [turn(1, "a", plain=6.0, auto=1.0), turn(1, "b", plain=2.0, auto=1.0)]
    race.turns += [turn(2, "a", plain=100.0, auto=1.0)]
    ratio = race.ratio(PLAIN)
    assert ratio is not None
    assert (ratio.lowest, ratio.median, ratio.highest) == (2.0, 3.0, 4.0)
    speed = race.tokens_per_s(AUTO)
    assert speed is not None
    assert speed.median == 12.0
    assert race.ratios_by_name(PLAIN) == {"a": 6.0, "b": 1.5}


def test_what_came_with_the_prompt_takes_no_part_in_the_time() -> None:
    def side(first_round_tokens: int, generation_s: float) -> Any:
        answer = replace(
            completion((7,) * 20, (), (), 20), first_round_tokens=first_round_tokens, generation_s=generation_s
        )
        return SimpleNamespace(generate=lambda token_ids, given: answer if given is params else None)

    params = SamplingParams(max_tokens=20)

    for first_round_tokens, speedup in ((1, 2.0), (5, 2.0 * 15 / 19), (20, None)):
        race = Race()
        drafted_s = 0.0 if speedup is None else 5.0
        sides = Sides(plain=side(1, 10.0), auto=side(first_round_tokens, drafted_s), identity=Identity(),
                      rounds=1)  # fmt: skip
        race_singly(sides, [SimpleNamespace(id="x", token_ids=[1])], [params], race, nothing)  # type: ignore[list-item]
        ratio = race.ratio(PLAIN)
        assert (None if ratio is None else ratio.median) == (None if speedup is None else pytest.approx(speedup))


def test_a_single_round_counts_though_it_was_broken_off() -> None:
    ratio = Race([turn(0, "a", plain=3.0, auto=2.0)]).ratio(PLAIN)
    assert ratio is not None
    assert ratio.median == 1.5


@pytest.mark.parametrize("turns", [[], [turn(0, "a", plain=0.0, auto=0.0)]], ids=["none", "too short to time"])
def test_without_times_there_is_no_ratio(turns: list[Turn]) -> None:
    race = Race(turns)
    assert race.ratio(PLAIN) is race.ratio(PEER) is race.tokens_per_s(PLAIN) is None


class SteppedEngine:
    """Reads a prompt, then writes in three steps; passes and drafts take the given seconds by the engine's account."""

    def __init__(self, num_rows: int, trunk_s: list[float], draft_s: list[float]) -> None:
        self.rows = self.drafted_rows = 0
        self.trunk_s = self.draft_s = 0.0
        self._left = [(num_rows, *times) for times in zip(trunk_s, draft_s, strict=True)]

    @property
    def statistics(self) -> SteppedEngine:
        return self

    def submit(self, prompt: object, params: object) -> int:
        self._left.insert(0, (40, 1000.0, 0.0))
        return 0

    @property
    def idle(self) -> bool:
        return not self._left

    def step(self) -> None:
        num_rows, trunk_s, draft_s = self._left.pop(0)
        self.rows += num_rows
        self.drafted_rows += num_rows - 1 if draft_s else 0
        self.trunk_s += trunk_s
        self.draft_s += draft_s

    def completion(self, sequence_id: int) -> None:
        assert self.idle


def test_drafting_is_counted_in_plain_passes_and_medians_leave_out_the_prompt() -> None:
    plain: Any = SteppedEngine(1, [2.0, 2.0, 50.0], [0.0, 0.0, 0.0])
    drafting: Any = SteppedEngine(16, [6.0, 6.0, 7.0], [30.0, 1.0, 1.0])  # the first round reads the prompt
    cost, done = DraftCost(), []
    prompt: Any = type("Prompt", (), {"token_ids": (1,)})
    measure_draft_cost([prompt], plain, drafting, SamplingParams(max_tokens=3), cost, lambda: done.append(1))
    assert (cost.drafting, cost.passes) == ([0.5], [3.0])
    assert (cost.draft_ms, cost.plain_ms) == ([1000.0], [2000.0])
    assert done == [1]


# ---- the whole


@pytest.fixture
def arguments(files: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(measurement, "ROUNDS", 1)
    monkeypatch.setattr(measurement, "ROUNDS_TOGETHER", 1)
    monkeypatch.setattr(measurement, "BATCH", 4)
    model, heads_file, data = files
    words = ["--model", model, "--heads", heads_file, "--data", data, "--max-tokens", MAX_TOKENS, "--threads", 1]
    return [*map(str, words), "--json"]


@pytest.fixture
def document(capsys: pytest.CaptureFixture[str]) -> Callable[[], dict[str, Any]]:
    def read() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
        return found

    return read


def test_one_run_has_every_figure(
    arguments: list[str], files: tuple[Path, Path, Path], document: Callable[[], dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:  # fmt: skip
    script = tmp_path / "llama_cpp_worker.py"
    script.write_text(FAKE_PEER)
    monkeypatch.setattr(heads, "PEER_SCRIPT", script)
    assert heads.run([*arguments, "--llama-cpp", sys.executable]) == 0
    found = document()
    empty = [name for name, value in found.items() if value is None or value == []]
    assert empty == ["different", "ended_early"]
    assert found["identical"] is True
    assert found["drafter_faults"] == 0
    # greedy and sampled texts, speed, creative texts, and four at once
    assert found["num_compared"] == NUM_TURNS + NUM_TURNS // 2 + 9 + (3 + 1) + 4
    assert found["llama_cpp_tokens_per_s"] == pytest.approx(1.0)
    assert found["speedup_over_llama_cpp"] == pytest.approx(found["auto_tokens_per_s"])
    assert found["speedup_over_plain"] == pytest.approx(found["auto_tokens_per_s"] / found["plain_tokens_per_s"])
    assert set(found["spreads"]["draft_cost"]) == {"median", "lowest", "highest"}
    assert sum(found["share_of_rounds_by_length"].values()) == pytest.approx(1.0)
    assert found["versions"]["llama_cpp"] == "fake 1.0"
    assert str(files[1].name) == found["settings"]["heads"]["name"]

    # the same from the engine itself, a text at a time, second turns with what it answered
    engine = Engine.load(files[0], draft=f"heads:{files[1]}", policy="always", max_nodes=15, max_batch=1, threads=1)
    completions = []
    for question in read_questions(files[2]):
        answers: list[str] = []
        for _ in question.turns:
            prompt = make_prompt(engine.tokenizer, question, answers)
            completions.append(engine.generate(prompt.token_ids, SamplingParams(max_tokens=MAX_TOKENS)))
            answers.append(completions[-1].text)
    rounds = sum(completion.rounds for completion in completions)
    assert found["tau"] == sum(len(completion.token_ids) for completion in completions) / rounds
    assert found["conditional_acceptance"] == list(engine.statistics.acceptance.conditional_acceptance)
    assert max(completion.drafted / completion.rounds for completion in completions) > 10


def test_acceptance_alone_is_the_same_and_times_nothing(
    arguments: list[str], document: Callable[[], dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert heads.run(arguments) == 0
    whole = document()
    assert heads.run([*arguments, "--only-acceptance"]) == 0
    found = document()
    for name in ("tau", "tau_by_category", "conditional_acceptance", "share_of_rounds_by_length"):
        assert found[name] == whole[name], name
    assert found["identical"] is True
    assert found["num_compared"] == NUM_TURNS + NUM_TURNS // 2
    assert found["speedup_over_plain"] is found["draft_cost"] is None


def test_an_interrupted_run_prints_what_it_has(
    arguments: list[str], document: Callable[[], dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(measurement, "measure_draft_cost", interrupted)
    assert heads.run(arguments) == 130
    found = document()
    assert found["ended_early"] == "interrupted"
    assert found["speedup_over_plain"] > 0
    assert found["identical"] is True
    assert found["tau"] is found["draft_cost"] is found["speedup_over_llama_cpp"] is None


def test_a_different_text_fails_the_run(
    arguments: list[str], document: Callable[[], dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("head_figures.acceptance.token_hash", lambda tokens: object())
    assert heads.run(arguments) == 1
    found = document()
    assert found["identical"] is False
    assert {"s1", "s1, turn 2", "s1, auto", "s1, sampled"} <= set(found["different"])


@pytest.mark.parametrize(
    ("extra", "text"),
    [
        (["--limit", "0"], "--limit 0: it must be at least 1"),
        (["--max-tokens", "0"], "--max-tokens 0: it must be at least 1"),
        (["--temperature", "0"], "--temperature 0.0: it must be above 0"),
        (["--llama-cpp", "python", "--only-acceptance"], "--llama-cpp has no effect with --only-acceptance"),
        (["--data", "/nowhere"], "/nowhere/spec_bench.jsonl: the questions cannot be read"),
    ],
)
def test_what_cannot_be_is_refused(
    arguments: list[str], extra: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name, value, *flags = extra
    given = dict(zip(arguments[::2], arguments[1::2], strict=False)) | {name: value}
    assert heads.run([*(word for pair in given.items() for word in pair), *flags]) == 2
    assert text in capsys.readouterr().err


def test_a_variable_stands_in_for_the_folder(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(heads.DATA_VARIABLE, "/elsewhere")
    assert heads.run(["--model", "/nowhere/model.gguf"]) == 2
    assert "/elsewhere/spec_bench.jsonl" in capsys.readouterr().err


def test_a_peer_that_cannot_be_loaded_ends_the_run_before_it_begins(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert heads.run([*arguments, "--llama-cpp", "/nowhere/python"]) == 1
    output = capsys.readouterr()
    assert "/nowhere/python cannot be started" in output.err
    assert output.out == ""
