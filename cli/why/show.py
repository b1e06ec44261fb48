"""Prints explanations: what a pod waits for and what to do, why its containers ended, and the timeline."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.table import Table

from agent.explain.model import End, Explanation, TimelineLine, Wait
from cli.display.terminal import new_table
from cli.why.judge import Explained

_TEXT = 400  # characters of one error


def one(pod: Explained, now: float, console: Console) -> None:
    """Everything about one pod. `now` is wall-clock seconds."""
    found = pod.found
    where = f" on {found.node}" if found.node else ""
    _say(console, f"pod {found.namespace}/{found.name}{where}: {found.summary}", style="bold")
    if not pod.by_node and found.node:
        _say(console, "  (No agent that answers here knows this pod, so this is what the API server knows.)")
    shown = {found.summary}
    for wait in found.waits:
        _wait(wait, now, console, shown)
    for line in _ends(found.ends, now):
        _say(console, line)
    for cost in found.costs:
        _say(console, f"{cost.of}: {cost.text}")
        if cost.action:
            _say(console, f"  do: {cost.action}")
    if found.timeline:
        console.print(_timeline(found, now, shown))


def many(every: Iterable[Explained], now: float, console: Console) -> None:
    """One line for each reason that a pod waits for."""
    table = new_table("POD", "PHASE", "WAITS ON", "REASON", "SINCE", "NEXT TRY")
    for pod in every:
        found = pod.found
        for wait in found.waits or (Wait("-", found.summary),):
            since = _span(now - wait.since) if wait.since else ""
            later = f"in {_span(wait.next_try - now)}" if wait.next_try and wait.next_try > now else ""
            reason = f"{wait.reason}: {wait.progress}" if wait.progress else wait.reason
            table.add_row(f"{found.namespace}/{found.name}", found.phase, wait.on, reason, since, later)
    console.print(table)


def _ends(ends: Iterable[End], now: float) -> Iterator[str]:
    """One line for all ends of a container that are alike."""
    alike: dict[tuple[str, str, str], list[float]] = {}
    for end in ends:
        alike.setdefault((end.container, end.how, end.why), []).append(end.at)
    for (container, how, why), times in alike.items():
        often = f"{len(times)} times, last " if len(times) > 1 else ""
        yield f"container {container} ended {often}{_ago(max(times), now)}, {how}" + (f": {why}" if why else "")


def _wait(wait: Wait, now: float, console: Console, shown: set[str]) -> None:
    """`shown`: texts that were printed already, and are not repeated."""
    parts = [f"waits on {wait.on}: {wait.reason}"]
    if wait.since:
        parts.append(f"for {_span(now - wait.since)}")
    if wait.tries > 1:
        parts.append(f"{wait.tries} times")
    if wait.next_try and wait.next_try > now:
        word = "until" if wait.reason == "Stopping" else "next try"
        parts.append(f"{word} {_clock(wait.next_try)} (in {_span(wait.next_try - now)})")
    if wait.progress and not any(wait.progress in text for text in shown):
        parts.append(wait.progress)
    _say(console, ", ".join(parts), style="yellow")
    if wait.error and not any(wait.error in text for text in shown):
        _say(console, f"  error: {_cut(wait.error)}")
    shown.add(wait.error)
    if wait.action:
        _say(console, f"  do: {wait.action}")


def _timeline(found: Explanation, now: float, shown: set[str]) -> Table:
    table = new_table("AT", "STEP", "TOOK", "OUTCOME")
    for entry in ordered(found.timeline):
        took = f"{entry.seconds:.3f} s" if entry.seconds else ""
        if entry.seconds is None:
            took = f"{_span(now - entry.at)} so far"
        again = f" ({entry.times} times, first {_clock(entry.at)})" if entry.times > 1 else ""
        outcome = "in progress" if entry.seconds is None else _cut(entry.outcome)
        if entry.outcome != "ok" and any(entry.outcome in text for text in shown):
            outcome = "failed, see above"
        if entry.note:
            outcome = f"{outcome}: {entry.note}" if outcome != "ok" else entry.note
        table.add_row(_clock(_newest(entry)), f"  {entry.step}" if entry.of else entry.step, took, outcome + again)
    return table


def ordered(timeline: Iterable[TimelineLine]) -> list[TimelineLine]:
    """Sorted by when each was done last, so that the newest round is in order; a step comes before its parts."""
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
    # The entry of a container's end begins with the container; it belongs where it ended.
    lived = (entry.seconds or 0.0) if entry.kind == "ended" else 0.0
    return max(entry.at, entry.last_at) + lived


def _say(console: Console, text: str, style: str = "") -> None:
    console.print(text, style=style or None, soft_wrap=True)


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
