"""Turns measurements into the table of docs/benchmarks.md: ours, the peer's, the ratio, the target, met or missed."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable
from dataclasses import dataclass

from cli.bench.pods import Result

HEAD = ("measure", "nodewright", "upstream", "ratio", "target")


@dataclass(frozen=True, slots=True)
class Target:
    """At most this ratio to the peer, at most this value in the row's unit; None: not asked for."""

    ratio: float | None = None
    value: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One measure of both; `peer` None: it was not run."""

    measure: str
    ours: float
    peer: float | None
    unit: str
    target: Target = Target()

    @property
    def ratio(self) -> str:
        return f"{self.ours / self.peer:.2f}x" if self.peer else "-"

    @property
    def verdict(self) -> str:
        """The target, and whether it is met; a ratio without a peer is not judged."""
        wanted, judged = [], []
        if self.target.ratio is not None:
            wanted.append(f"{self.target.ratio:g}x")
            if self.peer:
                judged.append(self.ours / self.peer <= self.target.ratio + 0.005)
        if self.target.value is not None:
            wanted.append(f"{self.target.value:g} {self.unit}")
            judged.append(self.ours <= self.target.value)
        if not wanted:
            return "-"
        return ", ".join(wanted) + (f": {'met' if all(judged) else 'missed'}" if judged else "")

    @property
    def cells(self) -> tuple[str, ...]:
        """As a table shows it, in the order of HEAD."""
        peer = "-" if self.peer is None else f"{self.peer:.3g} {self.unit}"
        return self.measure, f"{self.ours:.3g} {self.unit}", peer, self.ratio, self.verdict


def percentile(values: list[float], share: float) -> float:
    """The nearest-rank percentile; 0 for no values."""
    if not values:
        return 0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


_CORE = "% of a core"
_MEASURES: tuple[tuple[str, str, Callable[[Result], float], Target], ...] = (
    ("create to Ready, one at a time, p50", "s", lambda r: statistics.median(r.ready_alone), Target(0.8)),
    ("create to Ready, one at a time, p99", "s", lambda r: percentile(r.ready_alone, 0.99), Target(0.8)),
    ("the same beyond the runtime's three calls, mean", "ms", lambda r: r.own_share * 1000, Target(value=10)),
    ("of that the API server: one POST, token and PATCH", "ms", lambda r: r.api_share * 1000, Target()),
    ("create to Ready, 10 at once, p50", "s", lambda r: statistics.median(r.ready_together), Target(0.8)),
    ("create to Ready, 10 at once, p99", "s", lambda r: percentile(r.ready_together, 0.99), Target(0.8)),
    ("60 at once, all Ready", "s", lambda r: statistics.median(r.burst_all_ready), Target(0.8)),
    ("delete to gone, one at a time, grace 1 s, p50", "s", lambda r: statistics.median(r.gone_alone), Target(0.2)),
    ("delete to gone, 10 at once, grace 1 s, p99", "s", lambda r: percentile(r.gone_together, 0.99), Target()),
    ("60 at once, all gone", "s", lambda r: statistics.median(r.burst_all_gone), Target(0.5)),
    ("100 at once (40 of them with probes), all gone", "s", lambda r: r.everything_gone, Target(0.5)),
    ("container killed to its end in the API, p50", "s", lambda r: statistics.median(r.reactions.death), Target()),
    ("container killed to its end in the API, worst", "s", lambda r: max(r.reactions.death), Target(0.2, 0.1)),
    ("ConfigMap changed to seen in the pod", "s", lambda r: max(r.reactions.change), Target(value=5)),
    ("kubelet started to all 100 pods known", "s", lambda r: max(r.reactions.restart), Target(value=2)),
    ("kubelet started to all 40 probed again", "s", lambda r: max(r.reactions.probed_again), Target(value=2)),
    ("kubelet CPU for a pod started and deleted", "ms", lambda r: r.agent_cpu_a_pod * 1000, Target(1)),
    ("kubelet idle CPU, few pods", _CORE, lambda r: r.agent_idle_few * 100, Target()),
    ("kubelet idle CPU, 60 pods", _CORE, lambda r: r.agent_idle_burst * 100, Target(0.5)),
    ("kubelet CPU, 100 pods, 15 exec and 25 HTTP probes/s", _CORE, lambda r: r.reactions.probing * 100, Target(1)),
    ("kubelet RSS, few pods", "MiB", lambda r: r.agent_rss_few, Target(1)),
    ("kubelet RSS, 60 pods", "MiB", lambda r: r.agent_rss_burst, Target(1)),
    ("kubelet RSS, 100 pods, 40 of them with probes", "MiB", lambda r: r.reactions.probing_rss, Target(1)),
    ("proxy RSS", "MiB", lambda r: r.proxy_rss, Target(1)),
)


def rows(ours: Result, peer: Result | None) -> list[Row]:
    """One row a measure."""
    return [Row(name, take(ours), take(peer) if peer else None, unit, target) for name, unit, take, target in _MEASURES]


def markdown(table: list[Row], heading: str, note: str = "") -> str:
    """A section for docs/benchmarks.md."""
    lines = [f"## {heading}", "", *([note, ""] if note else [])]
    lines += [f"| {' | '.join(HEAD)} |", "|" + " --- |" * len(HEAD)]
    lines += [f"| {' | '.join(row.cells)} |" for row in table]
    return "\n".join(lines) + "\n"


def placed(document: str, section: str, what: str) -> str:
    """The document with the section in the place of the one whose heading begins with `what`, else at its end."""
    old = re.search(rf"^## {re.escape(what)},.*?(?=^## |^<!-- |\Z)", document, re.MULTILINE | re.DOTALL)
    if old is None:
        return f"{document.rstrip()}\n\n{section}"
    return f"{document[: old.start()]}{section}\n{document[old.end() :]}".rstrip() + "\n"
