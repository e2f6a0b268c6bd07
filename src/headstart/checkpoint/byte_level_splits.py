"""How byte-level vocabularies cut text into words before merging, by GGUF's names.

A GGUF file does not carry the rule, only its name (`tokenizer.ggml.pre`); a
wrong rule gives tokens the model has not been trained on, so an unknown name is
refused.

Source: the patterns stand in the models' own tokenizer.json; which name means
which is from llama.cpp, src/llama-vocab.cpp.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from headstart.errors import UnsupportedError


@dataclass(frozen=True, slots=True)
class SplitRule:
    """How text is cut.

    Attributes:
        patterns: regular expressions, applied in turn; each match becomes a
            piece of its own and what lies between two matches another.
        ignore_merges: a word that is a token is taken whole.
        adds_bos: texts begin with the bos token unless the file says otherwise.
        composes: text is brought to Unicode's composed form (NFC) first.
    """

    patterns: tuple[str, ...]
    ignore_merges: bool = False
    adds_bos: bool = False
    composes: bool = False


_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# of files that call their rule "default", which is no model's own
_MARKS = r"[\p{P}$+<=>^~|]+"
_GPT2_INNER_SPACES = _GPT2.removesuffix(r"|\s+")
_DIGIT = r"\p{N}"
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_LINES_AND_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"


def _words_after_contractions(letters: str, marks: str, digits: str) -> str:
    """The pattern that Llama 3 and Qwen share, but for what counts as a letter and how digits group."""
    return (
        rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?{letters}+|{digits}"
        rf"| ?[^\s\p{{L}}{marks}\p{{N}}]+[\r\n]*|{_LINES_AND_SPACES}"
    )


def _cased_words(ending: str, digits: str) -> str:
    """The pattern that GPT-4o and Mistral's Tekken share: words break before a capital."""
    upper, lower = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
    before = r"[^\r\n\p{L}\p{N}]?"
    return (
        rf"{before}{upper}*{lower}+{ending}|{before}{upper}+{lower}*{ending}|{digits}"
        rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_LINES_AND_SPACES}"
    )


_LLAMA3 = _words_after_contractions(r"\p{L}", "", r"\p{N}{1,3}")
_QWEN2 = _words_after_contractions(r"\p{L}", "", _DIGIT)
_QWEN35 = _words_after_contractions(r"[\p{L}\p{M}]", r"\p{M}", _DIGIT)
_TEKKEN = _cased_words("", _DIGIT)
_GPT4O = _cased_words(_CONTRACTION + "?", r"\p{N}{1,3}")
_DEEPSEEK_CODER = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", _DIGIT)
_DEEPSEEK3 = (
    r"\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_LINES_AND_SPACES}",
)

_RULES: tuple[tuple[SplitRule, tuple[str, ...]], ...] = (
    (SplitRule((_MARKS, _GPT2_INNER_SPACES, r"\p{N}+", r"[0-9][0-9][0-9]")), ("default",)),
    (
        SplitRule((_GPT2,)),
        ("gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "gigachat", "mellum", "a.x-4.0", "exaone4"),
    ),
    (
        SplitRule((_DIGIT, _GPT2)),
        ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"),
    ),
    (
        SplitRule((_LLAMA3,), ignore_merges=True, adds_bos=True),
        ("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"),
    ),
    (SplitRule((_LLAMA3,)), ("dbrx", "smaug-bpe", "glm4", "chatglm-bpe")),
    (SplitRule((_QWEN2,), composes=True), ("qwen2",)),
    (SplitRule((_QWEN2,)), ("deepseek-r1-qwen", "megrez", "stablelm2", "hunyuan", "solar-open", "grok-2", "kormo")),
    (SplitRule((_QWEN35,), composes=True), ("qwen35",)),
    (SplitRule((_TEKKEN,), ignore_merges=True, adds_bos=True), ("tekken",)),
    (SplitRule((_GPT4O,)), ("gpt-4o", "llama4", "kanana2", "minimax-m2")),
    (SplitRule(_DEEPSEEK_CODER), ("deepseek-coder",)),
    (SplitRule(_DEEPSEEK3), ("deepseek-v3", "hunyuan-dense", "joyai-llm")),
)

SPLIT_RULES: Mapping[str, SplitRule] = MappingProxyType({name: rule for rule, names in _RULES for name in names})
"""The rules by the names that GGUF files give them."""


def split_rule(name: str) -> SplitRule:
    """The rule of a name.

    Raises:
        UnsupportedError: the name is unknown.
    """
    rule = SPLIT_RULES.get(name)
    if rule is None:
        raise UnsupportedError(
            f"The tokenizer splits text by the rule {name[:80]!r}; this build knows {', '.join(sorted(SPLIT_RULES))}. "
            "Use the model's safetensors folder, whose tokenizer.json carries its own rule."
        )
    return rule
