"""How one document comes about: what the model is asked to write, turn by turn.

A composition is a generator. It yields what is to be written next, is sent the
tokens, and returns the document, or `None` if there was nothing to learn. All
that is random in it follows from one seed, so a document is the same whenever,
and beside whatever others, it is written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass
from numbers import Integral
from typing import Any

import numpy as np

from headstart.errors import ConfigError
from headstart.records import SamplingParams
from headstart.train.chat_frame import ChatFrame
from headstart.train.prompts import Prompt
from headstart.train.text_shard import Document


@dataclass(frozen=True, kw_only=True, slots=True)
class DistillConfig:
    """How a model writes its own training text.

    Attributes:
        num_tokens: supervised tokens to write; whole shards, so some more come.
        seed: of everything random, 64-bit.
        greedy_share: share of documents answered greedily, in [0, 1]. A prompt
            that comes again is never one of them: the answer would be the same.
        temperature: of the other answers, above 0.
        question_temperature: of questions and of the beginnings of plain texts, above 0.
        question_top_p: of the same, in (0, 1].
        question_tokens: longest questions; one is drawn for each.
        answer_tokens: longest answer.
        document_tokens: longest document; a prompt that leaves no room in it is skipped.
        follow_up_share: share of the conversations of one turn that get a
            second one, which the model writes itself, in [0, 1].
        shard_documents: prompts to a shard. What is lost at an interruption is less than two.

    Raises:
        ConfigError: a value is out of its range.
    """

    num_tokens: int
    seed: int = 0
    greedy_share: float = 0.5
    temperature: float = 0.7
    question_temperature: float = 1.0
    question_top_p: float = 0.95
    question_tokens: tuple[int, ...] = (60, 120, 250)
    answer_tokens: int = 300
    document_tokens: int = 2048
    follow_up_share: float = 0.25
    shard_documents: int = 128

    def __post_init__(self) -> None:
        for name in ("num_tokens", "answer_tokens", "document_tokens", "shard_documents"):
            _require(_is_count(getattr(self, name)), name, getattr(self, name), "a whole number, at least 1")
        lengths = self.question_tokens
        _require(
            isinstance(lengths, tuple) and bool(lengths) and all(map(_is_count, lengths)),
            "question_tokens", lengths, "a tuple of whole numbers, each at least 1",
        )  # fmt: skip
        _require(isinstance(self.seed, Integral) and 0 <= self.seed < 1 << 64, "seed", self.seed, "0 to 2**64 - 1")
        for name in ("greedy_share", "follow_up_share"):
            _require(0 <= getattr(self, name) <= 1, name, getattr(self, name), "between 0 and 1")
        for name in ("temperature", "question_temperature"):
            _require(0 < getattr(self, name) < float("inf"), name, getattr(self, name), "a finite positive number")
        _require(0 < self.question_top_p <= 1, "question_top_p", self.question_top_p, "above 0, at most 1")

    def recipe(self) -> dict[str, Any]:
        """What the documents depend on, as JSON would hold it: all but how many are wanted."""
        settings = asdict(self) | {"question_tokens": list(self.question_tokens)}
        del settings["num_tokens"]
        return settings


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be written next.

    Attributes:
        prompt: the document so far.
        params: how to go on.
    """

    prompt: list[int]
    params: SamplingParams


Writing = Generator[Wish, Sequence[int], list[int]]
Composition = Generator[Wish, Sequence[int], Document | None]


def document_seed(seed: int, index: int) -> int:
    """The seed of document `index` of a text, 64-bit."""
    return _draw(seed, f"document {index}")


def compose_document(prompt: Prompt, visit: int, frame: ChatFrame, config: DistillConfig, seed: int) -> Composition:
    """The making of one document.

    Args:
        prompt: what it begins with.
        visit: how often this prompt came before.
        frame: of the model's template.
        config: how to write.
        seed: of this document.

    Returns:
        A generator that yields wishes, is sent the tokens written, and returns the document.
    """
    author = _Author(prompt, visit, frame, config, seed)
    return author.write_plain_text() if prompt.raw else author.write_conversation()


