"""What an OpenAI-compatible server answers, as records: text, tokens with log-probabilities, usage.

Servers agree on little beyond the names. Log-probabilities come in three layouts (parallel lists, a list of entries,
entries with ids), and are read from all of them. What is missing stays `None` or empty; nothing is made up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from headstart.errors import HeadstartError

# what vLLM writes for a token's text if `return_tokens_as_token_ids` was asked for
_ID_PREFIX = "token_id:"


@dataclass(frozen=True, slots=True)
class Usage:
    """The server's own count of tokens."""

    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class Guesses:
    """What was drafted for one answer, by the server's own count (llama.cpp's `timings`).

    Attributes:
        drafted: guesses that were checked.
        accepted: of these, kept.
    """

    drafted: int
    accepted: int


@dataclass(frozen=True, slots=True)
class ServerToken:
    """A written token, as far as the server tells.

    Attributes:
        text: the token's text, or "token_id:N".
        token_id: its id, if the server tells ids.
        logprob: natural logarithm of its probability.
        top: (text, log-probability) of the likeliest tokens at its place, best first. Some servers add the written
            token if it is not among them.
    """

    text: str
    token_id: int | None
    logprob: float | None
    top: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Chunk:
    """One message of a stream.

    Attributes:
        at_s: seconds from sending the request to this message.
        text: what it adds. It may be any number of tokens, none included: only `usage` counts tokens.
        tokens: what it adds, if log-probabilities or token ids were asked for.
        finish_reason: "stop", "length", ... on the last message with text.
        usage: on the last message, from servers that tell.
        guesses: likewise.
    """

    at_s: float
    text: str = ""
    tokens: tuple[ServerToken, ...] = ()
    finish_reason: str | None = None
    usage: Usage | None = None
    guesses: Guesses | None = None


@dataclass(frozen=True, slots=True)
class ServerCompletion:
    """A whole answer.

    Attributes:
        text: what was written.
        tokens: the same token by token, if log-probabilities or token ids were asked for and the server gives them.
        finish_reason: "stop", "length", ...; `None` if the server did not say.
        usage: the server's count of tokens, if it gives one.
        total_s: seconds from sending the request to the end of the answer.
        chunks: the messages it came in, if it was streamed.
        guesses: what was drafted for it, if the server tells.
    """

    text: str
    tokens: tuple[ServerToken, ...]
    finish_reason: str | None
    usage: Usage | None
    total_s: float
    chunks: tuple[Chunk, ...] = ()
    guesses: Guesses | None = None


def read_completion(reply: object, total_s: float) -> ServerCompletion:
    """Read an answer that came in one piece.

    Args:
        reply: the parsed JSON.
        total_s: seconds that it took.

    Raises:
        HeadstartError: it is not an answer.
    """
    chunk = read_chunk(reply, total_s)
    return ServerCompletion(chunk.text, chunk.tokens, chunk.finish_reason, chunk.usage, total_s, guesses=chunk.guesses)


def join_chunks(chunks: Iterable[Chunk]) -> ServerCompletion:
    """Put the messages of a stream together."""
    chunks = tuple(chunks)
    return ServerCompletion(
        text="".join(chunk.text for chunk in chunks),
        tokens=tuple(token for chunk in chunks for token in chunk.tokens),
        finish_reason=next((chunk.finish_reason for chunk in reversed(chunks) if chunk.finish_reason), None),
        usage=next((chunk.usage for chunk in reversed(chunks) if chunk.usage), None),
        total_s=chunks[-1].at_s if chunks else 0.0,
        chunks=chunks,
        guesses=next((chunk.guesses for chunk in reversed(chunks) if chunk.guesses), None),
    )


