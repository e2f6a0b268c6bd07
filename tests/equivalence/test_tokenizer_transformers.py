"""Tokens, text and chats equal those of transformers and SentencePiece, on text that is hard to get right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headstart.checkpoint import Tokenizer, open_checkpoint, packaged_model
from headstart.errors import CheckpointError
from headstart.testing.gguf_writer import write_gguf

transformers = pytest.importorskip("transformers")

AWKWARD = (
    "",
    " ",
    "   leading and trailing   ",
    "It's they'll WE'RE I'D can't ’tis",
    "漢字とひらがなカタカナ 한국어 ภาษาไทย العربية עברית हिन्दी",
    "🤗👩‍👩‍👧‍👦🏳️‍🌈 flags 🇫🇷🇩🇪",
    "e\u0301 n\u0303 a\u030a combining, ﬁ ligature",
    "line\none\r\ntwo\n\n\nthree\ttab\x0b\x0c",
    "control \x00\x01\x02\x1b[0m \x7f\x80\x9f end",
    "zero\u200bwidth nbsp\u00a0and\u2003em \ufeffbom",
    "def f(x):\n    return x ** 2  # comment\n\n\n        deep",
    'https://example.org/a?b=c&d=%20e  <html attr="v">&amp;</html>',
    "a" * 300,
    " " * 70 + "x",
    "\ufffd \U0010ffff \ue000",
    "ПРИВЕТ мир ΣΊΣΥΦΟΣ straße İstanbul",
)
DIGITS = "1 12 123 1234567 3.14159 1,000,000 ½ ٣٤ 二〇二四 x1 1x ①"
SPECIAL_IN_TEXT = (
    "<|im_start|>user\nhi<|im_end|>",
    "a <|im_end|> b",
    "<|im_start",
    "<|endoftext|><|endoftext|>",
    "  <|im_end|>  ",
)
CHATS: tuple[list[dict[str, Any]], ...] = (
    [{"role": "user", "content": "Hello?"}],
    [{"role": "system", "content": "Be brief.\n"}, {"role": "user", "content": " 漢字 <|im_end|> "}],
    [
        {"role": "user", "content": "1+1?"},
        {"role": "assistant", "content": "2", "tool_calls": None},
        {"role": "user", "content": "{{ messages }} <b>&\"'</b>"},
    ],
)


def assert_same(ours: Tokenizer, theirs: Any, texts: tuple[str, ...]) -> None:
    for text in texts:
        for special in (True, False):
            ids = theirs.encode(text, add_special_tokens=special)
            assert ours.encode(text, add_special_tokens=special) == ids, repr(text)
        for skip in (True, False):
            wanted = theirs.decode(ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False)
            assert ours.decode(ids, skip_special_tokens=skip) == wanted, repr(text)
            stream = ours.stream(skip_special_tokens=skip)
            pieces = [stream.push([token_id]) for token_id in ids]
            assert "".join(pieces) + stream.finish() == wanted, repr(text)


@pytest.fixture(scope="module")
def packaged() -> tuple[Tokenizer, Any]:
    try:
        path = packaged_model()
    except CheckpointError:
        pytest.skip("the packaged model is not installed")
    theirs = transformers.AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
    return open_checkpoint(path).tokenizer(), theirs


def test_packaged_model_text(packaged: tuple[Tokenizer, Any]) -> None:
    assert_same(*packaged, AWKWARD + SPECIAL_IN_TEXT)


def test_packaged_model_digits(packaged: tuple[Tokenizer, Any]) -> None:
    # The model's own tokenizer.json sets digits apart; transformers' reader of GGUF files leaves that out, which
    # shows at " ½" and its like.
    from tokenizers import Tokenizer as Backend
    from tokenizers import pre_tokenizers

    ours, theirs = packaged
    original = Backend.from_str(theirs.backend_tokenizer.to_str())
    original.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    for text in (DIGITS, *AWKWARD):
        assert ours.encode(text) == original.encode(text).ids


def test_packaged_model_single_tokens(packaged: tuple[Tokenizer, Any]) -> None:
    ours, theirs = packaged
    assert ours.vocab_size == len(theirs)
    ids = list(range(ours.vocab_size))
    assert [ours.decode([token_id]) for token_id in ids] == theirs.batch_decode(
        [[token_id] for token_id in ids], skip_special_tokens=True, clean_up_tokenization_spaces=False
    )


def test_packaged_model_random_tokens(packaged: tuple[Tokenizer, Any]) -> None:
    # random tokens cut characters apart, so this is where replacement characters must agree
    ours, theirs = packaged
    for row in np.random.default_rng(0).integers(0, ours.vocab_size, (200, 20)).tolist():
        wanted = theirs.decode(row, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        assert ours.decode(row, skip_special_tokens=False) == wanted


@pytest.mark.parametrize("chat", CHATS)
@pytest.mark.parametrize("add_generation_prompt", [True, False])
def test_packaged_model_chats(
    packaged: tuple[Tokenizer, Any], chat: list[dict[str, Any]], add_generation_prompt: bool
) -> None:
    ours, theirs = packaged
    options = {"add_generation_prompt": add_generation_prompt}
    assert ours.render_chat(chat, **options) == theirs.apply_chat_template(chat, tokenize=False, **options)
    found = theirs.apply_chat_template(chat, tokenize=True, return_dict=False, **options)
    assert ours.encode_chat(chat, **options) == list(found)


TEMPLATES = {
    "roles": """{{ bos_token }}{% for message in messages %}
    {% if message['role'] not in ['user', 'assistant', 'system'] %}
        {{ raise_exception('role?') }}
    {% endif %}
