"""Text that a model writes itself: every document by its number alone, whatever else happens."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest

from headstart import Engine
from headstart.checkpoint import open_checkpoint
from headstart.errors import CheckpointError, ConfigError, HeadstartError, UnsupportedError
from headstart.records import SamplingParams
from headstart.testing.tiny_models import write_tiny_gguf
from headstart.testing.toy_engine import make_toy_engine
from headstart.train.chat_frame import ChatFrame
from headstart.train.distill import DistillConfig, fitting_config, text_header, write_text
from headstart.train.prompts import Prompt, PromptList, PromptSource
from headstart.train.text_store import TextStore

CONFIG = DistillConfig(
    num_tokens=900, seed=5, question_tokens=(3, 6), answer_tokens=12, follow_up_share=0.5, shard_documents=16
)
PROMPTS = PromptList(
    (
        Prompt(turns=("Explain the",), opening=True, category="science"),
        Prompt(turns=("Write a",), opening=True, category="writing"),
        Prompt(turns=("def",), opening=True, raw=True, category="code"),
        Prompt(turns=("import math",), raw=True, category="code"),
        Prompt(turns=("What is 1+1?", "And then?", "Sure?"), category="maths"),
        Prompt(turns=("Hi",), system="Be brief.", category="chat"),
    )
)
# the answers of a model with random weights hardly ever end: these do, and so conversations go on
ENDING = 299


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("tiny") / "model.gguf", num_layers=1)


@pytest.fixture(scope="module")
def engine(model: Path) -> Engine:
    return EndingEngine.load(model, draft="none", threads=1, cache_tokens=4096, max_batch=8)


class EndingEngine(Engine):
    """Writes the end of a turn far oftener than random weights would."""

    question_bias: Mapping[int, float] = MappingProxyType({ENDING: 4.0})

    def submit(self, prompt, params: SamplingParams = SamplingParams()) -> int:  # noqa: B008 - as the engine's
        bias = self.question_bias if params.temperature == 1.0 else {ENDING: 4.0 if params.temperature else 3.0}
        return super().submit(prompt, replace(params, logit_bias=bias))


def make_store(model: Path, path: Path, prompts: PromptSource = PROMPTS, config: DistillConfig = CONFIG) -> TextStore:
    return TextStore.create(path, text_header(open_checkpoint(model), prompts, config))


@pytest.fixture(scope="module")
def store(model: Path, engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> TextStore:
    """An uninterrupted text."""
    store = make_store(model, tmp_path_factory.mktemp("text") / "whole")
    write_text(engine, store, PROMPTS, CONFIG)
    return store


def shards(store: TextStore) -> list[bytes]:
    return [path.read_bytes() for path in sorted(store.path.glob("*.safetensors"))]


def spans(marks: np.ndarray) -> list[tuple[int, int]]:
    """Beginning and end of every run of true marks."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], marks, [False]]).astype(int)))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def test_it_stops_with_the_first_shard_that_makes_enough(store, tmp_path):
    assert store.num_supervised >= CONFIG.num_tokens
    shutil.copytree(store.path, tmp_path / "text")
    sorted((tmp_path / "text").glob("*.safetensors"))[-1].unlink()
    assert TextStore.open(tmp_path / "text").num_supervised < CONFIG.num_tokens


def test_documents_are_what_the_engine_writes_alone(store, engine):
    """Every answer is that of plain decoding from the very ids before it."""
    for document in store.documents():
        tokens = document.tokens.tolist()
        begin, end = spans(document.supervised)[0]
        if document.temperature == 0:
            answer = engine.generate(tokens[:begin], SamplingParams(max_tokens=CONFIG.answer_tokens))
            assert list(answer.token_ids) == tokens[begin:end]


