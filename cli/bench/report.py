"""Turns measurements into the table of docs/benchmarks.md: ours, the peer's, and the ratio."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

from cli.bench.pods import Result


@dataclass(frozen=True, slots=True)
class Row:
    """One measure of both; `peer` None: it was not run."""

    measure: str
    ours: float
    peer: float | None
    unit: str

    @property
    def ratio(self) -> str:
        return f"{self.ours / self.peer:.2f}x" if self.peer else "-"

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """As a table shows it: measure, ours, the peer's, ratio."""
        peer = "-" if self.peer is None else f"{self.peer:.3g} {self.unit}"
        return self.measure, f"{self.ours:.3g} {self.unit}", peer, self.ratio


def percentile(values: list[float], share: float) -> float:
    """The nearest-rank percentile; 0 for no values."""
    if not values:
        return 0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


_MEASURES: tuple[tuple[str, str, Callable[[Result], float]], ...] = (
    ("create to Ready, one at a time, p50", "s", lambda r: statistics.median(r.ready_alone)),
    ("create to Ready, one at a time, p99", "s", lambda r: percentile(r.ready_alone, 0.99)),
    ("create to Ready, 10 at once, p50", "s", lambda r: statistics.median(r.ready_together)),
    ("create to Ready, 10 at once, p99", "s", lambda r: percentile(r.ready_together, 0.99)),
    ("60 at once, all Ready", "s", lambda r: r.burst_all_ready),
    ("delete to gone, one at a time, grace 1 s, p50", "s", lambda r: statistics.median(r.gone_alone)),
    ("delete to gone, 10 at once, grace 1 s, p99", "s", lambda r: percentile(r.gone_together, 0.99)),
    ("60 at once, all gone", "s", lambda r: r.burst_all_gone),
    ("kubelet CPU for a pod started and deleted", "ms", lambda r: r.agent_cpu_a_pod * 1000),
    ("kubelet idle CPU, few pods", "% of a core", lambda r: r.agent_idle_few * 100),
    ("kubelet idle CPU, 60 pods", "% of a core", lambda r: r.agent_idle_burst * 100),
    ("kubelet RSS, few pods", "MiB", lambda r: r.agent_rss_few),
    ("kubelet RSS, 60 pods", "MiB", lambda r: r.agent_rss_burst),
    ("proxy RSS", "MiB", lambda r: r.proxy_rss),
    ("container killed to its end in the API, p50", "s", lambda r: statistics.median(r.reactions.death)),
    ("container killed to its end in the API, worst", "s", lambda r: max(r.reactions.death)),
    ("ConfigMap changed to seen in the pod", "s", lambda r: max(r.reactions.change)),
    ("kubelet started to all 60 pods known", "s", lambda r: max(r.reactions.restart)),
    (
        "kubelet CPU, 60 pods and 40 more with 15 exec and 25 HTTP probes/s",
        "% of a core",
        lambda r: r.reactions.probing * 100,
    ),
)


def rows(ours: Result, peer: Result | None) -> list[Row]:
    """One row a measure."""
    return [Row(name, take(ours), take(peer) if peer else None, unit) for name, unit, take in _MEASURES]


def markdown(table: list[Row], heading: str) -> str:
    """A section for docs/benchmarks.md."""
    lines = [f"## {heading}", "", "| measure | nodewright | upstream | ratio |", "| --- | --- | --- | --- |"]
    lines += [f"| {' | '.join(row.cells)} |" for row in table]
    return "\n".join(lines) + "\n"
