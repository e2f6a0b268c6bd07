"""What was measured, as one document and as a table: losses are printed like wins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

from head_figures.acceptance import Acceptance, Identity
from head_figures.speed import AUTO, PEER, PLAIN, DraftCost, Race
from headstart import Engine
from headstart.decoding.statistics import AcceptanceStatistics
from headstart.measure.report import Spread


@dataclass(slots=True, eq=False)
class Figures:
    """All that was measured so far.

    Attributes:
        greedy, sampled: acceptance of heads alone.
        speed: `auto` against plain and the peer, one text at a time.
        creative: `auto` against plain, on creative texts.
        batch: `auto` against plain, many texts at once.
        auto: rounds of `auto` in `speed`, and of the few tokens of its warming up.
        cost: of drafting with heads alone.
        identity: of drafted and plain texts, in all of these.
        drafting: engines that drafted.
    """

    greedy: Acceptance = field(default_factory=Acceptance)
    sampled: Acceptance = field(default_factory=Acceptance)
    speed: Race = field(default_factory=Race)
    creative: Race = field(default_factory=Race)
    batch: Race = field(default_factory=Race)
    auto: AcceptanceStatistics = field(default_factory=AcceptanceStatistics)
    cost: DraftCost = field(default_factory=DraftCost)
    identity: Identity = field(default_factory=Identity)
    drafting: list[Engine] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """Every figure by name; `None` for what was not measured. Of ratios the medians, with their spreads beside."""
        counts = self.greedy.over_all
        spreads = {
            "draft_cost": _spread_of(self.cost.drafting),
            "pass_cost": _spread_of(self.cost.passes),
            "speedup_over_plain": self.speed.ratio(PLAIN),
            "speedup_over_llama_cpp": self.speed.ratio(PEER),
            "batch_over_plain": self.batch.ratio(PLAIN),
            "creative_over_plain": self.creative.ratio(PLAIN),
            "draft_ms": _spread_of(self.cost.draft_ms),
            "plain_pass_ms": _spread_of(self.cost.plain_ms),
            "plain_tokens_per_s": self.speed.tokens_per_s(PLAIN),
            "auto_tokens_per_s": self.speed.tokens_per_s(AUTO),
            "llama_cpp_tokens_per_s": self.speed.tokens_per_s(PEER),
        }
        return {
            "tau": self.greedy.tau,
            "tau_by_category": self.greedy.tau_by_category(),
            "conditional_acceptance": counts.conditional_acceptance,
            "survival": counts.survival,
            "share_of_rounds_by_length": self.greedy.share_of_rounds_by_length(),
            "sampled_tau": self.sampled.tau,
            "sampled_tau_by_category": self.sampled.tau_by_category(),
            "sampled_conditional_acceptance": self.sampled.over_all.conditional_acceptance,
            **{name: None if spread is None else spread.median for name, spread in spreads.items()},
            "auto_tau": self.auto.mean_acceptance_length if self.auto.rounds else None,
            "auto_accepted_by_drafter": dict(self.auto.accepted_by_drafter),
            "repetition": self.greedy.distinct_share(),
            "sampled_repetition": self.sampled.distinct_share(),
            "identical": self.identity.holds,
            "num_compared": self.identity.num_compared,
            "different": self.identity.different,
            "drafter_faults": sum(engine.statistics.drafter_faults for engine in self.drafting),
            "spreads": {name: None if spread is None else asdict(spread) for name, spread in spreads.items()},
            "by_category": self.greedy.by_category(),
            "speedup_by_prompt": self.speed.ratios_by_name(PLAIN),
            "creative_by_prompt": self.creative.ratios_by_name(PLAIN),
        }


def print_table(document: Mapping[str, Any], console: Console) -> None:
    """Print the figures that were measured, and what to think of them."""
    settings = document["settings"]
    table = Table(
        "figure", "value", title=f"{settings['heads']['name']} on {settings['model']['name']}, "
        f"{settings['instruction_set']}, {settings['threads']} threads",
    )  # fmt: skip
    for name, value in _rows(document):
        table.add_row(name, value)
    console.print(table)
    if document["different"]:
        names = "; ".join(document["different"][:10])
        console.print(f"NOT IDENTICAL to plain decoding: {len(document['different'])} texts ({names}). Please report.")
    if document["drafter_faults"]:
        console.print(f"Drafters failed {document['drafter_faults']} times; what they missed counts as rejected.")
    if document["ended_early"] is not None:
        console.print(f"Ended early ({document['ended_early']}): these are the figures until then.")


def _rows(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    spreads = {name: "-" if spread is None else str(Spread(**spread)) for name, spread in document["spreads"].items()}
    return [
        ("mean acceptance length, heads alone, greedy", _number(document["tau"])),
        *((f"  {category}", _number(tau)) for category, tau in document["tau_by_category"].items()),
        ("conditional acceptance by depth", _numbers(document["conditional_acceptance"])),
        ("survival by depth", _numbers(document["survival"])),
        ("share of rounds of length 1, 2, ...", _numbers([*document["share_of_rounds_by_length"].values()])),
        ("mean acceptance length, sampled, coupled", _number(document["sampled_tau"])),
        ("distinct runs of 8 tokens, greedy", _number(document["repetition"])),
        ("distinct runs of 8 tokens, sampled", _number(document["sampled_repetition"])),
        ("drafting a round / plain pass (c)", spreads["draft_cost"]),
        ("checking a round / plain pass (v)", spreads["pass_cost"]),
        ("drafting a round, ms", spreads["draft_ms"]),
        ("plain pass, ms", spreads["plain_pass_ms"]),
        ("auto / plain", spreads["speedup_over_plain"]),
        ("auto / llama.cpp", spreads["speedup_over_llama_cpp"]),
        ("auto / plain, many at once", spreads["batch_over_plain"]),
        ("auto / plain, creative texts", spreads["creative_over_plain"]),
        ("auto, tokens/s", spreads["auto_tokens_per_s"]),
        ("plain, tokens/s", spreads["plain_tokens_per_s"]),
        ("llama.cpp, tokens/s", spreads["llama_cpp_tokens_per_s"]),
        ("mean acceptance length, auto", _number(document["auto_tau"])),
        ("texts equal to plain ones", f"{document['num_compared'] - len(document['different'])} of "
         f"{document['num_compared']}"),
    ]  # fmt: skip


def _spread_of(values: list[float]) -> Spread | None:
    return Spread.of(values) if values else None


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _numbers(values: Sequence[float]) -> str:
    return " ".join(f"{value:.3f}" for value in values) or "-"