class _Author:
    """Writes one document."""

    def __init__(self, prompt: Prompt, visit: int, frame: ChatFrame, config: DistillConfig, seed: int) -> None:
        self._prompt = prompt
        self._frame = frame
        self._config = config
        self._seed = seed
        # an opening is another question each time
        may_be_greedy = visit == 0 or prompt.opening
        is_greedy = may_be_greedy and _share(seed, "greedy") < config.greedy_share
        self._temperature = 0.0 if is_greedy else config.temperature
        self._tokens: list[int] = []
        self._supervised: list[bool] = []

    def write_plain_text(self) -> Composition:
        beginning = self._frame.encode_raw(self._prompt.turns[0])
        if self._prompt.opening:
            beginning += yield from self._write_question("beginning", beginning)
        yield from self._answer("text", beginning)
        return self._finish()

    def write_conversation(self) -> Composition:
        frame, prompt = self._frame, self._prompt
        if prompt.opening:
            opening = [*frame.head, *frame.encode(prompt.turns[0])]
            beginning = [*opening, *(yield from self._write_question("question 0", opening)), *frame.tail]
        else:
            beginning = frame.first_turn(prompt.turns[0], prompt.system)
        goes_on = yield from self._answer("answer 0", beginning)
        turns: list[str | None] = list(prompt.turns[1:])
        if len(prompt.turns) == 1 and _share(self._seed, "follow-up") < self._config.follow_up_share:
            turns.append(None)  # the model asks
        for number, turn in enumerate(turns, start=1):
            # an answer that was cut off is not followed by anything in a conversation
            if not goes_on or self._tokens[-1] != frame.between[0]:
                break
            added = list(frame.between[1:])
            question = yield from self._ask(turn, number, added)
            if not question:
                break
            goes_on = yield from self._answer(f"answer {number}", [*added, *question, *frame.tail])
        return self._finish()

    def _ask(self, turn: str | None, number: int, added: Sequence[int]) -> Writing:
        if turn is not None:
            return self._frame.encode(turn)
        return (yield from self._write_question(f"question {number}", [*self._tokens, *added]))

    def _write_question(self, name: str, text: Sequence[int]) -> Writing:
        """What the model says in the user's stead; its end is not a part of it."""
        config, marks = self._config, self._frame.marks
        lengths = config.question_tokens
        room = config.document_tokens - len(text)
        if room < 1:
            return []
        params = SamplingParams(
            max_tokens=min(lengths[_draw(self._seed, f"length of {name}") % len(lengths)], room),
            temperature=config.question_temperature,
            top_p=config.question_top_p,
            seed=_draw(self._seed, name),
            stop_token_ids=tuple(sorted(marks)),  # a question must not open a turn of its own
        )
        written = yield Wish(list(text), params)
        return [token for token in written if token not in marks]

    def _answer(self, name: str, added: Sequence[int]) -> Generator[Wish, Sequence[int], bool]:
        """Add what was said and the model's answer to it; false, and nothing added, if there is none."""
        text = [*self._tokens, *added]
        room = self._config.document_tokens - len(text)
        if room < 1:
            return False
        params = SamplingParams(
            max_tokens=min(self._config.answer_tokens, room),
            temperature=self._temperature,
            seed=_draw(self._seed, name),
        )
        answer = yield Wish(text, params)
        if all(token in self._frame.marks for token in answer):
            return False
        self._tokens = [*text, *answer]
        self._supervised += [False] * len(added) + [True] * len(answer)
        return True

    def _finish(self) -> Document | None:
        if not self._tokens:
            return None
        return Document(
            tokens=np.array(self._tokens, np.int32),
            supervised=np.array(self._supervised, np.bool_),
            temperature=self._temperature,
            seed=self._seed,
            category=self._prompt.category,
        )


def _draw(seed: int, name: str) -> int:
    """64 random bits that depend on a seed and a name alone: not on what was drawn before, nor on any library."""
    return int.from_bytes(hashlib.blake2b(f"{seed} {name}".encode(), digest_size=8).digest(), "little")


def _share(seed: int, name: str) -> float:
    """A random number in [0, 1)."""
    return (_draw(seed, name) >> 11) / 2.0**53


def _is_count(value: object) -> bool:
    return isinstance(value, Integral) and int(value) >= 1


def _require(holds: bool, name: str, value: object, allowed: str) -> None:
    if not holds:
        raise ConfigError(f"{name} = {value!r}: it must be {allowed}.")
