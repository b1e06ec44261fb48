"""Figures of `bench services`: kept as JSON beside the docs, shown as a table, with the targets that they are held to.

A run measures a part (some sizes, some modes); its figures take the place of older ones of the same key, so the
table is always whole, and each row says when and at which commit it was taken.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

UNITS = {
    "cold sync": "s",
    "start to synced": "s",
    "RSS": "MiB",
    "change p50": "s",
    "change p99": "s",
    "churn CPU": "% of a core",
    "churn lag p50": "s",
    "churn lag max": "s",
    "churn rate": "changes/s",
    "churn RSS": "MiB",
    "first packet p50": "µs",
    "first packet p99": "µs",
    "throughput": "Gbit/s",
}
_MORE_IS_BETTER = frozenset({"throughput", "churn rate"})
# (mode, Services, endpoints, figure) -> highest ratio to upstream, highest value; None: no such limit.
TARGETS: dict[tuple[str, int, int, str], tuple[float | None, float | None]] = {
    ("iptables", 1000, 2, "cold sync"): (1.0, None),
    ("iptables", 5000, 2, "cold sync"): (0.25, None),
    ("iptables", 10000, 2, "cold sync"): (0.05, None),
    ("iptables", 10000, 2, "change p50"): (0.5, None),
    ("nftables", 5000, 2, "cold sync"): (0.25, None),
    ("nftables", 10000, 2, "cold sync"): (0.12, 1.3),
    ("nftables", 30000, 2, "cold sync"): (None, 5.0),
    ("nftables", 5000, 50, "cold sync"): (None, 10.0),
    ("nftables", 10000, 2, "change p50"): (0.12, 0.03),
    ("nftables", 10000, 2, "change p99"): (None, 0.1),
    **{(mode, 10000, 2, "churn CPU"): (0.3, None) for mode in ("iptables", "nftables")},
    **{(mode, 10000, 2, "churn lag max"): (None, 0.2) for mode in ("iptables", "nftables")},
    **{(mode, size, 2, "RSS"): (1.0, None) for mode in ("iptables", "nftables") for size in (1000, 5000, 10000)},
    **{
        (mode, size, 2, "first packet p50"): (1.0, None)
        for mode in ("iptables", "nftables")
        for size in (10, 1000, 10000, 30000)
    },
}


@dataclass(frozen=True, slots=True)
class Figure:
    """One value and where it comes from. `figure` is a key of UNITS."""

    mode: str
    services: int
    endpoints: int
    figure: str
    maker: str
    value: float
    date: str
    commit: str
    at_least: bool = False  # it was cut short

    @property
    def key(self) -> tuple[str, int, int, str, str]:
        return (self.mode, self.services, self.endpoints, self.figure, self.maker)


def load(path: Path) -> list[Figure]:
    """None kept yet: an empty list."""
    return [Figure(**each) for each in json.loads(path.read_text())] if path.exists() else []


def merged(old: Iterable[Figure], new: Iterable[Figure]) -> list[Figure]:
    """In the table's order."""
    found = {figure.key: figure for figure in (*old, *new)}
    order = {name: number for number, name in enumerate(UNITS)}
    return sorted(found.values(), key=lambda one: (one.mode, order[one.figure], one.endpoints, one.services, one.maker))


def save(path: Path, figures: Iterable[Figure]) -> None:
    lines = [json.dumps(asdict(figure)) for figure in figures]
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n")


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table."""

    cells: tuple[str, ...]
    met: bool | None  # None: no target


HEAD = ("mode", "measure", "Services", "nodewright", "upstream", "ratio", "target", "taken")


def rows(figures: Iterable[Figure]) -> list[Row]:
    by_key = {figure.key: figure for figure in figures}
    found: list[Row] = []
    for key in dict.fromkeys(key[:4] for key in by_key):
        ours, theirs = by_key.get((*key, "nodewright")), by_key.get((*key, "upstream"))
        found.append(_row(key, ours, theirs))
    return found


def _row(key: tuple[str, int, int, str], ours: Figure | None, theirs: Figure | None) -> Row:
    mode, services, endpoints, name = key
    unit = UNITS[name]
    ratio = ours.value / theirs.value if ours and theirs and theirs.value else None
    share, most = TARGETS.get(key, (None, None))
    wanted, met = [], []
    if share is not None:
        wanted.append(f"{share:g}x")
        # A twentieth is noise of the machine where the target is to be no worse.
        met += [ratio <= (1.05 if share == 1 else share)] if ratio is not None else []
    if most is not None:
        wanted.append(f"{most:g} {unit}")
        met += [ours.value <= most] if ours else []
    verdict = f"{', '.join(wanted)}: {'met' if all(met) else 'missed'}" if met else ", ".join(wanted)
    short = ["≥ " if one and one.at_least else "" for one in (ours, theirs)]
    bound = "≤ " if short[1] else ""
    taken = ours or theirs
    assert taken is not None
    cells = (
        mode,
        name,
        f"{services:,} x {endpoints}",
        f"{short[0]}{ours.value:.3g} {unit}" if ours else "-",
        f"{short[1]}{theirs.value:.3g} {unit}" if theirs else "-",
        f"{bound}{ratio:.2f}x" if ratio is not None and not short[0] else "-",
        verdict or "-",
        f"{taken.date} {taken.commit}",
    )
    return Row(cells, all(met) if met else None)


BEGIN, END = "<!-- bench services: written by the command -->", "<!-- end of bench services -->"


def markdown(figures: Iterable[Figure], heading: str, notes: str) -> str:
    """The section between BEGIN and END."""
    lines = [BEGIN, f"## {heading}", "", notes, "", f"| {' | '.join(HEAD)} |", "| --- " * len(HEAD) + "|"]
    lines += [f"| {' | '.join(row.cells)} |" for row in rows(figures)]
    return "\n".join([*lines, END])


def placed(document: str, section: str) -> str:
    """`document` with its section replaced, or added at the end."""
    before, found, rest = document.partition(BEGIN)
    if not found:
        return f"{document.rstrip()}\n\n{section}\n"
    return f"{before}{section}{rest.partition(END)[2]}"
