"""Counts specs by SIG and feature, and finds where the two makers differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from controlplane.scoreboard.model import MAKERS, Outcome, Part, Partition, Run, Spec
from controlplane.scoreboard.plan.results import Runs


@dataclass(frozen=True, slots=True)
class Both:
    """One spec that can run here, and what came of it with each maker; None where it was not run."""

    spec: Spec
    part: Part
    ours: Outcome | None
    upstream: Outcome | None

    def has(self, maker: str, verdict: str) -> bool:
        outcome = self.ours if maker == MAKERS[0] else self.upstream
        return outcome is not None and outcome.final == verdict

    @property
    def only_ours_fails(self) -> bool:
        return self.has("nodewright", "failed") and self.has("upstream", "passed")

    @property
    def only_upstream_fails(self) -> bool:
        return self.has("upstream", "failed") and self.has("nodewright", "passed")

    @property
    def both_fail(self) -> bool:
        return self.has("nodewright", "failed") and self.has("upstream", "failed")

    @property
    def one_skips(self) -> bool:
        """Whether it skips itself with one maker only, which hides what the other one shows."""
        known = self.ours is not None and self.upstream is not None
        return known and self.has("nodewright", "skipped") != self.has("upstream", "skipped")

    @property
    def flaky(self) -> bool:
        return any(side is not None and side.flaky for side in (self.ours, self.upstream))

    @property
    def differs(self) -> bool:
        return self.only_ours_fails or self.only_upstream_fails or self.one_skips


@dataclass(slots=True)
class Row:
    """A line of the table."""

    specs: int = 0
    kept_out: int = 0
    not_run: int = 0  # by at least one of the makers that the group has
    passed: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    flaky: Counter[str] = field(default_factory=Counter)  # of those that passed
    only_ours: int = 0
    only_upstream: int = 0


def both(partition: Partition, runs: Runs) -> tuple[Both, ...]:
    """Every spec that can run here."""
    found = []
    for part in partition.parts:
        ours, upstream = (runs.get((part.name, maker)) for maker in MAKERS)
        for spec in part.specs:
            found.append(Both(spec, part, _of(ours, spec), _of(upstream, spec)))
    return tuple(found)


def _of(run: Run | None, spec: Spec) -> Outcome | None:
    return run.outcomes.get(spec.name) if run is not None else None


def table(partition: Partition, runs: Runs) -> dict[tuple[str, str], Row]:
    """A row for each SIG and feature, sorted, for both suites together."""
    rows: dict[tuple[str, str], Row] = {}
    for spec in partition.specs:
        rows.setdefault((spec.sig, spec.feature), Row()).specs += 1
    for _, specs in partition.kept_out:
        for spec in specs:
            rows[spec.sig, spec.feature].kept_out += 1
    for one in both(partition, runs):
        _count(rows[one.spec.sig, one.spec.feature], one)
    return dict(sorted(rows.items()))


def _count(row: Row, one: Both) -> None:
    for maker, outcome in zip(MAKERS, (one.ours, one.upstream), strict=True):
        if outcome is not None:
            counter = {"passed": row.passed, "failed": row.failed, "skipped": row.skipped}[outcome.final]
            counter[maker] += 1
            row.flaky[maker] += outcome.flaky
    ran = {maker for maker, outcome in zip(MAKERS, (one.ours, one.upstream), strict=True) if outcome is not None}
    row.not_run += not ran.issuperset(one.part.group.makers)
    row.only_ours += one.only_ours_fails
    row.only_upstream += one.only_upstream_fails


def total(rows: Iterable[Row]) -> Row:
    """All rows as one."""
    found = Row()
    for row in rows:
        for name in ("specs", "kept_out", "not_run", "only_ours", "only_upstream"):
            setattr(found, name, getattr(found, name) + getattr(row, name))
        for name in ("passed", "failed", "skipped", "flaky"):
            getattr(found, name).update(getattr(row, name))
    return found


def skips(both_: Iterable[Both]) -> Counter[str]:
    """Why specs skip themselves with both makers (or the only one that runs them)."""
    found: Counter[str] = Counter()
    for one in both_:
        if one.ours is not None and one.ours.final == "skipped" and not one.one_skips:
            found[one.ours.reason] += 1
    return found
