"""Whether the user asked for silence (`--quiet`); it holds for all that a command starts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

_QUIET: ContextVar[bool] = ContextVar("quiet", default=False)


def is_quiet() -> bool:
    """Whether progress and hints are left out."""
    return _QUIET.get()


@contextlib.contextmanager
def quietly(asked: bool) -> Iterator[None]:
    """While the block runs, progress and hints are left out if that was `asked`."""
    token = _QUIET.set(asked)
    try:
        yield
    finally:
        _QUIET.reset(token)
