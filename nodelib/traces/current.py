"""The span that this task works for, so that a call to another program can name it as its parent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from nodelib.traces.model import SpanContext

_CURRENT: ContextVar[SpanContext | None] = ContextVar("span", default=None)


def current() -> SpanContext | None:
    """None: what this task does is not traced."""
    return _CURRENT.get()


@contextmanager
def working_for(span: SpanContext | None) -> Iterator[None]:
    """During the block, and in tasks that are made in it."""
    token = _CURRENT.set(span)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def from_now_on(span: SpanContext | None) -> None:
    """Until the enclosing working_for() or this task ends, and in tasks that are made until then."""
    _CURRENT.set(span)
