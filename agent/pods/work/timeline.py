"""Records what was done for one pod and how long it took; agent/explain reads it.

It is bounded: what happens again and again (a crash loop, a failing mount) is one entry with a count.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Protocol

from agent.pods.model.timeline import Activity, TimelineEntry
from agent.probes.model import ProbeKind
from nodelib.clock import Clock
from nodelib.errors import NodewrightError
from nodelib.traces.model import SpanContext

_KEPT = 96
# What differs each time in the error of one and the same failure: the local port of a connection, the id of a
# container or sandbox, the descriptor or process of a path in /proc.
_EACH_TIME = re.compile(r"(?<=:)\d+(?=->)|\b[0-9a-f]{64}\b|(?<=/fd/)\d+|(?<=/proc/)\d+")


class Follower(Protocol):
    """Who hears of each entry as it is made, before equal ones become one (work/tracing.py)."""

    def begun(self, entry: TimelineEntry) -> None:
        """`entry` is under way."""
        ...

    def ended(self, entry: TimelineEntry, begun: TimelineEntry | None) -> None:
        """`begun`: the object that begun() was called with, None for what is recorded only at its end."""
        ...

    def within(self, entry: TimelineEntry) -> AbstractContextManager[None]:
        """Entered by the task that does the step."""
        ...

    def context_of(self, what: Activity) -> SpanContext | None:
        """The span of this step, which is under way."""
        ...


class Timeline:
    """The timeline of one pod; only its worker and the worker's steps write."""

    def __init__(self, clock: Clock, follower: Follower | None = None) -> None:
        self._clock, self._follower = clock, follower
        self._done: list[TimelineEntry] = []
        self._open: dict[int, tuple[float, TimelineEntry]] = {}
        self._numbers = itertools.count()

    @contextmanager
    def step(
        self,
        what: Activity,
        *,
        of: Activity | None = None,
        note: str = "",
        probe: ProbeKind | None = None,
        attempt: int | None = None,
    ) -> Iterator[None]:
        """A step that lasts as long as the block; if the block raises, the error is the outcome."""
        now = self._clock.now()
        key = self._open_entry(TimelineEntry(now, what, of=of, note=note, probe=probe, attempt=attempt))
        outcome = "ok"
        try:
            with self._follower.within(self._open[key][1]) if self._follower is not None else nullcontext():
                yield
        except asyncio.CancelledError:
            outcome = "interrupted"
            raise
        except NodewrightError as error:
            outcome = str(error)
            raise
        except Exception as error:
            outcome = repr(error)
            raise
        finally:
            self.end(key, outcome)

    def begin(self, what: Activity) -> int:
        """Begin a step; pass the key to end()."""
        return self._open_entry(TimelineEntry(self._clock.now(), what))

    def end(self, key: int, outcome: str = "ok") -> None:
        """End a step; does nothing if it has already ended."""
        if key in self._open:
            began, begun = self._open.pop(key)
            self._add(replace(begun, seconds=self._clock.monotonic() - began, outcome=outcome), begun)

    def mark(
        self,
        what: Activity,
        seconds: float = 0.0,
        outcome: str = "ok",
        *,
        of: Activity | None = None,
        attempt: int | None = None,
        ago: float = 0.0,
    ) -> None:
        """Something that ended `ago` seconds before now, and took `seconds`."""
        self._add(TimelineEntry(self._clock.now() - ago - seconds, what, seconds, outcome, of, attempt=attempt))

    def span_of(self, what: Activity) -> SpanContext | None:
        """Of this step, if it is under way and traced."""
        return None if self._follower is None else self._follower.context_of(what)

    def entries(self) -> tuple[TimelineEntry, ...]:
        """What has ended, in the order of first beginnings."""
        return tuple(sorted(self._done, key=lambda one: one.at))

    def under_way(self) -> tuple[TimelineEntry, ...]:
        return tuple(begun for _, begun in self._open.values())

    def _open_entry(self, entry: TimelineEntry) -> int:
        key = next(self._numbers)
        self._open[key] = (self._clock.monotonic(), entry)
        if self._follower is not None:
            self._follower.begun(entry)
        return key

    def _add(self, fresh: TimelineEntry, begun: TimelineEntry | None = None) -> None:
        if self._follower is not None:
            self._follower.ended(fresh, begun)
        for index in range(len(self._done) - 1, -1, -1):
            known = self._done[index]
            if (known.what, known.of) == (fresh.what, fresh.of):
                if (_comparable(known.outcome), known.note) != (_comparable(fresh.outcome), fresh.note):
                    break
                self._done[index] = replace(
                    known, seconds=fresh.seconds, attempt=fresh.attempt, times=known.times + 1, last_at=fresh.at
                )
                return
        self._done.append(replace(fresh, last_at=fresh.at))
        del self._done[:-_KEPT]


def _comparable(outcome: str) -> str:
    return _EACH_TIME.sub("*", outcome)
