"""Whether the user asked for silence (`--quiet`), which holds for all that a command starts; and what it silences."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

_QUIET: ContextVar[bool] = ContextVar("quiet", default=False)


def is_quiet() -> bool:
    """Whether progress and hints are left out."""
    return _QUIET.get()


def note(text: str) -> None:
    """Print how it went and what to try next, which --quiet leaves out."""
    if not is_quiet():
        print(text)


@contextlib.contextmanager
def quietly(asked: bool) -> Iterator[None]:
    """While the block runs, progress and hints are left out if that was `asked`."""
    token = _QUIET.set(asked)
    try:
        yield
    finally:
        _QUIET.reset(token)
