"""Where answers end, and what is told about them: stop strings, finish reasons, counts, streams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from headstart.measure.check.answers import Answer, Asker
from headstart.measure.check.faults import Fault, FaultKind
from headstart.measure.check.findings import Finding
from headstart.measure.check.reference import Prompt

# Where in an answer a stop string begins, and how long it is: odd places, so that it falls across tokens and drafts.
_STARTS = (0.12, 0.31, 0.53, 0.74)
_LENGTHS = (3, 5, 2, 4)


def check_stops(asker: Asker, prompts: Sequence[Prompt], answers: Sequence[Answer], max_tokens: int) -> Finding:
    """Ask again for texts that are known, with a part of each as the stop string.

    Args:
        asker: the server.
        prompts: what was asked.
        answers: the greedy ones, whole.
        max_tokens: that were asked for.
    """
    num_stopped = num_changed = 0
    faults: list[Fault] = []
    for number, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        for stop in stop_strings(answer.text):
            expected = answer.text[: answer.text.index(stop)]
            stopped = asker.ask(prompt, max_tokens, stop=(stop,))
            kind = _judge_stop(stopped, expected, stop)
            if kind == "stopped":
                num_stopped += 1
            elif kind == "text changed":
                num_changed += 1
            else:
                what = f"Answer {number} with stop string {stop!r}: {_tail(stopped.text)!r}, {stopped.finish_reason!r}"
                faults.append(Fault(kind=kind, evidence=f"{what}; it should end after {_tail(expected)!r}."))
    figures = {"num_stopped": num_stopped, "num_changed": num_changed, "num_wrong": len(faults)}
    untested = None if num_stopped or faults else "No text came the same twice."
    return Finding(test="stop strings", figures=figures, faults=tuple(faults), untested=untested)


def stop_strings(text: str) -> list[str]:
    """Parts of a text that begin at several of its places."""
    found: list[str] = []
    for share, length in zip(_STARTS, _LENGTHS, strict=True):
        start = int(share * len(text))
        part = text[start : start + length]
        # one that begins the text would leave nothing, and half a character cannot be sent
        if len(part) == length and text.index(part) > 0 and "\ufffd" not in part and part not in found:
            found.append(part)
    return found


def _judge_stop(stopped: Answer, expected: str, stop: str) -> FaultKind | Literal["stopped", "text changed"]:
    beyond = stopped.text.removeprefix(expected) if stopped.text.startswith(expected) else ""
    # a part of the stop string that was let through is a miss too; other words mean that the text itself is another
    if stop in stopped.text or (beyond and stop.startswith(beyond)):
        return "stop string missed"
    if stopped.text == expected:
        return "stopped" if stopped.finish_reason == "stop" else "wrong finish reason"
    if expected.startswith(stopped.text):
        return "text cut short"
    return "text changed"  # a tie fell the other way: nothing can be said


def _tail(text: str) -> str:
    return text if len(text) <= 30 else f"...{text[-30:]}"


def check_accounts(asker: Asker, prompts: Sequence[Prompt], answers: Sequence[Answer], max_tokens: int) -> Finding:
    """Finish reasons and counts of the greedy answers, and that a stream brings the same.

    Args:
        asker: the server.
        prompts: what was asked.
        answers: the greedy ones.
        max_tokens: that were asked for.
    """
    faults: list[Fault] = []
    num_counted = 0
    for number, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        usage, num_tokens = answer.usage, len(answer.tokens or ())
        if answer.finish_reason not in ("stop", "length"):
            reason = f"Answer {number} ended for the reason {answer.finish_reason!r}; it can be 'stop' or 'length'."
            faults.append(Fault(kind="wrong finish reason", evidence=reason))
        if usage is None:
            continue
        num_counted += 1
        count = usage.completion_tokens
        wrong = []
        if count > max_tokens:
            wrong.append(f"{count} tokens, of {max_tokens} at most")
        if answer.finish_reason == "length" and count < max_tokens:
            wrong.append(f"{count} tokens, though it ended at {max_tokens}")
        if answer.is_whole and answer.tokens is not None and not num_tokens <= count <= num_tokens + 1:
            wrong.append(f"{count} tokens, and {num_tokens} are listed")
        if not isinstance(prompt, str) and usage.prompt_tokens not in (0, len(prompt)):
            wrong.append(f"{usage.prompt_tokens} tokens of the prompt, which has {len(prompt)}")
        faults += [
            Fault(kind="wrong token count", evidence=f"Answer {number} is told to have {what}.") for what in wrong
        ]
    streamed = asker.ask(prompts[0], max_tokens, streamed=True)
    # a stream that differs may be a tie; asked once more, the answer in one piece says whether texts repeat here
    repeats = asker.ask(prompts[0], max_tokens).text == answers[0].text
    if repeats and streamed.text != answers[0].text:
        difference = f"A stream brings {_tail(streamed.text)!r}, an answer in one piece {_tail(answers[0].text)!r}."
        faults.append(Fault(kind="stream differs", evidence=difference))
    elif repeats and streamed.finish_reason != answers[0].finish_reason:
        reasons = (
            f"A stream ends by {streamed.finish_reason!r}, an answer in one piece by {answers[0].finish_reason!r}."
        )
        faults.append(Fault(kind="wrong finish reason", evidence=reasons))
    figures = {"num_answers": len(answers), "num_counted": num_counted, "same_text_again": repeats}
    return Finding(test="accounts", figures=figures, faults=tuple(faults))
