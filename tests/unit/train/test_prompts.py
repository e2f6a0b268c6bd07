"""Prompts from files, in fixed proportions, and the ids of a template around them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from headstart.checkpoint import Tokenizer, open_checkpoint
from headstart.errors import ConfigError, UnsupportedError
from headstart.testing.tiny_models import write_tiny_gguf
from headstart.train.chat_frame import ChatFrame
from headstart.train.prompts import Prompt, PromptList, PromptMix, prompts_digest, read_prompts, shipped_openings


def written(folder: Path, *lines: object, name: str = "prompts.jsonl") -> Path:
    path = folder / name
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines), encoding="utf-8")
    return path


def numbered(count: int, category: str = "other") -> PromptList:
    return PromptList(tuple(Prompt(turns=(str(number),), category=category) for number in range(count)))


def test_every_kind_of_line_is_read(tmp_path):
    path = written(
        tmp_path,
        {"id": "x", "category": "maths", "turns": ["What is 1+1?", "And 2+2?"]},
        {"messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "not what the model says"},
            {"role": "user", "content": "Why?"},
        ]},
        "",
        {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "dropped"}]},
        {"prompt": "a\u2028b"},
        {"prompt": "def f(", "raw": True},
        {"opening": "Explain the"},
        {"opening": "def", "raw": True},
    )  # fmt: skip
    assert read_prompts(path).prompts == (
        Prompt(turns=("What is 1+1?", "And 2+2?"), category="maths"),
        Prompt(turns=("Hi", "Why?"), system="Be brief."),
        Prompt(turns=("Hi",)),
        Prompt(turns=("a\u2028b",)),
        Prompt(turns=("def f(",), raw=True),
        Prompt(turns=("Explain the",), opening=True),
        Prompt(turns=("def",), raw=True, opening=True),
    )


def test_plain_text_has_a_prompt_a_line(tmp_path):
    path = written(tmp_path, "Why is the sky blue?", "", "  How tall?  ", name="prompts.txt")
    assert read_prompts(path).prompts == (Prompt(turns=("Why is the sky blue?",)), Prompt(turns=("How tall?",)))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "not valid JSON"),
        ("[1]", "holds a list"),
        ({"text": "x"}, "has none of turns, messages, prompt, opening"),
        ({"prompt": "x", "turns": ["y"]}, "has turns and prompt"),
        ({"prompt": " "}, "not empty"),
        ({"prompt": 3}, "not empty"),
        ({"turns": "x"}, "list of strings"),
        ({"turns": []}, "at least one"),
        ({"turns": ["x", None]}, "not empty"),
        ({"turns": ["x"], "raw": True}, "raw is True beside turns"),
        ({"prompt": "x", "raw": "yes"}, "raw is 'yes'"),
        ({"prompt": "x", "category": 3}, "category is 3"),
        ({"messages": [{"role": "tool", "content": "x"}]}, r"messages\[0\] has role 'tool'"),
        ({"messages": [{"role": "user", "content": "x"}, {"role": "system", "content": "x"}]}, r"messages\[1\]"),
        ({"messages": [{"role": "user", "content": "x"}, {"role": "user", "content": "y"}]}, "follow each other"),
        ({"messages": [{"role": "system", "content": "x"}]}, "at least one"),
        ({"messages": ["x"]}, "list of objects"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, reason):
    path = written(tmp_path, {"prompt": "good"}, "", line)
    with pytest.raises(ConfigError, match=rf"prompts\.jsonl, line 3: .*{reason}"):
        read_prompts(path)


def test_a_bad_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        read_prompts(tmp_path / "none.txt")
    with pytest.raises(ConfigError, match="no prompts"):
        read_prompts(written(tmp_path, "", ""))
    with pytest.raises(ConfigError, match=r"line 1: it looks like JSON"):
        read_prompts(written(tmp_path, {"prompt": "x"}, name="prompts.txt"))
    (tmp_path / "latin.txt").write_bytes("é".encode("latin-1"))
    with pytest.raises(ConfigError, match="not UTF-8"):
        read_prompts(tmp_path / "latin.txt")


@pytest.mark.parametrize("size", [1, 2, 3, 7, 208])
def test_all_prompts_come_before_one_comes_again(size):
    source = numbered(size)
    for visit in range(3):
        came = [source.at(visit * size + place) for place in range(size)]
        assert {prompt.turns[0] for prompt, _ in came} == {str(number) for number in range(size)}
        assert {again for _, again in came} == {visit}


def test_any_stretch_has_some_of_all_parts_of_a_list():
    source = numbered(1000)
    firsts = [int(source.at(index)[0].turns[0]) for index in range(300, 320)]
    assert {number // 250 for number in firsts} == {0, 1, 2, 3}


def test_a_mix_keeps_its_proportions_everywhere():
    mix = PromptMix(((numbered(6, "a"), 7), (numbered(5, "b"), 2), (numbered(4, "c"), 1)))
    came = [mix.at(index) for index in range(300)]
    for end in range(20, 300, 20):
        assert Counter(prompt.category for prompt, _ in came[end - 20 : end]) == {"a": 14, "b": 4, "c": 2}
    # each part is walked as if it were alone
    for category, part in (("a", numbered(6, "a")), ("b", numbered(5, "b")), ("c", numbered(4, "c"))):
        own = [item for item in came if item[0].category == category]
        assert own == [part.at(index) for index in range(len(own))]
    with pytest.raises(ConfigError, match="Shares"):
        PromptMix(((numbered(1), 0),))


def test_another_order_or_proportion_is_another_digest():
    parts = numbered(6, "a"), numbered(5, "b")
    sources = [
        parts[0],
        PromptList(parts[0].prompts[::-1]),
        PromptMix(((parts[0], 1), (parts[1], 1))),
        PromptMix(((parts[0], 1), (parts[1], 2))),
    ]
    assert len({prompts_digest(source) for source in sources}) == len(sources)
    assert prompts_digest(numbered(6, "a")) == prompts_digest(parts[0])


def test_the_openings_that_ship_are_sound():
    openings = shipped_openings()
    assert len(openings.prompts) > 150
    assert len({prompt.turns for prompt in openings.prompts}) == len(openings.prompts)
    assert all(
        (prompt.opening and prompt.category != "other") or prompt.category == "other" for prompt in openings.prompts
    )
    # a space at the end is a token that no text has there
    assert not [prompt for prompt in openings.prompts if prompt.turns[0].endswith(" ")]
    assert 0.05 < sum(prompt.raw for prompt in openings.prompts) / len(openings.prompts) < 0.25
    assert all(prompt.raw for prompt in shipped_openings(raw=True).prompts)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Tokenizer:
    return open_checkpoint(write_tiny_gguf(tmp_path_factory.mktemp("tiny") / "model.gguf")).tokenizer()


def with_template(folder: Path, template: str) -> ChatFrame:
    path = write_tiny_gguf(folder / "other.gguf", metadata={"tokenizer.chat_template": template})
    return ChatFrame(open_checkpoint(path).tokenizer())


CONTENTS = ("Why?", "the end of the line", "user\nassistant", "(", "é 7")


def test_the_frame_is_what_the_template_writes(tokenizer):
    frame = ChatFrame(tokenizer)
    for first in CONTENTS:
        one = [*frame.head, *frame.encode(first), *frame.tail]
        assert one == tokenizer.encode_chat([{"role": "user", "content": first}]) == frame.first_turn(first)
        for second in CONTENTS:
            messages = [
                {"role": "user", "content": first},
                {"role": "assistant", "content": second},
                {"role": "user", "content": first},
            ]
            two = [*one, *frame.encode(second), *frame.between, *frame.encode(first), *frame.tail]
            assert two == tokenizer.encode_chat(messages)
    assert frame.between[0] == tokenizer.end_ids[0]
    assert frame.marks == {297, 298, 299}


@pytest.mark.parametrize(
    "template",
    [
        "th{{ messages[0].content }}<|im_end|>",  # "th" and a content that begins with "e" are one token, "the"
        "<|im_start|>{{ messages[0].content | upper }}<|im_end|>",
    ],
)
def test_a_template_that_does_more_than_frame_contents_cannot_take_openings(tmp_path, template):
    frame = with_template(tmp_path, template)
    with pytest.raises(UnsupportedError, match="changes contents, or its marks melt"):
        _ = frame.head


@pytest.mark.parametrize(
    "template",
    [
        # drops what was said before
        "<|im_start|>{{ messages[-1].content }}<|im_end|>",
        # ends an answer with no end token
        "{% for m in messages %}{{ m.content }}{% if m.role == 'user' %}<|im_end|>{% else %}<|im_start|>{% endif %}"
        "{% endfor %}",
        # changes an answer
        "{% for m in messages %}{{ m.content if m.role == 'user' else m.content | upper }}<|im_end|>{% endfor %}",
    ],
)
def test_a_template_that_does_not_simply_go_on_has_no_second_turn(tmp_path, template):
    frame = with_template(tmp_path, template)
    assert frame.head is not None
    with pytest.raises(UnsupportedError, match="second turn"):
        _ = frame.between


def test_a_model_without_a_template_has_none(tokenizer, tmp_path):
    assert ChatFrame(tokenizer).has_template
    path = write_tiny_gguf(tmp_path / "base.gguf", metadata={"tokenizer.chat_template": 0})
    assert not ChatFrame(open_checkpoint(path).tokenizer()).has_template
