"""How fast texts are written, the sides taking turns, and what a round of drafting costs."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from head_figures.acceptance import Advance, Identity, name_of_text
from head_figures.workload import Prompt
from headstart import Engine, SamplingParams
from headstart.measure.report import Spread
from peer_workers.pairing import Side

PLAIN, AUTO, PEER = "plain", "auto", "llama.cpp"


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """One piece of work, done once by each side.

    Attributes:
        round: in which all pieces are done once.
        name: of the work.
        num_tokens: tokens that were written in the time.
        seconds: by side.
    """

    round: int
    name: str
    num_tokens: int
    seconds: dict[str, float]


@dataclass(slots=True)
class Race:
    """Turns of the sides, and what comes of them.

    A round's ratio is of sums over all its work, so that texts count by their length. A round that was broken off
    does not count, unless it is the only one.

    Attributes:
        turns: in the order in which they were taken.
    """

    turns: list[Turn] = field(default_factory=list)

    def ratio(self, slower: str) -> Spread | None:
        """Speed of `AUTO` over another side's, over the rounds; `None` if that side took no time."""
        return _spread([(self._seconds(turns, slower), self._seconds(turns, AUTO)) for turns in self._rounds()])

    def tokens_per_s(self, side: str) -> Spread | None:
        """Speed of a side, over the rounds."""
        return _spread(
            [(sum(turn.num_tokens for turn in turns), self._seconds(turns, side)) for turns in self._rounds()]
        )

    def ratios_by_name(self, slower: str) -> dict[str, float]:
        """The same ratio for each piece of work, the median of its turns."""
        ratios: dict[str, list[float]] = {}
        for turn in self.turns:
            if turn.seconds.get(slower) and turn.seconds[AUTO]:
                ratios.setdefault(turn.name, []).append(turn.seconds[slower] / turn.seconds[AUTO])
        return {name: statistics.median(values) for name, values in ratios.items()}

    def _rounds(self) -> list[list[Turn]]:
        sizes = Counter(turn.round for turn in self.turns)
        whole = max(sizes.values(), default=0)
        return [[turn for turn in self.turns if turn.round == number] for number in sizes if sizes[number] == whole]

    @staticmethod
    def _seconds(turns: Sequence[Turn], side: str) -> float:
        return sum(turn.seconds.get(side, 0.0) for turn in turns)


@dataclass(slots=True)
class DraftCost:
    """What drafting costs for each prompt, in units of a plain pass over one row.

    Attributes:
        drafting: time to draft for a round, as a share of that pass.
        passes: time of a pass that checks a whole tree, likewise.
        draft_ms: time to draft for a round.
        plain_ms: time of the plain pass.
    """

    drafting: list[float] = field(default_factory=list)
    passes: list[float] = field(default_factory=list)
    draft_ms: list[float] = field(default_factory=list)
    plain_ms: list[float] = field(default_factory=list)


@dataclass(kw_only=True, slots=True, eq=False)
class Sides:
    """Who takes turns, and how.

    Attributes:
        plain: decodes plainly.
        auto: drafts where it pays.
        identity: takes in what was compared of the two.
        rounds: times that everything is done.
        peer: another engine, paused but in its turns.
    """

    plain: Engine
    auto: Engine
    identity: Identity
    rounds: int
    peer: Side | None = None


def race_singly(
    sides: Sides, prompts: Sequence[Prompt], params: Sequence[SamplingParams], race: Race, advance: Advance
) -> None:
    """Write on from prompts one at a time; timed is what comes after the prompt.

    The peer writes as many tokens as the plain engine, whatever they are. Own engines take turns in going first.

    Args:
        sides: who takes turns.
        prompts: that are written on.
        params: one for each.
        race: takes in the turns.
        advance: called as each text is done.
    """
    for number in range(sides.rounds):
        for place, (prompt, own) in enumerate(zip(prompts, params, strict=True)):
            written = {name: engine.generate(prompt.token_ids, own) for name, engine in _in_turn(sides, number + place)}
            name = name_of_text(prompt, own)
            sides.identity.compare(f"{name}, auto", written[PLAIN].token_ids, written[AUTO].token_ids)
            num_tokens = len(written[PLAIN].token_ids)
            num_timed, seconds = 0, {}
            # a text that is there after one round tells no speed
            if all(completion.tokens_per_s for completion in written.values()):
                num_timed = num_tokens - 1
                seconds = {name: num_timed / completion.tokens_per_s for name, completion in written.items()}
                if sides.peer is not None:
                    seconds[PEER] = _peer_seconds(sides.peer, prompt, num_tokens)
            race.turns.append(Turn(round=number, name=prompt.id, num_tokens=num_timed, seconds=seconds))
            advance()