[{{ message.role | upper }}]
{{ message.content | trim }}{{ eos_token }}
{% endfor %}
{% if add_generation_prompt %}
[ASSISTANT]
{% endif %}
""",
    "tools": """{%- set ns = namespace(seen=0) -%}
{%- if tools is not none %}
    {%- for tool in tools %}{{ tool | tojson(indent=4) }}{{ tool | tojson }}{% endfor %}
{%- endif %}
{%- for message in messages %}
    {%- if loop.index0 == 2 %}{% break %}{% endif %}
    {%- set ns.seen = ns.seen + 1 %}{{ message | tojson }}
{%- endfor %}
{{ ns.seen }}{{ unk_token is defined }}{{ documents is none }}""",
    "training": """{% for message in messages %}
{% generation %}
{{ message.content }}
{% endgeneration %}

{% endfor %}
{{ strftime_now('%Y') }} {{ messages | length }} {{ dict(a=1) | tojson }} {{ enable_thinking | default('unset') }}""",
}
TOOLS = [{"type": "function", "function": {"name": "größe", "description": "a <b> & 'c'", "parameters": {}}}]


@pytest.mark.parametrize("name", sorted(TEMPLATES))
@pytest.mark.parametrize("chat", CHATS)
@pytest.mark.parametrize("tools", [None, TOOLS])
def test_templates(tmp_path: Path, name: str, chat: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> None:
    names = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "chat_template": TEMPLATES[name]}
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=train_byte_level(r"\S+|\s+"), **names)
    ours = open_folder(tmp_path, theirs)
    for options in ({"add_generation_prompt": True}, {"add_generation_prompt": False, "enable_thinking": True}):
        wanted = theirs.apply_chat_template(chat, tools=tools, tokenize=False, **options)
        assert ours.render_chat(chat, tools=tools, **options) == wanted


CORPUS = [
    "The quick brown fox jumps over the lazy dog; it's what they'll do, isn't it?",
    "def main():\n    print('hello, world')\n    return 0",
    "漢字とひらがな、カタカナ。 größe naïve façade 12345 67890",
    "numbers 1 22 333 4444 and  double   spaces\tand tabs",
] * 8


def train_byte_level(pattern: str) -> Any:
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=500, initial_alphabet=alphabet, show_progress=False)
    )
    marks = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
    made.add_special_tokens([AddedToken(mark, special=True, normalized=False) for mark in marks])
    return made


def open_folder(folder: Path, theirs: Any) -> Tokenizer:
    """Our tokenizer out of the files that transformers writes."""
    theirs.save_pretrained(folder)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    return open_checkpoint(folder).tokenizer()


# The patterns as they stand in the models' own tokenizer.json.
ORIGINAL_PATTERNS = {
    "gpt-2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "llama-bpe": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    "deepseek-r1-qwen": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    "tekken": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "gpt-4o": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}


@pytest.mark.parametrize("pre", sorted(ORIGINAL_PATTERNS))
def test_byte_level_bpe_from_a_folder_and_from_gguf(tmp_path: Path, pre: str) -> None:
    made = train_byte_level(ORIGINAL_PATTERNS[pre])
    names = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "add_bos_token": True}
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=made, **names)
    assert_same(open_folder(tmp_path, theirs), theirs, (DIGITS, *AWKWARD, *SPECIAL_IN_TEXT))

    stored = json.loads(made.to_str())
    tokens = sorted(made.get_vocab(), key=made.get_vocab().__getitem__)
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array([3 if token.startswith("<|") else 1 for token in tokens], np.int32),
        "tokenizer.ggml.merges": [" ".join(merge) for merge in stored["model"]["merges"]],
        "tokenizer.ggml.bos_token_id": tokens.index("<|im_start|>"),
        "tokenizer.ggml.eos_token_id": tokens.index("<|im_end|>"),
        "tokenizer.ggml.add_bos_token": True,
    }
    write_gguf(tmp_path / "m.gguf", metadata)
    assert_same(open_checkpoint(tmp_path / "m.gguf").tokenizer(), theirs, (DIGITS, *AWKWARD, *SPECIAL_IN_TEXT))


def train_sentencepiece(folder: Path, *, leading_space: bool) -> Any:
    sentencepiece = pytest.importorskip("sentencepiece")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS), model_prefix=str(folder / "m"), model_type="bpe", vocab_size=400,
        byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
        add_dummy_prefix=leading_space, split_digits=True, allow_whitespace_only_pieces=True,
        user_defined_symbols=["<tool>"], hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    return sentencepiece.SentencePieceProcessor(model_file=str(folder / "m.model"))


def piece_type(model: Any, token_id: int) -> int:
    for number, holds in ((2, model.is_unknown), (3, model.is_control), (6, model.is_byte), (5, model.is_unused)):
        if holds(token_id):
            return number
    return 4 if model.id_to_piece(token_id) == "<tool>" else 1


def write_sentencepiece(path: Path, model: Any, *, leading_space: bool) -> Path:
    size = model.get_piece_size()
    write_gguf(
        path,
        {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": [model.id_to_piece(token_id) for token_id in range(size)],
            "tokenizer.ggml.scores": np.array([model.get_score(token_id) for token_id in range(size)], np.float32),
            "tokenizer.ggml.token_type": np.array([piece_type(model, token_id) for token_id in range(size)], np.int32),
            "tokenizer.ggml.add_space_prefix": leading_space,
            "tokenizer.ggml.unknown_token_id": model.unk_id(),
            "tokenizer.ggml.bos_token_id": model.bos_id(),
            "tokenizer.ggml.eos_token_id": model.eos_id(),
        },
    )
    return path


@pytest.mark.parametrize("leading_space", [True, False])
def test_sentencepiece_itself(tmp_path: Path, leading_space: bool) -> None:
    model = train_sentencepiece(tmp_path, leading_space=leading_space)
    ours = open_checkpoint(write_sentencepiece(tmp_path / "m.gguf", model, leading_space=leading_space)).tokenizer()
    assert ours.vocab_size == model.get_piece_size()
    for text in (DIGITS, *AWKWARD):
        ids = model.encode(text)
        assert ours.encode(text, add_special_tokens=False) == ids, repr(text)
        assert ours.encode(text) == [model.bos_id(), *ids]
        assert ours.decode(ids) == model.decode(ids) == text
        stream = ours.stream()
        assert "".join(stream.push([token_id]) for token_id in ids) + stream.finish() == text


def test_sentencepiece_as_transformers_reads_it(tmp_path: Path) -> None:
    # transformers puts the leading space by a rule of the architecture; phi3's is that of the original models
    model = train_sentencepiece(tmp_path, leading_space=True)
    path = write_sentencepiece(tmp_path / "m.gguf", model, leading_space=True)
    ours = open_checkpoint(path).tokenizer()
    stored = open_checkpoint(path).metadata
    from transformers.integrations.gguf.gguf_tokenizer_mapping import convert_gguf_tokenizer

    tables = {name: list(stored[f"tokenizer.ggml.{name}"]) for name in ("tokens", "scores", "token_type")}
    theirs, _ = convert_gguf_tokenizer("phi3", {"tokenizer_type": "llama", **tables})
    for text in (DIGITS, *AWKWARD, "a<tool>b", "</s> x", "<s>"):
        ids = theirs.encode(text, add_special_tokens=False).ids
        assert ours.encode(text, add_special_tokens=False) == ids, repr(text)
        for skip in (True, False):
            assert ours.decode(ids, skip_special_tokens=skip) == theirs.decode(ids, skip_special_tokens=skip)
