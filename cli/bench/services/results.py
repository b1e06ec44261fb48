"""The results of `bench services`: kept as JSON beside the docs, with the targets that they are held to.

A run measures a part (some sizes, some modes); its results replace older ones of the same key, so the
table is always whole, and each row says when and at which commit it was taken.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from cli.bench.report import Row, Target

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
_BOTH_MODES = ("iptables", "nftables")
# Where the target is to be no worse than upstream, a twentieth is noise of the machine.
_NO_WORSE = Target(1.0, slack=0.05)
# By mode, Services, endpoints of each, and figure.
TARGETS: dict[tuple[str, int, int, str], Target] = {
    ("iptables", 1000, 2, "cold sync"): _NO_WORSE,
    ("iptables", 5000, 2, "cold sync"): Target(0.25, slack=0),
    ("iptables", 10000, 2, "cold sync"): Target(0.05, slack=0),
    ("iptables", 10000, 2, "change p50"): Target(0.5, slack=0),
    ("nftables", 5000, 2, "cold sync"): Target(0.25, slack=0),
    ("nftables", 10000, 2, "cold sync"): Target(0.12, 1.3, slack=0),
    ("nftables", 30000, 2, "cold sync"): Target(value=5.0),
    ("nftables", 5000, 50, "cold sync"): Target(value=10.0),
    ("nftables", 10000, 2, "change p50"): Target(0.12, 0.03, slack=0),
    ("nftables", 10000, 2, "change p99"): Target(value=0.1),
    **{(mode, 10000, 2, "churn CPU"): Target(0.3, slack=0) for mode in _BOTH_MODES},
    **{(mode, 10000, 2, "churn lag max"): Target(value=0.2) for mode in _BOTH_MODES},
    **{(mode, size, 2, "RSS"): _NO_WORSE for mode in _BOTH_MODES for size in (1000, 5000, 10000)},
    **{(mode, size, 2, "first packet p50"): _NO_WORSE for mode in _BOTH_MODES for size in (10, 1000, 10000, 30000)},
}


@dataclass(frozen=True, slots=True)
class Result:
    """One measured value and where it comes from. `figure` is a key of UNITS."""

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


def load(path: Path) -> list[Result]:
    """The kept results; an empty list if there is no file yet."""
    return [Result(**each) for each in json.loads(path.read_text())] if path.exists() else []


def merged(old: Iterable[Result], new: Iterable[Result]) -> list[Result]:
    """Old and new results in the table's order; new ones replace old ones of the same key."""
    found = {one.key: one for one in (*old, *new)}
    order = {name: number for number, name in enumerate(UNITS)}
    return sorted(found.values(), key=lambda one: (one.mode, order[one.figure], one.endpoints, one.services, one.maker))


def save(path: Path, results: Iterable[Result]) -> None:
    lines = [json.dumps(asdict(one)) for one in results]
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n")


def rows(results: Iterable[Result]) -> list[Row]:
    """A row for each mode, size and figure, with both makers."""
    by_key = {one.key: one for one in results}
    keys = dict.fromkeys(key[:4] for key in by_key)
    return [_row(key, by_key.get((*key, "nodewright")), by_key.get((*key, "upstream"))) for key in keys]


def _row(key: tuple[str, int, int, str], ours: Result | None, peer: Result | None) -> Row:
    mode, services, endpoints, name = key
    taken = ours or peer
    assert taken is not None
    return Row(
        name,
        ours.value if ours else None,
        peer.value if peer else None,
        UNITS[name],
        TARGETS.get(key, Target()),
        cut=(ours is not None and ours.at_least, peer is not None and peer.at_least),
        mode=mode,
        size=f"{services:,} x {endpoints}",
        taken=f"{taken.date} {taken.commit}",
    )


def curves(results: Iterable[Result], name: str) -> dict[tuple[str, str], list[tuple[float, float]]]:
    """For plot.chart(): by mode and maker, (Services, value) of one figure at two endpoints a Service."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for one in results:
        if one.figure == name and one.endpoints == 2 and one.value > 0:
            found.setdefault((one.mode, one.maker), []).append((one.services, one.value))
    return found
