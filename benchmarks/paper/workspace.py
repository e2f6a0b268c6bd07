"""A folder of everything that is made for the claims, and what is finished in it.

OUT/BUDGET/corpora/NAME/    text
OUT/BUDGET/models/NAME/     what was trained, in the state in which a run that was broken off goes on
OUT/BUDGET/jobs/NAME.json   the figures of a finished job, with what they depend on
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy

from headstart import __version__
from headstart.errors import CheckpointError, ConfigError
from headstart.measure.machine import describe_machine
from headstart.train.corpus import Corpus, CorpusConfig, prepare_corpus
from headstart.train.whole_files import write_whole
from paper.budgets import Budget
from paper.claim import Figures, Job
from paper.corpora import sources_of

if TYPE_CHECKING:
    from headstart.train.phases import Show  # it brings torch


class Workspace:
    """Where jobs are done.

    Attributes:
        out: what was given.
        budget: what is spent.
        threads: of the CPU.
        show: told of the progress of the job at hand; nobody is unless it is set.
    """

    def __init__(self, out: Path, budget: Budget, threads: int) -> None:
        """Nothing is made yet."""
        self._folder = out.absolute() / budget.name  # corpora know their sources by where they are
        self._corpora: dict[str, Corpus] = {}
        self.out, self.budget, self.threads = out, budget, threads
        self.show: Show = lambda progress: None

    def corpus_folder(self, name: str) -> Path:
        """Where a corpus lies, or will."""
        return self._folder / "corpora" / name

    def model_folder(self, name: str) -> Path:
        """Where a model lies, or will."""
        return self._folder / "models" / name

    def corpus(self, name: str) -> Corpus:
        """One of `paper.corpora.CORPORA`, prepared now if it was not."""
        if name not in self._corpora:
            folder = self.corpus_folder(name)
            folder.parent.mkdir(parents=True, exist_ok=True)
            sources = sources_of(name, self.budget, folder.parent)
            self._corpora[name] = prepare_corpus(folder, CorpusConfig(sources=sources))
        return self._corpora[name]

    def figures(self, job: Job) -> Figures | None:
        """What a finished job found; `None` if it is not finished.

        Raises:
            ConfigError: it was done with other settings.
            CheckpointError: its file is damaged.
        """
        record = self._record(job)
        return None if record is None else dict(record["figures"])

    def seconds(self, job: Job) -> float:
        """What a finished job took; 0 if it is not finished."""
        record = self._record(job)
        return 0.0 if record is None else float(record["seconds"])

    def machine(self, job: Job) -> Mapping[str, Any] | None:
        """Where and with what a finished job was done."""
        record = self._record(job)
        return None if record is None else {name: record[name] for name in ("machine", "versions", "threads")}

    def do(self, job: Job, versions: Callable[[], Mapping[str, str]]) -> None:
        """Do a job, unless it is finished, and keep what it found.

        Args:
            job: all that it builds on is done.
            versions: of what it runs on, beside this package's own.
        """
        if self._record(job) is not None:
            return
        started = time.monotonic()
        figures = job.run(self)
        record = {
            "name": job.name,
            "settings": job.all_settings,
            "figures": figures,
            # a training counts those of the times that it was broken off as well
            "seconds": max(time.monotonic() - started, figures.get("training_s", 0.0)),
            "threads": self.threads,
            "versions": {"headstart": __version__, "python": platform.python_version(), "numpy": numpy.__version__}
            | dict(versions()),
            "machine": describe_machine(),
        }
        path = self._path(job)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(record, indent=2) + "\n")

    def _path(self, job: Job) -> Path:
        return self._folder / "jobs" / f"{job.name}.json"

    def _record(self, job: Job) -> Mapping[str, Any] | None:
        path = self._path(job)
        try:
            record: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            settings = record["settings"]
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{path}: damaged ({error!r}). Remove it to have the job done again.") from error
        asked = json.loads(json.dumps(job.all_settings))  # tuples become lists
        differing = [name for name in {**settings, **asked} if settings.get(name) != asked.get(name)]
        if differing:
            shown = "; ".join(f"{name} was {settings.get(name)!r} and is now {asked.get(name)!r}" for name in differing)
            raise ConfigError(f"{path} was done with other settings: {shown}. Give another --out, or remove it.")
        return record
