"""The span that this task works for, so that a call to another program can name it as its parent."""

from __future__ import annotations

from contextvars import ContextVar, Token
from types import TracebackType

from nodelib.traces.model import SpanContext

_CURRENT: ContextVar[SpanContext | None] = ContextVar("span", default=None)


def current() -> SpanContext | None:
    """None: what this task does is not traced."""
    return _CURRENT.get()


class working_for:
    """During the block, and in tasks that are made in it. A class: contextlib's take four times as long to enter."""

    __slots__ = ("_span", "_token")

    def __init__(self, span: SpanContext | None) -> None:
        self._span = span

    def __enter__(self) -> None:
        self._token: Token[SpanContext | None] = _CURRENT.set(self._span)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        _CURRENT.reset(self._token)


def from_now_on(span: SpanContext | None) -> None:
    """Until the enclosing working_for() or this task ends, and in tasks that are made until then."""
    _CURRENT.set(span)
