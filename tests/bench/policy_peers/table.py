"""The table of all makers: medians, percentiles, and each peer's ratio to ours. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cli.bench.report import percentile
from tests.bench.policy_peers.measure import Found

OURS = "nodewright"


@dataclass(frozen=True, slots=True)
class Line:
    """A row: `share` of the values of `key`, times `factor`, in `unit`; `share` -1: the least of them."""

    shown: str
    key: str
    unit: str
    factor: float = 1.0
    share: float | None = None
    inverted: bool = False  # the unit is a rate, the values are seconds


_CHANGES = {
    "policy allows": "policy changed: what it allows now passes",
    "policy forbids": "policy changed: what it no longer allows is refused",
    "label allows": "label of a pod changed: what that allows passes",
    "label forbids": "label of a pod changed: what that forbids is refused",
}
_LEAST = -1.0


def lines(sizes: Sequence[int]) -> list[Line]:
    made = [Line("start of the process to enforced", "enforced", "s")]
    for key, shown in _CHANGES.items():
        made += [Line(f"{shown}, {name}", key, "ms", 1000, at) for name, at in (("p50", 0.5), ("p99", 0.99))]
    made += [
        Line("memory of the process (RSS)", "RSS", "MiB"),
        Line("the same, highest", "RSS highest", "MiB"),
        Line("memory charged to its cgroup, highest", "group", "MiB"),
        Line("rules in the kernel", "kernel", "MiB"),
    ]
    for size in sizes:
        on = f"{size:,} policies on the pod"
        made += [
            Line(f"TCP connect, {on}", f"connect, {size}", "µs", 1e6, _LEAST),
            Line(f"TCP connect, the slowest of 100, {on}", f"connect p99, {size}", "µs", 1e6, _LEAST),
            Line(f"first UDP request, {on}", f"first request, {size}", "µs", 1e6, _LEAST),
            Line(f"UDP requests, one flow, {on}", f"request, {size}", "thousand/s", 1e-3, _LEAST, inverted=True),
            Line(f"TCP stream, {on}", f"second, {size}", "Gbit/s", 8e-9, _LEAST, inverted=True),
        ]
    return made


def value(line: Line, found: Found) -> float | None:
    """None where it was not measured."""
    if line.share is None:
        single = found.values.get(line.key)
        return None if single is None else single * line.factor
    many = found.many.get(line.key)
    if not many:
        return None
    one = min(many) if line.share == _LEAST else percentile(many, line.share)
    return line.factor / one if line.inverted else one * line.factor


def markdown(by_maker: Mapping[str, Found], sizes: Sequence[int]) -> str:
    """Of each peer its value, and in parentheses ours divided by it."""
    text = [f"| | {' | '.join(by_maker)} |", "|" + " --- |" * (len(by_maker) + 1)]
    for line in lines(sizes):
        ours = value(line, by_maker[OURS]) if OURS in by_maker else None
        cells = []
        for maker, found in by_maker.items():
            theirs = value(line, found)
            shown = "-" if theirs is None else f"{_number(theirs)} {line.unit}"
            ratio = f" ({ours / theirs:.2g}x)" if maker != OURS and theirs and ours is not None else ""
            cells.append(shown + ratio)
        if set(cells) != {"-"}:
            text.append(f"| {line.shown} | {' | '.join(cells)} |")
    return "\n".join(text)


def _number(one: float) -> str:
    return f"{one:,.0f}" if one >= 1000 else f"{one:.3g}"


def counts(by_maker: Mapping[str, Found]) -> str:
    """How many changes stand behind the percentiles."""
    parts = [f"{maker}: {key} {len(found.many[key])}" for maker, found in by_maker.items() for key in _CHANGES]
    return ", ".join(parts)
