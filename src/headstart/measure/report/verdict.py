"""The run in one sentence: whether to draft, for which traffic, up to how many requests at once, what would change it.

The rules, in this order:

1. A side that changed a text is out, and the sentence says so; if all did, the verdict is "broken". On servers, whose
   rounding may depend on what shares a pass, other texts are told and do not decide.
2. Of the others that one is judged whose speed-up over all cells is highest (the geometric mean of the medians); one
   that pays in the first cell goes before one that does not.
3. It *pays* in a cell if every repeat was faster than plain decoding and the median is so by `MARGIN`.
4. It is kept if it pays in the first cell: the fewest requests at once, the shortest context.
5. If it does not, but does for some categories there by twice the margin, it is kept for these alone: of many
   categories, one or the other looks good by chance.
6. If not even that, it is dropped; unless repeats disagree by more than twice the margin: then the run does not say.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from headstart.measure.report.figures import CellFigures, SideFigures
from headstart.measure.report.prediction import Prediction
from headstart.measure.report.spread import Spread

MARGIN = 0.03

# Fewer guesses a round than that: the policy has all but switched drafting off.
_HARDLY = 0.05

Decision = Literal["keep", "partly", "drop", "unsure", "broken", "unknown"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What the figures say.

    Attributes:
        decision: see the rules; "unknown" if nothing can be compared.
        side: of which it is said.
        broken_sides: all that changed a text and must not.
        categories: for which it is to be kept, by the first cell.
        other_categories: for which it is not.
        up_to_concurrency: requests at once up to which it pays, at the shortest context; `None` if it never does, or
            in an open loop.
        up_to_context: tokens up to which it pays with the fewest requests, likewise.
        sentence: all of this in words.
        would_change: what would change it.
    """

    decision: Decision
    side: str | None = None
    broken_sides: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    other_categories: tuple[str, ...] = ()
    up_to_concurrency: int | None = None
    up_to_context: int | None = None
    sentence: str
    would_change: str = ""


def judge(cells: Sequence[CellFigures], *, is_exact: bool = True) -> Verdict:
    """Judge a run.

    Args:
        cells: in any order.
        is_exact: whether drafting must not change a text; it may where near ties fall either way.
    """
    names = list(dict.fromkeys(side.side for cell in cells for side in cell.sides if side.drafts and side.speedup))
    if not names:
        return Verdict(
            decision="unknown",
            sentence="Nothing can be said yet: no side that drafts has done what the plain one has.",
            would_change="Let the run go on: the same command takes it up.",
        )
    broken = tuple(name for name in names if is_exact and _changed(cells, name))
    sound = [name for name in names if name not in broken]
    if not sound:
        return _broken(cells, broken)
    name = max(sound, key=lambda name: (_pays_in(_ordered(cells, name)[0], name), _overall(cells, name)))
    ordered = _ordered(cells, name)
    first = ordered[0]
    figures = first.side(name)
    assert figures is not None
    assert figures.speedup is not None
    decision: Decision
    for_it: tuple[str, ...] = ()
    if pays(figures.speedup):
        decision = "keep"
        for_it = _categories_that_pay(figures, MARGIN)
    elif some_gain := _categories_that_pay(figures, 2 * MARGIN):
        decision = "partly"
        for_it = some_gain
    elif figures.speedup.lowest < 1 < figures.speedup.highest and _width(figures.speedup) > 2 * MARGIN:
        decision = "unsure"
    else:
        decision = "drop"
    others = tuple(category for category in figures.speedup_by_category if category not in for_it)
    up_to = _up_to_concurrency(ordered, name)
    up_to_context = _up_to_context(ordered, name)
    limits = _limits(ordered, up_to, up_to_context)
    return Verdict(
        decision=decision,
        side=name,
        broken_sides=broken,
        categories=for_it,
        other_categories=others,
        up_to_concurrency=up_to,
        up_to_context=up_to_context,
        sentence=_sentence(decision, first, figures, for_it, others, limits) + _warning(cells, broken),
        would_change=_would_change(decision, ordered, name) + _told_changes(cells, name),
    )


def _categories_that_pay(figures: SideFigures, margin: float) -> tuple[str, ...]:
    return tuple(category for category, spread in figures.speedup_by_category.items() if pays(spread, margin))


def _told_changes(cells: Sequence[CellFigures], name: str) -> str:
    changed = _changed(cells, name)
    if not changed:
        return ""
    compared = _of_compared(cells, name)
    return f" It changed {compared}; headstart check tells near ties, and with a temperature other draws, from faults."


def pays(speedup: Spread, margin: float = MARGIN) -> bool:
    """Whether a speed-up is one in every repeat, and by a margin in the median."""
    return speedup.lowest > 1 and speedup.median >= 1 + margin


def _ordered(cells: Sequence[CellFigures], name: str) -> list[CellFigures]:
    """Cells in which a side can be compared, the lightest first."""
    found = (cell for cell in cells if (figures := cell.side(name)) is not None and figures.speedup is not None)
    return sorted(found, key=lambda cell: cell.weight)


def _width(speedup: Spread) -> float:
    return speedup.highest - speedup.lowest


def _changed(cells: Sequence[CellFigures], name: str) -> list[str]:
    return [text for cell in cells if (side := cell.side(name)) is not None for text in side.different]


def _overall(cells: Sequence[CellFigures], name: str) -> float:
    logs = [math.log(side.speedup.median) for cell in cells if (side := cell.side(name)) is not None and side.speedup]
    return sum(logs) / len(logs)


def _broken(cells: Sequence[CellFigures], names: tuple[str, ...]) -> Verdict:
    return Verdict(
        decision="broken",
        side=names[0] if len(names) == 1 else None,
        broken_sides=names,
        sentence=f"Do not use it as it is: {_all_changes(cells, names)}, so its speed is that of another output.",
        would_change="headstart check tells near ties, which are harmless, from faults.",
    )


