"""What a command says at one moment, and what has changed since the moment before. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from nodelib.json_values import Json
from nodelib.text import one_line, visible

GONE = "is gone"
_LINE = 2000  # bytes of one line of a change
_LINES = 40  # of one change

Key = str  # "pod shop/web-0", "daemon node1/agent"
Entry = tuple[str, ...]  # lines, without the key; nothing in them depends on the moment at which they are read


@dataclass(frozen=True, slots=True)
class Frame:
    """One moment.

    `entries`: what of each thing is news when it changes. `others`: what is said of a thing that has no entry any more
    (a pod that is well now); what is in neither is gone. `happened`: a line for each thing, with its own time; a
    line that is not there any more is forgotten, and no news. `document`: the same for programs, and `volatile` its
    keys whose changes are none, at any depth. `drawn(now)`: the same for a person at a terminal, as renderables of rich
    or texts, from the top down; it may be asked again later, since times are shown as ages.
    """

    entries: Mapping[Key, Entry]
    document: Json
    drawn: Callable[[float], Iterable[object]]
    others: Mapping[Key, str] = field(default_factory=dict)
    happened: tuple[str, ...] = ()
    volatile: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Change:
    """`lines` are the whole entry as it is now."""

    key: Key
    lines: Entry


def changes(before: Frame | None, after: Frame) -> list[Change]:
    """What is said when `after` follows `before`, in the order of the entries; things that have none any more last."""
    known = before.entries if before is not None else {}
    found = [Change(key, entry) for key, entry in after.entries.items() if known.get(key) != entry]
    found += [Change(key, (after.others.get(key, GONE),)) for key in known if key not in after.entries]
    return found


def lines(before: Frame | None, after: Frame, clock: str) -> Iterator[str]:
    """What is new, for a file or a pipe: each begins with a time, and its further lines are indented."""
    known = set(before.happened) if before is not None else set()
    yield from (_one(line) for line in dict.fromkeys(after.happened) if line not in known)
    for change in changes(before, after):
        yield from _lines(change, clock)


def _lines(change: Change, clock: str) -> Iterator[str]:
    first, *rest = change.lines or ("",)
    yield _one(f"{clock} {change.key}: {first}")
    for line in rest[:_LINES]:
        yield _one(f"    {line}")
    if len(rest) > _LINES:
        yield f"    and {len(rest) - _LINES} more lines"


def differs(before: Frame | None, after: Frame) -> bool:
    """Whether programs are told: the documents differ in more than what changes all the time."""
    return before is None or _lasting(before.document, before.volatile) != _lasting(after.document, after.volatile)


def _lasting(value: object, volatile: frozenset[str]) -> object:
    if isinstance(value, dict):
        return {key: _lasting(one, volatile) for key, one in value.items() if key not in volatile}
    if isinstance(value, list | tuple):
        return [_lasting(one, volatile) for one in value]
    return value


def _one(text: str) -> str:
    return one_line(visible(text), _LINE)