def test_marks_are_on_answers_alone(store, model):
    frame = ChatFrame(open_checkpoint(model).tokenizer())
    num_turns: Counter[int] = Counter()
    for document in store.documents():
        tokens, answers = document.tokens.tolist(), spans(document.supervised)
        assert answers
        assert answers[-1][1] == len(tokens)
        assert all(0 < end - begin <= CONFIG.answer_tokens for begin, end in answers)
        if document.category == "code":
            assert len(answers) == 1
            continue
        num_turns[len(answers)] += 1
        for begin, _ in answers:
            assert tuple(tokens[begin - len(frame.tail) : begin]) == frame.tail
        if document.category != "chat":  # has a system message of its own
            assert tuple(tokens[: len(frame.head)]) == frame.head
        for (_, end), (begin, _) in pairwise(answers):
            assert tuple(tokens[end - 1 : end - 1 + len(frame.between)]) == frame.between
            question = tokens[end - 1 + len(frame.between) : begin - len(frame.tail)]
            assert question
            assert not frame.marks.intersection(question)
    assert num_turns[1] > 5
    assert num_turns[2] > 2
    assert num_turns[3] > 0  # the prompt of three turns


def test_a_question_ends_at_its_first_mark(model, tmp_path):
    """The model may open another turn instead of ending its own."""
    opening_turns = EndingEngine.load(model, draft="none", threads=1, cache_tokens=4096)
    opening_turns.question_bias = {298: 5.0}
    prompts = PromptList(PROMPTS.prompts[:2])
    config = replace(CONFIG, num_tokens=100, question_tokens=(60,))
    text = make_store(model, tmp_path / "text", prompts, config)
    write_text(opening_turns, text, prompts, config)
    lengths = [spans(document.supervised)[0][0] for document in text.documents()]
    assert np.median(lengths) < 25  # the frame and the opening alone are 20


def test_fixed_prompts_are_asked_as_the_template_has_them(store, model):
    tokenizer = open_checkpoint(model).tokenizer()
    system = tokenizer.encode_chat([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}])
    raw = tokenizer.encode("import math")
    found = Counter()
    for document in store.documents():
        begin = spans(document.supervised)[0][0]
        found["system"] += document.tokens[:begin].tolist() == system
        found["raw"] += document.tokens[:begin].tolist() == raw
    assert min(found["system"], found["raw"]) > 2


def test_half_is_greedy_and_no_answer_is_asked_for_twice(store):
    temperatures = Counter(round(document.temperature, 3) for document in store.documents() if document.category in (
        "science", "writing"))  # fmt: skip
    assert set(temperatures) == {0.0, 0.7}
    assert 0.25 < temperatures[0.0] / temperatures.total() < 0.75
    # fixed prompts come many times over, and greedily once at most
    fixed = [document for document in store.documents() if document.category in ("maths", "chat")]
    assert len(fixed) > 10
    assert sum(document.temperature == 0 for document in fixed) <= 2
    assert len({document.tokens.tobytes() for document in fixed}) > 0.8 * len(fixed)


def test_an_interrupted_text_goes_on_to_be_the_same(store, model, engine, tmp_path):
    """After an interruption between any two shards, and in the midst of one."""
    whole = shards(store)
    assert len(whole) >= 4
    for num_kept in range(len(whole)):
        part = make_store(model, tmp_path / str(num_kept))

        def stop_at(progress, part=part, num_kept=num_kept):
            if part.counts.num_asked >= num_kept * CONFIG.shard_documents and progress.num_supervised > 40 * num_kept:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            write_text(engine, part, PROMPTS, CONFIG, stop_at)
        assert shards(part) == whole[: len(shards(part))]
        assert num_kept <= len(shards(part)) < len(whole)
        assert engine.num_running == engine.num_waiting == 0
        opened = TextStore.open(part.path, source=store.header.source)
        write_text(engine, opened, PROMPTS, CONFIG)
        assert shards(opened) == whole
        assert opened.counts == store.counts


def test_a_shard_is_kept_before_anyone_is_told_of_its_last_document(model, engine, tmp_path):
    part = make_store(model, tmp_path / "part")
    kept = []

    def stop_in_the_second(progress):
        kept.append(len(shards(part)))
        if kept[-1]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_text(engine, part, PROMPTS, CONFIG, stop_in_the_second)
    documents = sum(1 for _ in part.documents())
    assert part.counts.num_asked == CONFIG.shard_documents
    assert len(kept) >= documents
    assert shards(part)


