"""What a daemon does as a tree of spans: a Tracer begins a trace, and each `with step("…")` below it is a span of it.

For work that many changes share, such as a sync. Where nothing is traced, `step()` gives the same object to everybody,
and nothing is made or measured. The spans of a trace leave when its first span ends, so that whoever finds that there
was nothing to do can drop them all.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from dataclasses import dataclass
from types import TracebackType

from nodelib.clock import Clock
from nodelib.text import one_line
from nodelib.traces.model import SPAN_BYTES, TRACE_BYTES, Span, SpanContext
from nodelib.traces.sampling import is_sampled

MOST = 256  # spans of one trace: a sync may be refused and tried for each of its parts
_WORDS = 1024  # bytes of an error
LEFT_OUT = "nodewright.spans_left_out"
QUEUED = "change queued"

Sink = Callable[[Span], None]
Moment = tuple[float, float]  # of the wall clock, and of the monotonic one


class OpenSpan:
    """A span under way; a context manager. What raises in its block is its error. One of a Tracer, or of step()."""

    __slots__ = (
        "_begin",
        "_name",
        "_parent",
        "_started",
        "_token",
        "_trace",
        "attributes",
        "context",
        "error",
        "links",
    )

    def __init__(self, trace: _Trace, name: str, parent: bytes, since: Moment) -> None:
        self.context = SpanContext(trace.id, os.urandom(SPAN_BYTES))
        self.attributes: dict[str, str | int] = {}
        self.links: tuple[SpanContext, ...] = ()
        self.error = ""
        self._trace, self._name, self._parent = trace, name, parent
        self._begin, self._started = since
        self._token: Token[OpenSpan | None] | None = None

    def below(self, name: str) -> OpenSpan:
        """A part of this one that begins now."""
        return OpenSpan(self._trace, name, self.context.span, self._trace.tracer.moment())

    def record(self, name: str, begin: float, seconds: float, **attributes: str | int) -> None:
        """A part of this one that has ended."""
        context = SpanContext(self._trace.id, os.urandom(SPAN_BYTES))
        self._trace.add(Span(context, name, begin, seconds, self.context.span, attributes))

    def drop(self) -> None:
        """Nothing of this trace is worth telling, unless it ends with an error."""
        self._trace.dropped = True

    def __enter__(self) -> OpenSpan:
        self._token = _CURRENT.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._token is not None:
            _CURRENT.reset(self._token)
        if error is not None:
            self.error = _words(error)
        seconds = self._trace.tracer.clock.monotonic() - self._started
        parts = (self._parent, self.attributes, self.error)
        span = Span(self.context, self._name, self._begin, seconds, *parts, links=self.links)
        if self._trace.first is self:
            self._trace.end(span)
        else:
            self._trace.add(span)


class _NotTraced:
    """Stands for a span where there is none."""

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        return None


Step = AbstractContextManager[OpenSpan | None]
NOT_TRACED: Step = _NotTraced()
_CURRENT: ContextVar[OpenSpan | None] = ContextVar("open span", default=None)


def step(name: str) -> Step:
    """A part of what this task is traced for; to be entered. What the block gets is None if nothing is."""
    above = _CURRENT.get()
    return NOT_TRACED if above is None else above.below(name)


@dataclass(frozen=True, slots=True)
class Tracer:
    """Begins the traces of one daemon: `per_million` of those that begin here."""

    sink: Sink
    per_million: int
    clock: Clock

    def moment(self) -> Moment:
        return self.clock.now(), self.clock.monotonic()

    def begin(self, name: str, since: Moment | None = None) -> Step:
        """A trace that began at `since`, or now. NOT_TRACED if it is none of those that are kept."""
        trace = os.urandom(TRACE_BYTES)
        if not is_sampled(trace, self.per_million):
            return NOT_TRACED
        return _Trace(self, trace, name, b"", since).first

    def within(self, parent: SpanContext, name: str) -> Step:
        """A part of another program's trace, which has decided that it is kept."""
        return _Trace(self, parent.trace, name, parent.span, None).first


class QueuedTraces:
    """Traces of work that takes all changes which wait for it, such as a sync: each begins with the first of them."""

    def __init__(self, tracer: Tracer, name: str) -> None:
        self._tracer, self._name = tracer, name
        self._since: Moment | None = None

    def queued(self) -> None:
        """A change waits for the next one."""
        if self._since is None:
            self._since = self._tracer.moment()

    def begin(self) -> Step:
        """The work begins: it takes all changes that wait."""
        since, self._since = self._since, None
        made = self._tracer.begin(self._name, since)
        if since is not None and isinstance(made, OpenSpan):
            _, now = self._tracer.moment()
            made.record(QUEUED, since[0], now - since[1])
        return made


class _Trace:
    """What this process adds to one trace."""

    def __init__(self, tracer: Tracer, trace: bytes, name: str, parent: bytes, since: Moment | None) -> None:
        self.id, self.tracer = trace, tracer
        self.dropped = False
        self._ended, self._left_out = False, 0
        self._spans: list[Span] = []
        self.first = OpenSpan(self, name, parent, since or tracer.moment())

    def add(self, span: Span) -> None:
        if self._ended:
            return  # of a task that outlives what began it
        if len(self._spans) < MOST:
            self._spans.append(span)
        else:
            self._left_out += 1

    def end(self, first: Span) -> None:
        self._ended = True
        spans, self._spans = self._spans, []  # a task that was begun here may keep this for as long as it lives
        if self.dropped and not first.error:
            return
        if self._left_out:
            self.first.attributes[LEFT_OUT] = self._left_out
        _send(self.tracer.sink, (*spans, first))


def _send(sink: Sink, spans: Iterable[Span]) -> None:
    for span in spans:
        sink(span)


def _words(error: BaseException) -> str:
    if isinstance(error, asyncio.CancelledError):
        return "interrupted"
    return one_line(str(error) or type(error).__name__, _WORDS)
