"""Plain and drafted decoding side by side: are the tokens the same, and what did drafting gain?"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TextIO

from headstart.cli.opening import OpenedModel
from headstart.cli.results import draft_account
from headstart.cli.writing import write_answer
from headstart.engine import token_hash
from headstart.records import Completion, SamplingParams


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Runs of one request, plain and drafted in turn.

    Attributes:
        plain: the plain runs.
        draft: the drafted runs, as many.
    """

    plain: tuple[Completion, ...]
    draft: tuple[Completion, ...]

    @property
    def identical(self) -> bool:
        """Whether all runs, of both kinds, wrote the same tokens."""
        return len({run.token_ids for run in self.plain + self.draft}) == 1

    @property
    def speedup(self) -> float | None:
        """Drafted speed over plain speed, the median over pairs; `None` if a text was too short to time."""
        pairs = [(plain.tokens_per_s, draft.tokens_per_s) for plain, draft in zip(self.plain, self.draft, strict=True)]
        if not all(plain and draft for plain, draft in pairs):
            return None
        return statistics.median(draft / plain for plain, draft in pairs)

    def document(self) -> dict[str, object]:
        """All figures, for JSON."""
        last = self.draft[-1]
        return {
            "identical": self.identical,
            "speedup": self.speedup,
            "mean_acceptance_length": last.mean_acceptance_length,
            "prompt_tokens": last.prompt_tokens,
            "finish_reason": last.finish_reason,
            "plain": _side(self.plain),
            "draft": {**_side(self.draft), **draft_account(last)},
        }

    def verdict(self) -> str:
        """The same for people, in two lines."""
        last = self.draft[-1]
        gain = "" if self.speedup is None else f", {self.speedup:.2f} times as fast"
        speeds = (
            f"plain {_median_speed(self.plain):.1f} tokens/s, {last.drafter} {_median_speed(self.draft):.1f} tokens/s"
            f"{gain} (medians of {len(self.plain)} pairs of runs), {last.mean_acceptance_length:.2f} tokens a round"
        )
        hashes = sorted({token_hash(run.token_ids)[:16] for run in self.plain + self.draft})
        if self.identical:
            return f"{speeds}\nidentical: all runs wrote the same {len(last.token_ids)} tokens, hash {hashes[0]}"
        return (
            f"{speeds}\nNOT IDENTICAL: the runs wrote different tokens, hashes {', '.join(hashes)}. Please report this."
        )


def compare(
    opened: OpenedModel, prompt: str, max_tokens: int, repeats: int, stream: TextIO | None
) -> Comparison | None:
    """Write a text several times, plainly and with drafts in turn, so that a slow moment hits both.

    Each run has an engine of its own: none finds the cache, or what was learnt about drafts, from the one before.

    Args:
        opened: the model.
        prompt: a message to it, or plain text if it has no chat template.
        max_tokens: to write.
        repeats: pairs of runs, at least 1.
        stream: where the texts of the first pair are shown, if anywhere.

    Returns:
        `None` if the user ended it early.
    """
    runs: dict[bool, list[Completion]] = {False: [], True: []}
    for number in range(repeats):
        for drafts in (False, True):
            shown = stream if number == 0 else None
            if shown is not None:
                shown.write("--- with drafts\n" if drafts else "--- plainly\n")
            completion = _write(opened, prompt, max_tokens, drafts=drafts, stream=shown)
            if completion.finish_reason == "cancelled":
                return None
            runs[drafts].append(completion)
            if shown is not None:
                shown.write("\n")
    return Comparison(plain=tuple(runs[False]), draft=tuple(runs[True]))


def _write(opened: OpenedModel, prompt: str, max_tokens: int, *, drafts: bool, stream: TextIO | None) -> Completion:
    tokenizer = opened.parts.tokenizer
    if tokenizer.chat_template is None:
        tokens = tokenizer.encode(prompt)
    else:
        tokens = tokenizer.encode_chat([{"role": "user", "content": prompt}])
    params = SamplingParams(max_tokens=max_tokens)
    with opened.make_engine(drafts=drafts) as engine:
        return write_answer(engine, tokens, params, stream)


def _median_speed(runs: tuple[Completion, ...]) -> float:
    return statistics.median(run.tokens_per_s for run in runs)


def _side(runs: tuple[Completion, ...]) -> dict[str, object]:
    return {
        "tokens_per_s": _median_speed(runs),
        "tokens_per_s_of_runs": [run.tokens_per_s for run in runs],
        "token_hash": token_hash(runs[-1].token_ids),
        "num_tokens": len(runs[-1].token_ids),
    }
