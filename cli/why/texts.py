"""Times and long texts as people read them. Pure, except that clock() knows the time zone."""

from __future__ import annotations

import time

from nodelib.durations import span
from nodelib.text import cut as shorter

_TEXT = 600  # bytes of one error


def cut(text: str) -> str:
    """A long text loses its middle, since causes come last."""
    return shorter(text, _TEXT)


def clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at)) + f".{int(at * 1000) % 1000:03d}"


def ago(at: float, now: float) -> str:
    return f"{span(now - at)} ago" if at else "at an unknown time"
