"""Checks this engine: whatever is drafted, batched, split or shared, the tokens are those of plain decoding alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

from headstart.engine import Engine, token_hash
from headstart.engine.draft_config import Policy
from headstart.errors import ConfigError
from headstart.measure.check.faults import Fault
from headstart.measure.check.findings import Finding
from headstart.records import Completion, SamplingParams
from headstart.runtime.protocol import PAGE_TOKENS

PLAIN = "none"
_MAX_LISTED = 20
# Prompts that begin alike, up to before, at and after the border of a page, and over several.
_SHARED_LENGTHS = (PAGE_TOKENS, PAGE_TOKENS + 1, 2 * PAGE_TOKENS + 1)


class MakeEngine(Protocol):
    """Makes an engine over a model that is loaded; settings are those of `Engine`."""

    def __call__(self, **settings: Any) -> Engine:
        """The engine."""


OpenSide = Callable[[str, int | None], MakeEngine]
"""Loads the model for a drafter (one of `headstart.engine.loading.DRAFT_KINDS`) and a number of threads."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineCheckConfig:
    """What is compared with plain decoding.

    Attributes:
        drafts: who guesses, as in `headstart.engine.loading.DRAFT_KINDS`.
        threads: numbers of threads; `None` is as many as the process may use.
        batches: sequences at once.
        max_tokens: of an answer.
        seed: of sampled answers.
    """

    drafts: tuple[str, ...] = (PLAIN, "lookup", "auto")
    threads: tuple[int | None, ...] = (None,)
    batches: tuple[int, ...] = (1, 4)
    max_tokens: int = 48
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("drafts", "threads", "batches"):
            if not getattr(self, name):
                raise ConfigError(f"{name} is empty: name at least one.")
        if min(self.batches) < 1 or self.max_tokens < 1:
            raise ConfigError("batches and max_tokens must be at least 1.")

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    def laws(self) -> dict[str, SamplingParams]:
        """How tokens are chosen: greedily, drawn, and drawn with all that shapes the distribution."""
        drawn = SamplingParams(max_tokens=self.max_tokens, temperature=1.0, seed=self.seed)
        shaped = replace(
            drawn, temperature=0.8, top_k=50, top_p=0.95, min_p=0.01, repetition_penalty=1.1, presence_penalty=0.2
        )
        return {"greedy": SamplingParams(max_tokens=self.max_tokens), "drawn": drawn, "drawn and shaped": shaped}

    def ways(self) -> list[Way]:
        """Ways of the engine that must not matter."""
        ways = []
        for batch in self.batches:
            ways.append(Way(batch=batch, prefill_chunk=256, share_prefixes=True, policy="always"))
            ways.append(Way(batch=batch, prefill_chunk=7, share_prefixes=False, policy="always"))
        # as in use; the costs of passes are measured for it, so once is enough
        return [*ways, Way(batch=max(self.batches), prefill_chunk=33, share_prefixes=True, policy="measured")]


@dataclass(frozen=True, kw_only=True, slots=True)
class Way:
    """How an engine runs.

    Attributes:
        batch: sequences at once.
        prefill_chunk: tokens of a pass that may go to prompts.
        share_prefixes: whether prompts that begin alike share pages.
        policy: "always" drafts wherever it can, "measured" where it pays.
    """

    batch: int
    prefill_chunk: int
    share_prefixes: bool
    policy: Policy

    def settings(self) -> dict[str, Any]:
        """Those of `Engine`."""
        return {
            "max_batch": self.batch,
            "prefill_chunk": self.prefill_chunk,
            "share_prefixes": self.share_prefixes,
            "policy": self.policy,
        }


def check_engine(
    open_side: OpenSide,
    prompts: Sequence[Sequence[int]],
    config: EngineCheckConfig,
    progress: Callable[[float], None] = lambda share: None,
) -> tuple[Finding, ...]:
    """Compare every drafter and number of threads, in every way, with plain decoding of one text at a time.

    Args:
        open_side: loads the model.
        prompts: token ids; some that begin alike are added.
        config: what is compared.
        progress: called with the share that is done.

    Returns:
        One finding for each drafter and number of threads.

    Raises:
        HeadstartError: a model cannot be loaded, or a prompt does not fit.
    """
    if not prompts or not all(prompts):
        raise ConfigError("There are no prompts, or an empty one; at least one is needed, of at least one token.")
    plain = _Plain(open_side(PLAIN, config.threads[0]), prompts, config)
    sides = [(draft, threads) for threads in config.threads for draft in config.drafts]
    findings = []
    for draft, threads in sides:
        findings.append(_check_side(open_side(draft, threads), plain, draft, threads, config))
        progress(len(findings) / len(sides))
    return tuple(findings)