def read_chunk(message: object, at_s: float) -> Chunk:
    """Read one message: of a stream, or an answer in one piece.

    Args:
        message: the parsed JSON.
        at_s: seconds from the request.

    Raises:
        HeadstartError: it reports an error, or is of another form.
    """
    if not isinstance(message, Mapping):
        raise HeadstartError(f"The server answered {_short(message)}; an answer is a JSON object. Check the address.")
    if message.get("error") or message.get("object") == "error":
        raise HeadstartError(f"The server failed while it wrote: {error_text(message)}. Look into its log.")
    try:
        usage, guesses = _usage(message.get("usage")), _guesses(message.get("timings"))
        choices = message.get("choices") or ()
        if not choices:  # the last message of a stream may have the usage alone
            return Chunk(at_s, usage=usage, guesses=guesses)
        choice = choices[0]
        tokens = _tokens(choice.get("logprobs"), choice.get("token_ids"))
        return Chunk(at_s, _text(choice), tokens, choice.get("finish_reason"), usage, guesses)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise HeadstartError(
            f"The server's answer has another form than OpenAI's ({type(error).__name__}: {error}): {_short(message)}. "
            "Check that the address ends where its API begins, such as http://host:8000/v1."
        ) from error


def error_text(message: object) -> str:
    """What a server says of an error, whatever form it says it in."""
    error = message.get("error", message) if isinstance(message, Mapping) else message
    if isinstance(error, Mapping) and error.get("message"):
        return str(error["message"])[:500]
    return _short(error)


def _text(choice: Mapping[str, Any]) -> str:
    if "text" in choice:
        return choice["text"] or ""
    message = choice.get("delta") or choice.get("message") or {}
    # models that reason write that part under a name of its own, and its tokens count like all others
    reasoning = message.get("reasoning_content") or message.get("reasoning") or ""
    return reasoning + (message.get("content") or "")


def _usage(usage: Mapping[str, Any] | None) -> Usage | None:
    if not usage or usage.get("completion_tokens") is None:
        return None
    return Usage(int(usage.get("prompt_tokens") or 0), int(usage["completion_tokens"]))


def _guesses(timings: Mapping[str, Any] | None) -> Guesses | None:
    if not timings or timings.get("draft_n") is None:
        return None
    return Guesses(int(timings["draft_n"]), int(timings.get("draft_n_accepted") or 0))


def _tokens(logprobs: Mapping[str, Any] | None, token_ids: list[int] | None) -> tuple[ServerToken, ...]:
    if not logprobs or (logprobs.get("content") is None and logprobs.get("tokens") is None):
        return tuple(ServerToken("", int(token_id), None) for token_id in token_ids or ())
    if logprobs.get("content"):
        entries = [_entry(entry) for entry in logprobs["content"]]
    else:
        texts = logprobs.get("tokens") or ()
        tops = logprobs.get("top_logprobs") or [None] * len(texts)
        entries = [
            ServerToken(text, id_in(text), logprob, _ranked((top or {}).items()))
            for text, logprob, top in zip(texts, logprobs.get("token_logprobs") or (), tops, strict=True)
        ]
    if token_ids and len(token_ids) == len(entries):
        entries = [
            ServerToken(entry.text, int(token_id), entry.logprob, entry.top)
            for entry, token_id in zip(entries, token_ids, strict=True)
        ]
    return tuple(entries)


def _entry(entry: Mapping[str, Any]) -> ServerToken:
    top = _ranked((other["token"], other["logprob"]) for other in entry.get("top_logprobs") or ())
    text = entry["token"]
    return ServerToken(text, entry.get("id", id_in(text)), entry["logprob"], top)


def _ranked(pairs: Iterable[tuple[str, float]]) -> tuple[tuple[str, float], ...]:
    return tuple(sorted(((text, float(logprob)) for text, logprob in pairs), key=lambda pair: -pair[1]))


def id_in(text: str) -> int | None:
    """The id in "token_id:N", if a token's text is that."""
    number = text.removeprefix(_ID_PREFIX)
    return int(number) if number != text and number.isdecimal() else None


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 300 else text[:300] + "..."
