"""The answer for people: what it waits for and what to do, why its containers ended, and the timeline."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.table import Table

from agent.explain.model import End, Explanation, TimelineLine, Wait
from cli.why.judge import Told

_TEXT = 400  # characters of one error


def one(told: Told, now: float, console: Console) -> None:
    """Everything about one pod."""
    found = told.found
    where = f" on {found.node}" if found.node else ""
    _say(console, f"pod {found.namespace}/{found.name}{where}: {found.summary}", style="bold")
    if not told.by_node and found.node:
        _say(console, "  (no agent that answers here knows it: this is what the API server knows)")
    said = {found.summary}
    for wait in found.waits:
        _wait(wait, now, console, said)
    for line in _ends(found.ends, now):
        _say(console, line)
    for cost in found.costs:
        _say(console, f"{cost.of}: {cost.told}")
        if cost.action:
            _say(console, f"  do: {cost.action}")
    if found.timeline:
        console.print(_timeline(found, now, said))


def many(every: Iterable[Told], now: float, console: Console) -> None:
    """One line a pod."""
    table = _table("POD", "PHASE", "WAITS ON", "REASON", "SINCE", "NEXT TRY")
    for told in every:
        found = told.found
        for wait in found.waits or (Wait("-", found.summary),):
            since = _span(now - wait.since) if wait.since else ""
            later = f"in {_span(wait.next_try - now)}" if wait.next_try and wait.next_try > now else ""
            reason = f"{wait.reason}: {wait.progress}" if wait.progress else wait.reason
            table.add_row(f"{found.namespace}/{found.name}", found.phase, wait.on, reason, since, later)
    console.print(table)


def _ends(ends: Iterable[End], now: float) -> Iterator[str]:
    """What ended alike is one line."""
    alike: dict[tuple[str, str, str], list[float]] = {}
    for end in ends:
        alike.setdefault((end.container, end.how, end.why), []).append(end.at)
    for (container, how, why), times in alike.items():
        often = f"{len(times)} times, last " if len(times) > 1 else ""
        yield f"container {container} ended {often}{_ago(max(times), now)}, {how}" + (f": {why}" if why else "")


def _wait(wait: Wait, now: float, console: Console, said: set[str]) -> None:
    """`said`: what stands above already, and is not said again."""
    parts = [f"waits on {wait.on}: {wait.reason}"]
    if wait.since:
        parts.append(f"for {_span(now - wait.since)}")
    if wait.tries > 1:
        parts.append(f"{wait.tries} times")
    if wait.next_try and wait.next_try > now:
        word = "until" if wait.reason == "Stopping" else "next try"
        parts.append(f"{word} {_clock(wait.next_try)} (in {_span(wait.next_try - now)})")
    if wait.progress and not any(wait.progress in text for text in said):
        parts.append(wait.progress)
    _say(console, ", ".join(parts), style="yellow")
    if wait.error and not any(wait.error in text for text in said):
        _say(console, f"  error: {_cut(wait.error)}")
    said.add(wait.error)
    if wait.action:
        _say(console, f"  do: {wait.action}")


def _timeline(found: Explanation, now: float, said: set[str]) -> Table:
    table = _table("AT", "STEP", "TOOK", "OUTCOME")
    for entry in ordered(found.timeline):
        took = f"{entry.seconds:.3f} s" if entry.seconds else ""
        if entry.seconds is None:
            took = f"{_span(now - entry.at)} so far"
        again = f" ({entry.times} times, first {_clock(entry.at)})" if entry.times > 1 else ""
        outcome = "under way" if entry.seconds is None else _cut(entry.outcome)
        if entry.outcome != "ok" and any(entry.outcome in text for text in said):
            outcome = "failed, as said above"
        if entry.note:
            outcome = f"{outcome}: {entry.note}" if outcome != "ok" else entry.note
        table.add_row(_clock(_newest(entry)), f"  {entry.step}" if entry.of else entry.step, took, outcome + again)
    return table


def ordered(timeline: Iterable[TimelineLine]) -> list[TimelineLine]:
    """By when each was done last, so that the newest round reads from top to bottom; a step before its parts."""
    entries = sorted(timeline, key=_newest)
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


def _newest(entry: TimelineLine) -> float:
    # What is told of a container's end is how long it lived: it is placed at its end.
    lived = (entry.seconds or 0.0) if entry.kind == "ended" else 0.0
    return max(entry.at, entry.last_at) + lived


def _say(console: Console, text: str, style: str = "") -> None:
    console.print(text, style=style or None, soft_wrap=True)


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 2), header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT else text[: _TEXT - 1] + "…"


def _clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at)) + f".{int(at * 1000) % 1000:03d}"


def _ago(at: float, now: float) -> str:
    return f"{_span(now - at)} ago" if at else "at an unknown time"


def _span(seconds: float) -> str:
    whole = max(0, round(seconds))
    if whole < 1:
        return f"{max(0.0, seconds):.1f} s"
    hours, rest = divmod(whole, 3600)
    minutes, rest = divmod(rest, 60)
    parts = ((hours, "h"), (minutes, "min"), (rest, "s"))
    return " ".join(f"{count} {unit}" for count, unit in parts if count)
