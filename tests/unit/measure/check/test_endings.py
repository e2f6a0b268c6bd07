from __future__ import annotations

import pytest

from headstart.measure.check.answers import Answer
from headstart.measure.check.endings import check_accounts, check_stops, stop_strings
from headstart.measure.openai_reply import Usage

TEXT = "the quick brown fox jumps over the lazy dog and runs away"


class Scripted:
    """Answers as a function of what is asked."""

    def __init__(self, answer) -> None:
        self.ask = answer


def whole(text: str = TEXT, **fields) -> Answer:
    return Answer(**{"text": text, "tokens": tuple(text), "finish_reason": "length", **fields})


def test_stop_strings_lie_in_the_text_but_not_at_its_beginning():
    stops = stop_strings(TEXT)
    assert len(stops) == 4
    assert all(TEXT.index(stop) > 0 for stop in stops)
    assert stop_strings("") == stop_strings("aaaaaaaa") == []


@pytest.mark.parametrize(
    ("cut", "fields", "kind"),
    [
        (lambda stop: TEXT[: TEXT.index(stop)], {"finish_reason": "stop"}, None),
        (lambda stop: TEXT[: TEXT.index(stop)], {"finish_reason": "length"}, "wrong finish reason"),
        (lambda stop: TEXT[: TEXT.index(stop) + len(stop)], {"finish_reason": "stop"}, "stop string missed"),
        (lambda stop: TEXT[: TEXT.index(stop) + 1], {"finish_reason": "stop"}, "stop string missed"),
        (lambda stop: TEXT, {}, "stop string missed"),
        (lambda stop: TEXT[: TEXT.index(stop) - 1], {"finish_reason": "stop"}, "text cut short"),
        (lambda stop: "@@@@", {"finish_reason": "stop"}, None),
        (lambda stop: TEXT[: TEXT.index(stop)] + "@@@@", {"finish_reason": "stop"}, None),  # a tie just there
    ],
)
def test_where_a_stop_string_must_end_an_answer(cut, fields, kind):
    server = Scripted(lambda prompt, max_tokens, stop: whole(cut(stop[0]), **fields))
    finding = check_stops(server, ["ask"], [whole()], 60)
    assert {fault.kind for fault in finding.faults} == ({kind} if kind else set())
    assert finding.untested is None or finding.figures["num_changed"] == 4


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"usage": Usage(3, len(TEXT))}, None),
        ({"usage": Usage(3, len(TEXT)), "finish_reason": "stop", "tokens": tuple(TEXT[:-1])}, None),  # the end token
        ({"usage": Usage(3, len(TEXT) - 2)}, "wrong token count"),
        ({"usage": Usage(3, 1000)}, "wrong token count"),
        ({"usage": Usage(7, len(TEXT))}, "wrong token count"),
        ({"finish_reason": None}, "wrong finish reason"),
    ],
)
def test_counts_and_reasons(fields, kind):
    answer = whole(**fields)
    server = Scripted(lambda prompt, max_tokens, streamed=False: answer)
    finding = check_accounts(server, [(1, 2, 3)], [answer], len(TEXT))
    assert {fault.kind for fault in finding.faults} == ({kind} if kind else set())


def test_a_stream_that_brings_something_else():
    server = Scripted(lambda prompt, max_tokens, streamed=False: whole(TEXT[:-1] if streamed else TEXT))
    (fault,) = check_accounts(server, ["ask"], [whole()], 60).faults
    assert fault.kind == "stream differs"


def test_a_server_that_never_repeats_itself_is_not_blamed_for_its_stream():
    texts = iter("abc")
    server = Scripted(lambda prompt, max_tokens, streamed=False: whole(next(texts)))
    assert not check_accounts(server, ["ask"], [whole()], 60).faults