def _warning(cells: Sequence[CellFigures], broken: Sequence[str]) -> str:
    if not broken:
        return ""
    return f" Do not use {_listed(broken)}: {_all_changes(cells, broken)}; headstart check looks for the fault."


def _all_changes(cells: Sequence[CellFigures], names: Sequence[str]) -> str:
    return _listed([f"{name} changed {_of_compared(cells, name)}" for name in names])


def _of_compared(cells: Sequence[CellFigures], name: str) -> str:
    compared = sum(side.num_compared for cell in cells if (side := cell.side(name)) is not None)
    return f"{len(_changed(cells, name))} of {compared} texts"


def _up_to_concurrency(ordered: Sequence[CellFigures], name: str) -> int | None:
    first = ordered[0]
    found = None
    for cell in ordered:
        if cell.context != first.context or cell.concurrency is None:
            continue
        if not _pays_in(cell, name):
            break
        found = cell.concurrency
    return found


def _up_to_context(ordered: Sequence[CellFigures], name: str) -> int | None:
    first = ordered[0]
    found = None
    for cell in ordered:
        if cell.load != first.load or cell.context is None:
            continue
        if not _pays_in(cell, name):
            break
        found = cell.context
    return found


def _pays_in(cell: CellFigures, name: str) -> bool:
    side = cell.side(name)
    return side is not None and side.speedup is not None and pays(side.speedup)


def _sentence(
    decision: Decision,
    cell: CellFigures,
    figures: SideFigures,
    for_it: Sequence[str],
    others: Sequence[str],
    limits: str,
) -> str:
    assert figures.speedup is not None
    name, speedup = figures.side, figures.speedup
    # one repeat has no spread, which is not a spread of nought
    spread = "a single repeat" if _width(speedup) == 0 else f"{speedup.lowest:.2f} to {speedup.highest:.2f}"
    speed = f"{speedup.median:.2f} times plain speed ({spread}) with {cell.key}"
    if decision == "keep":
        if others and for_it:
            traffic = f", for {_listed(for_it)}, but not for {_listed(others)}"
        elif others:
            traffic = ", though for no kind of traffic alone beyond doubt"
        else:
            traffic = ", for all traffic that was measured" if len(for_it) > 1 else ""
        return f"Keep {name}: {speed}{traffic}{limits}."
    if decision == "partly":
        return (
            f"Keep {name} for {_listed(for_it)} alone: over all traffic it makes {speed}, and no gain beyond doubt for "
            f"{_listed(others)}."
        )
    if decision == "unsure":
        return f"The run does not say whether to keep {name}: {speed}, and the repeats disagree."
    return f"Do without {name}: {speed}, and no kind of traffic gains beyond doubt."


def _limits(ordered: Sequence[CellFigures], up_to: int | None, up_to_context: int | None) -> str:
    """How far it pays, said only where something beyond was measured or nothing was."""
    first, parts, unknown = ordered[0], [], ""
    concurrencies = [
        cell.concurrency for cell in ordered if cell.context == first.context and cell.concurrency is not None
    ]
    if up_to is not None:
        beyond = [each for each in concurrencies if each > up_to]
        if beyond:
            parts.append(f"up to {up_to} at once and not with {min(beyond)}")
        else:
            unknown = f"; more than {up_to} at once was not measured"
    contexts = [cell.context for cell in ordered if cell.load == first.load and cell.context is not None]
    too_long = [context for context in contexts if up_to_context is not None and context > up_to_context]
    if too_long:
        parts.append(f"up to a context of {up_to_context} tokens and not with {min(too_long)}")
    return "".join(f", {part}" for part in parts) + unknown


def _would_change(decision: Decision, ordered: Sequence[CellFigures], name: str) -> str:
    if decision == "unsure":
        return "More repeats, or a machine with nothing else to do, would tell."
    fails = next((cell for cell in ordered if not _pays_in(cell, name)), None)
    told = fails or ordered[0]
    side = told.side(name)
    assert side is not None
    if side.prediction is None:
        return "More guesses that are right, or fewer requests at once, would change it; headstart plan tells how many."
    prediction = side.prediction
    if side.acceptance is not None and side.acceptance.drafted < _HARDLY * side.acceptance.rounds:
        return (
            f"With {told.key}, hardly anything was drafted, as the engine saw no gain in it: guesses that are right "
            "more often would change that."
        )
    tokens = prediction.mean_acceptance_length
    needed = (1 + MARGIN) * tokens / prediction.measured  # by what decoding took
    if fails is None:
        return (
            f"It would stop to pay below {needed:.2f} tokens a round, where it gives {tokens:.2f} now, or if more "
            "requests at once made checking dearer."
        )
    if tokens >= needed:
        return (
            f"With {told.key}, decoding alone has {prediction.measured:.2f} times plain speed; reading prompts, or "
            "single repeats, took it back: longer answers or more repeats would change that."
        )
    return (
        f"With {told.key}, a round must give more than {needed:.2f} tokens to pay and gives {tokens:.2f}; "
        f"{_dearest(prediction)} or more guesses that are right would change that."
    )


def _dearest(prediction: Prediction) -> str:
    checking = prediction.check_cost - 1
    if prediction.draft_cost > checking:
        return f"cheaper drafting (it takes {prediction.draft_cost:.2f} of a plain pass)"
    return f"cheaper checking (it adds {checking:.2f} of a plain pass)"


def _listed(names: Sequence[str]) -> str:
    return " and ".join((", ".join(names[:-1]), names[-1])) if len(names) > 1 else "".join(names)