def test_a_template_that_adds_no_turns_gets_conversations_of_one(tmp_path):
    thinking = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>think: "
    model = write_tiny_gguf(tmp_path / "model.gguf", metadata={"tokenizer.chat_template": thinking}, num_layers=1)
    checkpoint = open_checkpoint(model)
    single = PromptList((Prompt(turns=("Hi",)), Prompt(turns=("Explain the",), opening=True)))
    assert fitting_config(CONFIG, checkpoint, single) == replace(CONFIG, follow_up_share=0.0)
    for prompts in (PROMPTS, PromptList((Prompt(turns=("x",), raw=True),))):
        assert fitting_config(CONFIG, checkpoint, prompts) == CONFIG
    config = replace(fitting_config(CONFIG, checkpoint, single), num_tokens=50)
    text = make_store(model, tmp_path / "text", single, config)
    writer = EndingEngine.load(model, draft="none", threads=1, cache_tokens=2048)
    assert write_text(writer, text, single, config).counts.num_supervised >= 50


def test_neither_batch_nor_drafter_changes_the_text(store, model, tmp_path):
    for number, settings in enumerate(({"draft": "none", "max_batch": 1}, {"draft": "lookup", "max_batch": 5})):
        other = EndingEngine.load(model, threads=1, cache_tokens=2048, policy="always", **settings)
        again = make_store(model, tmp_path / str(number))
        write_text(other, again, PROMPTS, CONFIG)
        assert shards(again) == shards(store)


def test_another_seed_is_another_text(store, model, engine, tmp_path):
    config = replace(CONFIG, seed=6)
    other = make_store(model, tmp_path / "other", config=config)
    write_text(engine, other, PROMPTS, config)
    texts = [{document.tokens.tobytes() for document in text.documents()} for text in (store, other)]
    # the greedy answers to the three fixed prompts are the same by right
    assert len(texts[0] & texts[1]) <= 3


def test_more_can_be_wanted_later(store, model, engine, tmp_path):
    part = make_store(model, tmp_path / "part")
    write_text(engine, part, PROMPTS, replace(CONFIG, num_tokens=600))
    assert 0 < len(shards(part)) < len(shards(store))
    num_asked, written_now = part.counts.num_asked, []
    write_text(engine, part, PROMPTS, CONFIG, written_now.append)
    assert shards(part) == shards(store)
    # what is there is not written again; a shard at most is begun ahead
    assert len(written_now) <= part.counts.num_asked - num_asked + CONFIG.shard_documents < part.counts.num_documents


def test_a_finished_text_is_left_alone(store, engine):
    before = engine.statistics.passes
    report = write_text(engine, store, PROMPTS, CONFIG)
    assert (engine.statistics.passes, report.tokens_per_s, report.counts) == (before, 0.0, store.counts)


def test_progress_and_report_are_exact(model, engine, tmp_path):
    part = make_store(model, tmp_path / "part")
    seen = []
    report = write_text(engine, part, PROMPTS, CONFIG, seen.append)
    assert all(earlier.num_supervised < later.num_supervised for earlier, later in pairwise(seen))
    assert all(entry.num_wanted == CONFIG.num_tokens and entry.tokens_per_s > 0 for entry in seen)
    assert seen[0].seconds_left > 0
    assert seen[-1].seconds_left == 0
    assert seen[-1].num_supervised >= report.counts.num_supervised
    assert report.counts == part.counts
    documents = list(part.documents())
    assert report.counts.num_documents == len(documents)
    assert report.counts.num_tokens == sum(len(document.tokens) for document in documents)
    assert report.counts.num_supervised == sum(int(document.supervised.sum()) for document in documents)
    assert report.counts.num_asked % CONFIG.shard_documents == 0
    assert report.counts.num_skipped > 0  # this model often ends at once
    assert report.tokens_per_s > 0
    runs = [
        tuple(document.tokens[place : place + 8].tolist())
        for document in documents
        for begin, end in spans(document.supervised)
        for place in range(begin, end - 7)
    ]
    assert report.distinct_8gram_share == len(set(runs)) / len(runs) < 1


