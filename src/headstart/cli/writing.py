"""One request from submission to its end: events as they come, progress before them, Ctrl-C between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

from headstart.cli.interrupt import Interrupt
from headstart.cli.progress import progress_bar
from headstart.engine import Engine
from headstart.records import Completion, Event, SamplingParams

# Prompts of at least so many tokens take long enough for a bar.
LONG_PROMPT = 512


def write_answer(
    engine: Engine, prompt: str | Sequence[int], params: SamplingParams, show: Callable[[Event], None]
) -> Completion:
    """Write on from a prompt. Ctrl-C ends it early, with the finish reason "cancelled".

    Args:
        engine: an idle one.
        prompt: text or token ids.
        params: how to choose and when to end.
        show: called with each event.

    Raises:
        HeadstartError: as `Engine.submit` and `Engine.completion`.
        KeyboardInterrupt: Ctrl-C was pressed twice.
    """
    tokens = engine.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
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
