"""In which order the steps are run, and how long they will take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from controlplane.scoreboard.model import Group, Partition, Step
from controlplane.scoreboard.plan.results import Runs

_CLUSTER = 30.0  # seconds that a cluster takes to come and go, where none has been measured


class Estimate:
    """How long steps take, by what has run: the same part with the other maker, or others of its group."""

    def __init__(self, partition: Partition, runs: Runs) -> None:
        self._runs = runs
        self._sizes = {part.name: len(part.specs) for part in partition.parts}
        spent: dict[str, float] = {}
        ran: dict[str, int] = {}
        for part in partition.parts:
            for maker in part.group.makers:
                run = runs.get((part.name, maker))
                if run is not None and run.outcomes:
                    spent[part.group.name] = spent.get(part.group.name, 0) + run.seconds
                    ran[part.group.name] = ran.get(part.group.name, 0) + len(run.outcomes) + len(run.missed)
        self._rates = {name: spent[name] / ran[name] for name in spent}

    def seconds(self, step: Step) -> float:
        """Of one step."""
        part, count = step.part, len(step.part.specs)
        if step.second:
            run = self._runs.get((part.name, step.maker))
            took = sum(run.outcomes[s.name].seconds for s in part.specs if s.name in run.outcomes) if run else 0.0
            return _CLUSTER + took
        for maker in part.group.makers:
            run = self._runs.get((part.name, maker))
            if run is not None and len(run.outcomes) + len(run.missed) == self._sizes.get(part.name):
                return run.seconds * count / self._sizes[part.name]
        return self._rates[part.group.name] * count if part.group.name in self._rates else _guess(part.group, count)

    def total(self, steps: Iterable[Step]) -> float:
        return sum(self.seconds(step) for step in steps)


def _guess(group: Group, count: int) -> float:
    return _CLUSTER + group.seconds * count


def ordered(steps: Sequence[Step], estimate: Estimate) -> tuple[Step, ...]:
    """[Conformance] first, then where a minute shows the most; the makers of a part stay side by side."""
    by_part: dict[str, list[Step]] = {}
    for step in steps:
        by_part.setdefault(step.part.name, []).append(step)
    found = sorted(by_part.values(), key=lambda group: _rank(group, estimate))
    return tuple(step for group in found for step in group)


def next_step(waiting: Sequence[Step], running: Sequence[Step], at_once: int) -> Step | None:
    """What may begin beside what runs, with at most `at_once` of them; None: nothing until one of them has ended."""
    if not running:
        return waiting[0] if waiting else None
    if len(running) >= at_once or not all(step.beside for step in running):
        return None
    return next((step for step in waiting if step.beside), None)


def _rank(steps: Sequence[Step], estimate: Estimate) -> tuple[bool, float]:
    specs = sum(len(step.part.specs) for step in steps)
    return not all(step.part.conformance for step in steps), -specs / estimate.total(steps)