def test_what_does_not_fit_is_counted(model, engine, tmp_path):
    long = "the end of the line " * 60
    prompts = PromptList((Prompt(turns=("Hi",)), Prompt(turns=(long,)), Prompt(turns=(long * 2,))))
    config = replace(CONFIG, num_tokens=60, document_tokens=900, follow_up_share=0.0, shard_documents=9)
    part = make_store(model, tmp_path / "part", prompts, config)
    report = write_text(engine, part, prompts, config)
    assert report.counts.num_failed == report.counts.num_asked / 3  # longer than the model's context of 512
    assert report.counts.num_skipped >= report.counts.num_asked / 3  # longer than a document
    assert "context" in report.first_failure


def test_prompts_without_any_answer_end_the_run(model, engine, tmp_path):
    prompts = PromptList((Prompt(turns=("the end of the line " * 60,)),))
    part = make_store(model, tmp_path / "part", prompts)
    with pytest.raises(ConfigError, match=r"200 prompts in a row.*The prompt has"):
        write_text(engine, part, prompts, CONFIG)
    assert engine.num_running == engine.num_waiting == 0


def test_a_failing_model_leaves_a_store_that_goes_on(store, model, tmp_path):
    failing = EndingEngine.load(model, draft="none", threads=1, cache_tokens=4096, max_batch=8)
    part = make_store(model, tmp_path / "part")

    def fail_later(progress):
        if part.counts.num_asked:
            failing.step = broken

    def broken():
        raise RuntimeError("out of order")

    with pytest.raises(RuntimeError, match="out of order"):
        write_text(failing, part, PROMPTS, CONFIG, fail_later)
    del failing.step
    assert failing.num_running == failing.num_waiting == 0
    write_text(failing, part, PROMPTS, CONFIG)
    assert shards(part) == shards(store)


def test_other_settings_or_prompts_are_refused_by_name(store, engine):
    with pytest.raises(ConfigError, match=r"temperature = 0\.9, but .* was begun with 0\.7"):
        write_text(engine, store, PROMPTS, replace(CONFIG, temperature=0.9))
    with pytest.raises(ConfigError, match=r"prompts = "):
        write_text(engine, store, PromptList(PROMPTS.prompts[:-1]), CONFIG)


def test_a_store_of_another_template_is_refused(model, engine, tmp_path):
    other = write_tiny_gguf(tmp_path / "other.gguf", metadata={"tokenizer.chat_template": "{{ messages }}"})
    with pytest.raises(CheckpointError, match="another chat template"):
        write_text(engine, make_store(other, tmp_path / "text"), PROMPTS, CONFIG)


def test_a_model_without_a_template_goes_on_with_plain_texts_only(tmp_path):
    model = write_tiny_gguf(tmp_path / "base.gguf", metadata={"tokenizer.chat_template": 0}, num_layers=1)
    base = EndingEngine.load(model, draft="none", threads=1, cache_tokens=2048)
    with pytest.raises(UnsupportedError, match=r"4 of 6 prompts are turns .* no chat template.*raw"):
        write_text(base, make_store(model, tmp_path / "chat"), PROMPTS, CONFIG)
    prompts = PromptList(tuple(prompt for prompt in PROMPTS.prompts if prompt.raw))
    config = replace(CONFIG, num_tokens=50)
    text = make_store(model, tmp_path / "raw", prompts, config)
    assert write_text(base, text, prompts, config).counts.num_supervised >= 50


def test_an_engine_without_a_file_is_refused(store):
    with pytest.raises(UnsupportedError, match="ByteTokenizer"):
        write_text(make_toy_engine(), store, PROMPTS, CONFIG)


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_tokens": 0},
        {"seed": -1},
        {"greedy_share": 1.1},
        {"follow_up_share": -0.1},
        {"temperature": 0.0},
        {"question_temperature": float("inf")},
        {"question_top_p": 0.0},
        {"question_tokens": ()},
        {"question_tokens": (0,)},
        {"answer_tokens": 0},
        {"document_tokens": 2.5},
        {"shard_documents": 0},
    ],
)
def test_a_setting_out_of_range_is_refused_by_name(wrong):
    (name,) = wrong
    with pytest.raises(HeadstartError, match=name):
        replace(CONFIG, **wrong)