class _Plain:
    """What plain decoding writes, one text at a time, nothing shared."""

    def __init__(self, make_engine: MakeEngine, prompts: Sequence[Sequence[int]], config: EngineCheckConfig) -> None:
        self.prompts = _with_shared_beginnings(prompts)
        with make_engine(max_batch=1, share_prefixes=False) as engine:
            # log-probabilities are asked for at once: a difference is to be judged after the model is gone
            self.completions = {
                name: [engine.generate(prompt, replace(law, logprobs=2)) for prompt in self.prompts]
                for name, law in config.laws().items()
            }


def _with_shared_beginnings(prompts: Sequence[Sequence[int]]) -> list[Sequence[int]]:
    """The prompts, and some that begin alike over parts of pages."""
    joined = [token for prompt in prompts for token in prompt]
    beginning = (joined * (_SHARED_LENGTHS[-1] // len(joined) + 1))[: _SHARED_LENGTHS[-1]]
    last = prompts[-1][-3:]
    return [*prompts, *([*beginning[:length], *last] for length in _SHARED_LENGTHS), [*beginning, *last]]


def _check_side(
    make_engine: MakeEngine, plain: _Plain, draft: str, threads: int | None, config: EngineCheckConfig
) -> Finding:
    """One drafter and number of threads in all ways."""
    differences: list[dict[str, Any]] = []
    num_compared = num_different = drafted = accepted = 0
    hashes: list[str] = []
    for way in config.ways():
        with make_engine(**way.settings()) as engine:
            for law_name, law in config.laws().items():
                expected = plain.completions[law_name]
                written = engine.generate_many(plain.prompts, law)
                hashes.append(token_hash([token for completion in written for token in completion.token_ids]))
                for number, (own, other) in enumerate(zip(written, expected, strict=True)):
                    num_compared += 1
                    drafted, accepted = drafted + own.drafted, accepted + own.accepted
                    if _outcome(own) != _outcome(other):
                        num_different += 1
                        differences.append(
                            {"law": law_name, "prompt": number, **asdict(way), **_difference(own, other)}
                        )
    name = f"{draft}, {'all' if threads is None else threads} threads"
    figures = {
        "draft": draft,
        "threads": threads,
        "num_compared": num_compared,
        "num_different": num_different,
        "drafted": drafted,
        "accepted": accepted,
        "token_hashes": sorted(set(hashes)),
        "differences": differences[:_MAX_LISTED],
    }
    faults = (
        (Fault(kind="tokens differ", evidence=_evidence(name, num_different, differences[0])),) if differences else ()
    )
    return Finding(test=name, figures=figures, faults=faults)


def _outcome(completion: Completion) -> tuple[object, ...]:
    return completion.token_ids, completion.text, completion.finish_reason


def _difference(own: Completion, plain: Completion) -> dict[str, Any]:
    """The first place where two texts part, and how near the two likeliest tokens are there."""
    pairs = zip(own.token_ids, plain.token_ids, strict=False)
    shorter = min(len(own.token_ids), len(plain.token_ids))
    position = next((place for place, (first, second) in enumerate(pairs) if first != second), shorter)
    top = plain.logprobs[position].top if position < len(plain.logprobs) else ()
    return {
        "position": position,
        "token": own.token_ids[position] if position < len(own.token_ids) else "end",
        "plain_token": plain.token_ids[position] if position < len(plain.token_ids) else "end",
        "margin": top[0][1] - top[1][1] if len(top) > 1 else None,
        "finish_reason": own.finish_reason,
        "plain_finish_reason": plain.finish_reason,
    }


def _evidence(name: str, num_different: int, first: dict[str, Any]) -> str:
    margin = "" if first["margin"] is None else f"; the two likeliest are {first['margin']:.3g} nats apart there"
    return (
        f"{name}: {num_different} texts are not the plain ones, first ({first['law']}, prompt {first['prompt']}) at "
        f"token {first['position']}: {first['token']} instead of {first['plain_token']}{margin}."
    )
