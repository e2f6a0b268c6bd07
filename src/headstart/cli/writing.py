"""One request from submission to its end: events as they come, progress before them, Ctrl-C between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TextIO

from headstart.cli.interrupt import Interrupt
from headstart.cli.progress import progress_bar
from headstart.cli.terminal import AnswerWriter
from headstart.engine import Engine
from headstart.records import Completion, Event, SamplingParams

# Prompts of at least so many tokens take long enough for a bar.
LONG_PROMPT = 512


def write_answer(engine: Engine, tokens: Sequence[int], params: SamplingParams, stream: TextIO | None) -> Completion:
    """Write on from a prompt. Ctrl-C ends it early, with the finish reason "cancelled".

    Args:
        engine: an idle one.
        tokens: the prompt.
        params: how to choose and when to end.
        stream: where the text is shown as it becomes final, if anywhere.

    Raises:
        HeadstartError: as `Engine.submit` and `Engine.completion`.
        KeyboardInterrupt: Ctrl-C was pressed twice.
    """
    if stream is None:
        return _write(engine, tokens, params, lambda event: None)
    writer = AnswerWriter(stream, engine.tokenizer.stream())
    try:
        return _write(engine, tokens, params, writer.write)
    finally:
        writer.end()


def _write(engine: Engine, tokens: Sequence[int], params: SamplingParams, show: Callable[[Event], None]) -> Completion:
    sequence_id = engine.submit(tokens, params)
    with Interrupt() as interrupt, ExitStack() as bar:
        show_share = None
        if len(tokens) >= LONG_PROMPT:
            show_share = bar.enter_context(progress_bar(f"Reading {len(tokens)} tokens"))
        num_before = _num_read(engine)
        while not engine.idle:
            if interrupt.asked:
                engine.cancel(sequence_id)
            for event in engine.step():
                bar.close()  # the prompt has been read
                show_share = None
                show(event)
            if show_share is not None:
                show_share((_num_read(engine) - num_before) / len(tokens))
    return engine.completion(sequence_id)


def _num_read(engine: Engine) -> int:
    """Tokens that were run, or found in the prefix index."""
    return engine.statistics.rows + engine.statistics.shared_tokens
