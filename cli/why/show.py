"""Prints explanations: what an object waits for, what to do, why containers ended, their logs, the timeline."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from rich.console import Console

from agent.explain.model import End, Wait
from cli.display.terminal import new_console
from cli.policies.drops_text import allow_dns, sentence
from cli.why.model import Explained
from cli.why.texts import ago, clock, cut
from cli.why.timeline import table
from cli.why.wording import Wording
from nodelib.durations import span
from nodelib.text import visible

_WIDE = 200
_WAITS = 3  # of one object of a list
_REFUSED = 5  # of one pod


def _own_console() -> Console:
    # In a pipe or a file, lines need not fit a terminal.
    return new_console(width=None if sys.stdout.isatty() else _WIDE)


@dataclass(frozen=True, slots=True)
class Page:
    """Where it is printed. `now` is wall-clock seconds; `shown`: texts that are not repeated."""

    now: float
    wording: Wording = field(default_factory=Wording)
    console: Console = field(default_factory=_own_console)
    shown: set[str] = field(default_factory=set)

    def say(self, text: str, style: str = "") -> None:
        # A text of others has no line that begins like one of ours.
        text = visible(text).replace("\n", "\n      | ")
        self.console.print(text, style=style or None, soft_wrap=True)

    def do(self, action: str, indent: str = "  ") -> None:
        if action:
            self.say(f"{indent}do: {self.wording.typed(action)}")

    def is_shown(self, text: str) -> bool:
        return any(text in one for one in self.shown)


def one(explained: Explained, page: Page) -> None:
    """Everything about one object."""
    found = explained.found
    state = found.phase if found.waits and found.phase else found.summary
    page.say(f"{_title(explained)}: {page.wording.typed(cut(state.strip()))}", style="bold")
    if not explained.by_node and found.node:
        page.say("  (No agent that answers here knows this pod, so this is what the API server knows.)")
    page.shown.add(state)
    for wait in found.waits:
        _wait(wait, page)
    for line in _ends(found.ends, page.now):
        page.say(page.wording.typed(line))
    _logs(explained, page)
    _refused(explained, page)
    for cost in found.costs:
        page.say(f"{cost.of}: {cost.text}")
        page.do(cost.action)
    if found.timeline:
        page.console.print(table(found.timeline, page.now, page.shown))


def many(every: Iterable[Explained], page: Page) -> None:
    """What each object waits for, with error and remedy; pods of one owner that wait for the same are one entry."""
    for first, more in _alike(every):
        found = first.found
        others = f", and {more} more of {first.owner} alike" if more else ""
        state = found.phase if found.waits else found.summary
        page.say(f"{_title(first)}{others}: {state}", style="bold")
        for wait in found.waits[:_WAITS]:
            _wait(wait, page, "  ", repeat=True)
        if len(found.waits) > _WAITS:
            page.say(f"  and {len(found.waits) - _WAITS} more")
        _refused(first, page)
        _logs(first, page)


def pods_of(pods: list[Explained], page: Page) -> None:
    """The pods of the object that was printed before."""
    bad = [one for one in pods if not one.is_well]
    if pods:
        page.say("")
        page.say(f"Its pods: {len(pods)}, not well: {len(bad)}." if bad else f"Its pods: {len(pods)}, all well.")
    many(bad, page)


def _alike(every: Iterable[Explained]) -> Iterator[tuple[Explained, int]]:
    """Each first one, and how many more are like it."""
    groups: dict[object, list[Explained]] = {}
    for one in every:
        waits = tuple((wait.on, wait.reason) for wait in one.found.waits)
        key = (one.kind, one.found.namespace, one.owner or one.found.name, one.found.phase, waits)
        groups.setdefault(key, []).append(one)
    for group in groups.values():
        # The one with a log is worth most.
        yield max(group, key=lambda one: bool(one.logs)), len(group) - 1


def _title(explained: Explained) -> str:
    found = explained.found
    name = f"{found.namespace}/{found.name}" if found.namespace else found.name
    return f"{explained.kind} {name}" + (f" on {found.node}" if found.node else "")


def _logs(explained: Explained, page: Page) -> None:
    for tail in explained.logs:
        page.say(f"the last lines of the log of container {tail.container}:")
        for line in tail.lines:
            page.say(f"  | {line}")


def _refused(explained: Explained, page: Page) -> None:
    found = explained.found
    for drop in explained.refused[:_REFUSED]:
        page.say(f"refused {ago(drop.last, page.now)}: {sentence(drop)}", style="yellow")
        ways = [f"It would be allowed by {drop.remedy}."] if drop.remedy else []
        page.do(" ".join([*ways, page.wording.typed(allow_dns(drop))]).strip())
    if len(explained.refused) > _REFUSED:
        more = len(explained.refused) - _REFUSED
        page.say(page.wording.typed(f"and {more} more; `nodewright drops {found.namespace}/{found.name}` lists them"))


def _ends(ends: Iterable[End], now: float) -> Iterator[str]:
    """One line for all ends of a container that are alike; `times` counts those that are forgotten too."""
    alike: dict[tuple[str, str, str], list[End]] = {}
    for end in ends:
        alike.setdefault((end.container, end.how, end.why), []).append(end)
    for name in dict.fromkeys(container for container, _, _ in alike):
        lines = {key: known for key, known in alike.items() if key[0] == name}
        total = max(end.times for known in lines.values() for end in known)
        if len(lines) == 1:
            yield from (f"container {name} {_ended(key, known, total, now)}" for key, known in lines.items())
            continue
        yield f"container {name} has ended {total} times, most recently:"
        for key, known in sorted(lines.items(), key=lambda one: -max(end.at for end in one[1])):
            yield f"  {_ended(key, known, 1, now)}"


def _ended(key: tuple[str, str, str], known: list[End], total: int, now: float) -> str:
    _, how, why = key
    times = max(total, len(known))
    often = f"{times} times, last " if times > 1 else ""
    ended = "exit code 0" if how == "ok" else how
    return f"ended {often}{ago(max(end.at for end in known), now)}, {ended}" + (f": {why}" if why else "")


def _wait(wait: Wait, page: Page, indent: str = "", *, repeat: bool = False) -> None:
    parts = [f"waits on {wait.on}: {wait.reason}" if wait.on else f"it is over: {wait.reason}"]
    if wait.since:
        parts.append(f"for {span(page.now - wait.since)}" if wait.on else ago(wait.since, page.now))
    if wait.tries > 1:
        parts.append(f"{wait.tries} times")
    if wait.next_try and wait.next_try > page.now:
        word = "until" if wait.reason == "Stopping" else "next try"
        parts.append(f"{word} {clock(wait.next_try)} (in {span(wait.next_try - page.now)})")
    if wait.progress and (repeat or not page.is_shown(wait.progress)):
        parts.append(wait.progress)
    page.say(indent + ", ".join(parts), style="yellow")
    error = wait.error.strip()
    if error and (repeat or not page.is_shown(error)):
        page.say(f"{indent}  error: {cut(error)}")
    page.shown.add(error)
    page.do(wait.action, f"{indent}  ")
