"""The comparison as text: losses are printed like wins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from peer_workers import pairing

SPEEDS = {
    "plain_tokens_per_s": "plain, tokens/s",
    "prefill_tokens_per_s": f"prefill of {pairing.PREFILL_TOKENS}, tokens/s",
    "batch_tokens_per_s": f"{pairing.BATCH_REQUESTS} requests at once, tokens/s in all",
}
COLUMNS = "{:<16}{:<38}{:>10}{:>10}{:>8}  {}"


def format_report(report: Mapping[str, Any]) -> str:
    """A heading, a block for each peer, and a line for each that was not measured.

    Args:
        report: `peers`, `not_measured` and `environment`, as in the JSON document.
    """
    return "\n".join(_lines(report))


def _lines(report: Mapping[str, Any]) -> Iterator[str]:
    about = report["environment"]
    flags = " ".join(about["cpu_flags"])
    yield f"{about['cpu']} ({flags}), {about['cores']} cores, load average {about['load_average']} at the start"
    yield (
        f"Headstart {about['headstart']}, {about['model']}, {about['threads']} threads, greedy, "
        f"{pairing.NEW_TOKENS} new tokens; medians of {about['rounds']} rounds, the sides in turn"
    )
    yield ""
    yield COLUMNS.format("peer", "measure", "peer", "ours", "ratio", "min-max; above 1 Headstart is faster")
    for peer in report["peers"]:
        yield from _peer_lines(peer)
    for peer in report["not_measured"]:
        yield f"{peer['peer']}: not measured ({peer['reason']}). To set it up: {peer['setup']}"


def _peer_lines(peer: Mapping[str, Any]) -> Iterator[str]:
    yield f"{peer['peer']} ({peer['version']}; weights: {peer['weights']})"
    for name, label in SPEEDS.items():
        if name in peer:
            speed = peer[name]
            spread = f"{speed['min']:.2f}-{speed['max']:.2f}"
            yield COLUMNS.format(
                "", label, f"{speed['peer']:.1f}", f"{speed['ours']:.1f}", f"{speed['ratio']:.2f}", spread
            )
    if "plain_tokens_per_s" in peer:
        same = peer["plain_tokens_per_s"]["same_first_tokens"]
        yield COLUMNS.format("", f"same tokens at first, of {pairing.NEW_TOKENS}", "", f"{same:.0f}", "", "")
    if "cost" in peer:
        yield from _cost_lines(peer["cost"])


def _cost_lines(cost: Mapping[str, Any]) -> Iterator[str]:
    """One line for each number of rows, milliseconds with C(R) / C(1) behind."""
    for rows, theirs in cost["peer"].items():
        ours = cost["ours"][rows]
        label = f"pass over {rows} after {pairing.COST_CONTEXT}, ms"
        relative = f"C/C(1): peer {theirs['relative']:.2f}, ours {ours['relative']:.2f}"
        ratio = theirs["ms"] / ours["ms"]
        yield COLUMNS.format("", label, f"{theirs['ms']:.1f}", f"{ours['ms']:.1f}", f"{ratio:.2f}", relative)
