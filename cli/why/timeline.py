"""The timeline as a table."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table

from agent.explain.model import TimelineLine
from cli.display.terminal import new_table
from cli.why.texts import clock, cut
from nodelib.durations import span
from nodelib.text import visible

_LONG = 20  # characters; what is shorter may well be said twice


def table(timeline: Iterable[TimelineLine], now: float, shown: set[str]) -> Table:
    """`shown`: errors that were printed already, and are not repeated."""
    made, shown = new_table("AT", "STEP", "TOOK", "OUTCOME"), set(shown)
    for entry in ordered(timeline):
        took = f"{entry.seconds:.3f} s" if entry.seconds else ""
        if entry.seconds is None:
            took = f"{span(now - entry.at)} so far"
        again = f" ({entry.times} times, first at {clock(entry.at)})" if entry.times > 1 else ""
        outcome = "in progress" if entry.seconds is None else cut(entry.outcome)
        if entry.outcome != "ok" and any(entry.outcome in text for text in shown):
            outcome = "failed, see above"
        elif len(entry.outcome) > _LONG:  # a step and its part end with the same error
            shown.add(entry.outcome)
        if entry.note:
            outcome = f"{outcome}: {entry.note}" if outcome != "ok" else entry.note
        step = f"  {entry.step}" if entry.of else entry.step
        made.add_row(clock(newest(entry)), visible(step), took, visible(outcome) + again)
    return made


def ordered(timeline: Iterable[TimelineLine]) -> list[TimelineLine]:
    """Sorted by when each was done last, so that the newest round is in order; a step comes before its parts."""
    entries = sorted(timeline, key=newest)
    parts = [entry for entry in entries if entry.of]
    tops = {(entry.kind, entry.container) for entry in entries if not entry.of}
    found = []
    for entry in entries:
        if entry.of and (entry.of_kind, entry.container) in tops:
            continue
        found.append(entry)
        found += [part for part in parts if _is_part(part, entry)]
    return found


def _is_part(part: TimelineLine, entry: TimelineLine) -> bool:
    return not entry.of and (part.of_kind, part.container) == (entry.kind, entry.container)


def newest(entry: TimelineLine) -> float:
    """When it was done last, wall seconds."""
    # The entry of a container's end begins with the container; it belongs where it ended.
    lived = (entry.seconds or 0.0) if entry.kind == "ended" else 0.0
    return max(entry.at, entry.last_at) + lived
