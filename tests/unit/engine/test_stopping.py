from __future__ import annotations

import pytest

from headstart.engine.stopping import StopRules
from headstart.records import SamplingParams
from headstart.testing.byte_tokenizer import ByteTokenizer

TOKENIZER = ByteTokenizer()
END = TOKENIZER.end_ids[0]


def rules(context_left: int = 1000, **params) -> StopRules:
    return StopRules(SamplingParams(**params), TOKENIZER.end_ids, TOKENIZER.stream(), context_left)


def test_an_end_token_inside_a_block_ends_it_before_the_length_does():
    # sgl-project/sglang#31599: five tokens of six would fit, but the third ends the text
    ending = rules(max_tokens=5, stop_token_ids=(12,)).accept([10, 11, 12, 20, 21, 22])
    assert (ending.num_tokens, ending.reason) == (3, "stop")


def test_an_end_token_at_the_last_place_is_a_stop():
    ending = rules(max_tokens=3).accept([97, 98, END, 99])
    assert (ending.num_tokens, ending.text, ending.reason) == (3, "ab", "stop")


def test_ignore_eos_keeps_own_stop_tokens():
    own = rules(ignore_eos=True, stop_token_ids=(99,))
    assert own.end_tokens == (99,)
    ending = own.accept([97, END, 98, 99, 97])
    assert (ending.num_tokens, ending.text, ending.reason) == (4, "ab", "stop")


@pytest.mark.parametrize(
    ("max_tokens", "context_left", "reason"), [(3, 9, "length"), (9, 3, "context"), (3, 3, "length")]
)
def test_length_and_context(max_tokens, context_left, reason):
    own = rules(max_tokens=max_tokens, context_left=context_left)
    assert own.num_left == 3
    ending = own.accept(b"abcdef")
    assert (ending.num_tokens, ending.text, ending.reason) == (3, "abc", reason)
    assert own.num_left == 0


def feed(own: StopRules, *blocks: bytes) -> tuple[str, list[str], str | None, int]:
    """All text, what each block released, the reason, and the tokens taken."""
    released, reason, taken = [], None, 0
    for block in blocks:
        ending = own.accept(block)
        released.append(ending.text)
        reason = ending.reason
        taken += ending.num_tokens
        if reason:
            break
    return "".join(released), released, reason, taken


def test_a_stop_string_across_rounds_is_held_back_and_never_shown():
    text, released, reason, taken = feed(rules(stop=("STOP",)), b"abS", b"TO", b"Pxy")
    assert (text, reason, taken) == ("ab", "stop", 6)
    assert released == ["ab", "", ""]


def test_held_text_comes_when_it_proves_harmless():
    text, released, reason, _ = feed(rules(stop=("STOP",)), b"abST", b"ST", b"x")
    assert released == ["ab", "ST", "STx"]
    assert (text, reason) == ("abSTSTx", None)


def test_held_text_comes_at_the_end_of_length():
    text, _, reason, _ = feed(rules(stop=("STOP",), max_tokens=4), b"abST")
    assert (text, reason) == ("abST", "length")


def test_held_text_comes_before_an_end_token():
    text, _, reason, _ = feed(rules(stop=("STOP",)), b"abST", [END])
    assert (text, reason) == ("abST", "stop")


def test_the_string_completed_first_wins_then_the_longer():
    assert feed(rules(stop=("bcd", "c")), b"abcd")[0] == "ab"
    assert feed(rules(stop=("c", "bc")), b"abcd")[0] == "a"


def test_a_stop_string_on_the_last_token_is_a_stop_not_a_length():
    text, _, reason, taken = feed(rules(stop=("cd",), max_tokens=4), b"abcd")
    assert (text, reason, taken) == ("ab", "stop", 4)


def test_an_unfinished_character_is_held_and_completed_by_replacement():
    own = rules(max_tokens=3)
    assert own.accept(b"a\xe2").text == "a"
    ending = own.accept(b"\x82")
    assert (ending.text, ending.reason) == ("\ufffd", "length")


def test_a_stop_string_of_several_bytes_a_character():
    text, _, reason, taken = feed(rules(stop=("€",)), b"ab\xe2", b"\x82\xac", b"z")
    assert (text, reason, taken) == ("ab", "stop", 5)


def test_overlapping_beginnings_are_held_as_far_as_needed():
    text, released, reason, _ = feed(rules(stop=("aab",)), b"aaa", b"b")
    assert released[0] == "a"
    assert (text, reason) == ("a", "stop")
