"""What of an explanation is news when it changes: no ages, no counts of tries, no progress. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from agent.explain.model import TimelineLine
from cli.policies.drops_text import flow, refused_by
from cli.why.model import Explained
from cli.why.texts import clock, cut
from cli.why.timeline import newest, ordered
from cli.why.wording import Wording

_REFUSED = 5  # flows of one pod
Entries = dict[str, tuple[str, ...]]


def entries(found: Iterable[Explained], wording: Wording) -> Entries:
    """By object, what is said of it."""
    return {title(one): tuple(_lines(one, wording)) for one in found}


def timeline(one: Explained) -> tuple[str, ...]:
    """Each step of the pod as its node recorded it, with its time."""
    return tuple(_step(line) for line in ordered(one.found.timeline))


def well(every: Iterable[Explained]) -> Mapping[str, str]:
    """By object that is well, what is said of one that was not."""
    return {title(one): f"is well: {one.found.summary}" for one in every if one.is_well}


def title(explained: Explained) -> str:
    found = explained.found
    return f"{explained.kind} {found.namespace}/{found.name}" if found.namespace else f"{explained.kind} {found.name}"


def _lines(explained: Explained, wording: Wording) -> Iterator[str]:
    found = explained.found
    where = f" (on {found.node})" if found.node else ""
    yield (found.phase if found.waits else wording.typed(cut(found.summary.strip()))) + where
    for wait in found.waits:
        yield f"waits on {wait.on}: {wait.reason}" if wait.on else f"it is over: {wait.reason}"
        if wait.error:
            yield f"  error: {cut(wait.error.strip())}"
        if wait.action:
            yield f"  do: {wording.typed(wait.action)}"
    latest = {end.container: end for end in sorted(found.ends, key=lambda end: end.at)}
    for end in latest.values():
        how = "exit code 0" if end.how == "ok" else end.how
        often = f" {end.times} times, last" if end.times > 1 else ""
        yield f"container {end.container} ended{often}: {how}" + (f": {cut(end.why)}" if end.why else "")
    for tail in explained.logs:
        yield f"the last lines of the log of container {tail.container}:"
        yield from (f"  | {line}" for line in tail.lines)
    for drop in explained.refused[:_REFUSED]:
        yield f"refused: {flow(drop)}: by {refused_by(drop)}"


def _step(line: TimelineLine) -> str:
    took = "under way" if line.seconds is None else f"{line.seconds:.3f} s" if line.seconds else ""
    again = f"{line.times} times" if line.times > 1 else ""
    outcome = "" if line.outcome == "ok" or line.seconds is None else cut(line.outcome)
    said = ", ".join(filter(None, (took, again, outcome, line.note)))
    part = "  " if line.of else ""
    return f"{clock(newest(line))} {part}{line.step}" + (f": {said}" if said else "")
