"""A graft's text: written by the model until there is enough of it or the time for it is over."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from headstart.checkpoint import Checkpoint
from headstart.checkpoint.json_files import read_json_object
from headstart.engine import Engine
from headstart.errors import CheckpointError
from headstart.train.composition import DistillConfig
from headstart.train.distill import WritingProgress, fitting_config, text_header, write_text
from headstart.train.phases import Reporter
from headstart.train.prompts import PromptSource
from headstart.train.run_clock import RunClock
from headstart.train.run_directory import DECISIONS_NAME, RunDirectory
from headstart.train.text_store import HEADER_NAME, TextSource, TextStore, num_told

TEXT_NAME = "text"

# of the time for everything: reading the text takes about half as long again, the rest is for training
_TEXT_SHARE = 0.3

# documents written together; more of them share the cost of a pass, until the cache is full
_BATCH = 32

# decided once: prompts that the whole text answers for
_WHOLE = "text_prompts"


class _TimeIsUpError(Exception):
    """The share of the text is spent."""


def open_text(path: Path, checkpoint: Checkpoint) -> TextStore:
    """Open a text that this very model has written, all of it.

    Raises:
        CheckpointError: it is another's, or damaged, or a part of it is gone.
    """
    store = TextStore.open(path, source=TextSource.of(checkpoint))
    if store.num_lost:
        raise CheckpointError(
            f"{path}: shards at the end are missing, with what became of {store.num_lost} prompts. Copy the text anew, "
            "or take up the run that wrote it; the same documents come again."
        )
    return store


def text_is_whole(run: Path) -> bool:
    """Whether the text of a run's folder is all that the run will write, and has written before if shards were lost."""
    decisions = run / DECISIONS_NAME
    if not decisions.exists():  # a text may also have been laid there by hand
        return True
    whole = read_json_object(decisions).get(_WHOLE)
    return whole is not None and num_told(run / TEXT_NAME) >= int(whole)


def grow_text(
    run: RunDirectory,
    checkpoint: Checkpoint,
    prompts: PromptSource,
    config: DistillConfig,
    clock: RunClock,
    report: Reporter,
    threads: int | None,
) -> TextStore:
    """Have the model write a run's text, or go on with it.

    Args:
        run: where it lies; it remembers that the text is whole.
        checkpoint: the model.
        prompts: what it is asked.
        config: how it writes, and how much at most.
        clock: a share of its limit, if it has one, is the text's; at least one shard is written.
        report: told of each document.
        threads: CPU threads.

    Raises:
        StoppedError: the run is to stop.
        HeadstartError: as `write_text`.
    """
    path = run.path / TEXT_NAME
    config = fitting_config(config, checkpoint, prompts)
    if (path / HEADER_NAME).exists():
        store = TextStore.open(path, source=TextSource.of(checkpoint))
    else:
        store = TextStore.create(path, text_header(checkpoint, prompts, config))
    whole: int | None = run.recall(_WHOLE)
    if whole is not None and store.counts.num_asked >= whole:
        return store
    deadline = None if clock.limit_s is None else _TEXT_SHARE * clock.limit_s

    def tell(written: WritingProgress) -> None:
        rate = f"{written.tokens_per_s:.0f} tokens/s"
        if whole is not None:  # shards that were lost are written again, however long that takes
            report.tell("writing", store.counts.num_asked, whole, rate)
            return
        if deadline is None:
            report.tell("writing", min(written.num_supervised, written.num_wanted), written.num_wanted, rate)
            return
        note = f"{written.num_supervised} tokens, {rate}"
        report.tell("writing", min(clock.spent_s, deadline), deadline, note)
        if clock.spent_s >= deadline and store.num_supervised:
            raise _TimeIsUpError

    engine = Engine.load(checkpoint.path, draft="none", threads=threads, max_batch=_BATCH)
    with engine, suppress(_TimeIsUpError):  # what was not shelved yet is lost
        write_text(engine, store, prompts, config, tell, most_prompts=whole)
    run.remember(_WHOLE, store.counts.num_asked)
    return store
