from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from headstart.errors import ConfigError
from headstart.measure.workload import Ask, Prompt, read_prompts, shipped_prompts, take_evenly


def write(folder: Path, *entries: object) -> Path:
    path = folder / "prompts.jsonl"
    path.write_text("\n".join(entry if isinstance(entry, str) else json.dumps(entry) for entry in entries))
    return path


def test_the_shipped_set_has_as_many_of_each_kind() -> None:
    categories = Counter(prompt.category for prompt in shipped_prompts())
    assert len(categories) == 8
    assert set(categories.values()) == {5}
    assert any(prompt.follow_ups for prompt in shipped_prompts())


def test_plain_forms(tmp_path: Path) -> None:
    one, two, three, four = read_prompts(
        write(
            tmp_path,
            {"prompt": "Why?", "category": "doubt"},
            "",
            {"id": "talk", "turns": ["Hello", "And now?"]},
            {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]},
            {"prompt": "Once upon", "raw": True},
        )
    )
    assert (one.id, one.category, one.messages, one.raw) == ("1", "doubt", (("user", "Why?"),), False)
    assert (two.id, two.messages, two.follow_ups) == ("talk", (("user", "Hello"),), ("And now?",))
    assert three.messages == (("system", "Be brief."), ("user", "Hi"))
    assert four.raw
    assert Ask(prompt=four).raw_text == "Once upon"


def test_spec_bench(tmp_path: Path) -> None:
    (prompt,) = read_prompts(write(tmp_path, {"question_id": 81, "category": "writing", "turns": ["Write.", "Again."]}))
    assert (prompt.id, prompt.category, prompt.follow_ups) == ("81", "writing", ("Again.",))


def test_a_servers_log(tmp_path: Path) -> None:
    conversation = [
        {"role": "user", "content": [{"type": "text", "text": "Hello "}, {"type": "text", "text": "there"}]},
        {"role": "assistant", "content": "Hi."},
        {"role": "user", "content": "How are you?"},
        {"role": "assistant", "content": "What the server wrote is not asked."},
    ]
    batch, bare, legacy = read_prompts(
        write(
            tmp_path,
            {"custom_id": "r-1", "method": "POST", "body": {"model": "m", "messages": conversation}},
            {"model": "m", "messages": conversation, "temperature": 1},
            {"request_id": "r-3", "request": {"model": "m", "prompt": "def f("}},
        )
    )
    assert batch.id == "r-1"
    assert batch.messages == (("user", "Hello there"), ("assistant", "Hi."), ("user", "How are you?"))
    assert bare.messages == batch.messages
    assert legacy.raw  # servers put no template around a prompt
    assert not bare.raw


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ("{", "line 2: not valid JSON"),
        ([1], "must be an object"),
        ('{"prompt": "\\ud800"}', "half a character"),
        ({"text": "x"}, "none of messages, turns, prompt"),
        ({"prompt": "x", "turns": ["y"]}, "turns and prompt"),
        ({"turns": []}, "at least one"),
        ({"turns": [3]}, "must be a string"),
        ({"prompt": "  "}, "not empty"),
        ({"messages": "x"}, "list of objects"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "allowed are"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "nothing to answer"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "only text"),
        ({"id": "1", "prompt": "again"}, "came before"),
    ],
)
def test_what_is_no_prompt_is_told_with_its_line(tmp_path: Path, entry: object, told: str) -> None:
    with pytest.raises(ConfigError, match="line 2") as caught:
        read_prompts(write(tmp_path, {"prompt": "sound"}, entry))
    assert told in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_prompts(tmp_path / "none.jsonl")
    with pytest.raises(ConfigError, match="no prompts"):
        read_prompts(write(tmp_path, ""))
    (tmp_path / "latin.jsonl").write_bytes(b'{"prompt": "caf\xe9"}')
    with pytest.raises(ConfigError, match="not UTF-8"):
        read_prompts(tmp_path / "latin.jsonl")


def test_follow_ups_carry_the_answers() -> None:
    prompt = Prompt(id="a", category="c", messages=(("user", "one"),), follow_ups=("two",))
    first = Ask(prompt=prompt)
    second = first.follow_up("answer")
    assert second is not None
    assert [message["content"] for message in second.messages] == ["one", "answer", "two"]
    assert (first.name, second.name) == ("a", "a, turn 2")
    assert second.follow_up("more") is None


def test_evenly() -> None:
    assert take_evenly(range(10), 3) == [0, 3, 6]
    assert take_evenly([1, 2], 5) == [1, 2]