def race_together(
    sides: Sides, prompts: Sequence[Prompt], params: SamplingParams, race: Race, advance: Advance
) -> None:
    """Write on from all prompts at once, without the peer; the reading of the prompts counts.

    The sides take turns in going first.
    """
    token_ids = [prompt.token_ids for prompt in prompts]
    name = f"{len(prompts)} at once"
    for number in range(sides.rounds):
        written, seconds = {}, {}
        for side, engine in _in_turn(sides, number):
            written[side], seconds[side] = _timed(engine, token_ids, params)
        for prompt, plain_text, text in zip(prompts, written[PLAIN], written[AUTO], strict=True):
            sides.identity.compare(f"{prompt.id}, auto, {name}", plain_text, text)
        num_tokens = sum(len(text) for text in written[PLAIN])
        race.turns.append(Turn(round=number, name=name, num_tokens=num_tokens, seconds=seconds))
        advance()


def measure_draft_cost(
    prompts: Sequence[Prompt], plain: Engine, heads: Engine, params: SamplingParams, cost: DraftCost, advance: Advance
) -> None:
    """Step plainly and with heads in every round, in turn, and compare medians of the engine's own times.

    The reading of a prompt, by trunk or heads, is no part of a usual round, and medians leave it out.
    """
    for prompt in prompts:
        steps = _steps(plain, prompt, params)
        rounds = [step for step in _steps(heads, prompt, params) if step.num_drafted]
        plain_steps = [step.trunk_s for step in steps if step.num_rows == 1]
        if plain_steps and rounds:
            plain_s = statistics.median(plain_steps)
            draft_s = statistics.median(step.draft_s for step in rounds)
            cost.drafting.append(draft_s / plain_s)
            cost.passes.append(statistics.median(step.trunk_s for step in rounds) / plain_s)
            cost.draft_ms.append(draft_s * 1e3)
            cost.plain_ms.append(plain_s * 1e3)
        advance()


def _in_turn(sides: Sides, number: int) -> list[tuple[str, Engine]]:
    """The own engines by name, in one order or the other."""
    engines = [(PLAIN, sides.plain), (AUTO, sides.auto)]
    return engines[::-1] if number % 2 else engines


def _spread(fractions: Sequence[tuple[float, float]]) -> Spread | None:
    """Of fractions; `None` if there are none, or a part of one is 0."""
    if not fractions or not all(above and below for above, below in fractions):
        return None
    return Spread.of([above / below for above, below in fractions])


def _peer_seconds(peer: Side, prompt: Prompt, num_tokens: int) -> float:
    peer.resume()
    try:
        answer = peer.ask("generate", prompt_ids=list(prompt.token_ids), max_tokens=num_tokens)
    finally:
        peer.pause()
    return float(answer["generation_s"])


def _timed(
    engine: Engine, prompts: Sequence[Sequence[int]], params: SamplingParams
) -> tuple[list[tuple[int, ...]], float]:
    """All texts, and the seconds they took together."""
    started = time.perf_counter()
    completions = engine.generate_many(prompts, params)
    return [completion.token_ids for completion in completions], time.perf_counter() - started


@dataclass(frozen=True, kw_only=True, slots=True)
class _Step:
    num_rows: int
    num_drafted: int
    trunk_s: float
    draft_s: float


def _steps(engine: Engine, prompt: Prompt, params: SamplingParams) -> list[_Step]:
    sequence_id = engine.submit(prompt.token_ids, params)
    steps = []
    before = _account(engine)
    while not engine.idle:
        engine.step()
        after = _account(engine)
        steps.append(
            _Step(
                num_rows=int(after[0] - before[0]),
                num_drafted=int(after[1] - before[1]),
                trunk_s=after[2] - before[2],
                draft_s=after[3] - before[3],
            )
        )
        before = after
    engine.completion(sequence_id)
    return steps


def _account(engine: Engine) -> tuple[float, float, float, float]:
    now = engine.statistics
    return now.rows, now.drafted_rows, now.trunk_s, now.draft_s
