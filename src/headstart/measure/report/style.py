"""How the page looks. Light and dark by the reader's own setting; nothing is fetched."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark; --back: #fbfaf8; --card: #ffffff; --text: #1d2127; --soft: #5c6470; --edge: #e2e0dc;
  --good: #0f7b46; --bad: #b3261e; --even: #8a5a00; --tint: 37, 99, 235;
  --s0: #737a85; --s1: #2563eb; --s2: #c2410c; --s3: #0f7b46; --s4: #8b2fc9; --s5: #b0126f;
  --s6: #0e7490; --s7: #6b5b00; }
@media (prefers-color-scheme: dark) { :root { --back: #14171b; --card: #1c2026; --text: #e8eaed; --soft: #a0a8b3;
  --edge: #333a43; --good: #58d08e; --bad: #ff8a80; --even: #f0b84b; --tint: 96, 165, 250;
  --s0: #9aa3af; --s1: #6ea8ff; --s2: #ff9a5c; --s3: #58d08e; --s4: #cf9bff; --s5: #ff86c8;
  --s6: #4fd1e5; --s7: #d9c65a; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--text);
  font: 16px/1.55 system-ui, "Segoe UI", Roboto, sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 20px 16px 64px; }
h1 { font-size: 1.35rem; margin: 8px 0 16px; } h2 { font-size: 1.1rem; margin: 40px 0 8px; }
h3 { font-size: 1rem; margin: 0 0 2px; } p { margin: 6px 0; }
.soft, figcaption { color: var(--soft); font-size: .9rem; }
.card, figure, details { background: var(--card); border: 1px solid var(--edge); border-radius: 10px; }
.verdict { padding: 16px 18px; border-left: 6px solid var(--even); }
.verdict p:first-of-type { font-size: 1.15rem; font-weight: 600; }
.verdict.keep { border-left-color: var(--good); } .verdict.drop, .verdict.broken { border-left-color: var(--bad); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin: 12px 0; }
.tile { padding: 10px 14px; } .tile b { display: block; font-size: 1.5rem; line-height: 1.25; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 330px), 1fr)); gap: 14px; }
figure { margin: 0; padding: 12px 14px; }
figure > svg { display: block; width: 100%; max-width: 520px; height: auto; margin: 4px auto; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 16px; margin: 8px 0; font-size: .92rem; }
.legend span { display: inline-flex; align-items: center; gap: 6px; } .key { width: 12px; height: 12px; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: 5px 10px; text-align: right; border-bottom: 1px solid var(--edge); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } th { color: var(--soft); font-weight: 600; }
details { padding: 8px 14px; margin: 10px 0; } summary { cursor: pointer; font-weight: 600; }
.text { white-space: pre-wrap; overflow-wrap: anywhere; font: .92rem/1.7 ui-monospace, "SF Mono", Consolas, monospace; }
.text span { border-radius: 3px; }
dl { display: grid; grid-template-columns: minmax(110px, auto) 1fr; gap: 2px 14px; font-size: .9rem; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
.grid { stroke: var(--edge); } .level { stroke: var(--soft); stroke-dasharray: 5 4; }
.line { fill: none; stroke-width: 2; } .dashed { stroke-dasharray: 2 4; } .whisker { stroke-width: 2.5; opacity: .45; }
.mark { stroke: var(--card); stroke-width: 1; }
svg text { fill: var(--soft); font: 12px system-ui, sans-serif; } svg text.row { fill: var(--text); }
"""

NUM_SERIES = 8
"""Colours that there are; more series begin again."""

NUM_DEPTHS = 8
"""Depths with a tint of their own; deeper ones have the last."""


def stylesheet() -> str:
    """All rules."""
    series = "".join(
        f".line.s{number}, .whisker.s{number} {{ stroke: var(--s{number % NUM_SERIES}); }} "
        f".mark.s{number} {{ fill: var(--s{number % NUM_SERIES}); }}\n"
        for number in range(3 * NUM_SERIES)
    )
    depths = "".join(
        f".d{depth} {{ background: rgba(var(--tint), {0.1 + 0.07 * depth:.2f}); }}\n"
        for depth in range(1, NUM_DEPTHS + 1)
    )
    return STYLE + series + depths
