"""The record of what was done for a pod. Times in wall seconds since the epoch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """Something that was done for a pod, or came of it.

    `seconds` None: under way. `outcome`: "ok", or what went wrong. `of`: the step that it is a part of; `note`: why it
    was done. The same with the same outcome, over and over, is one: `times` of it, the newest at `last_at`.
    """

    at: float
    step: str
    seconds: float | None = None
    outcome: str = "ok"
    of: str = ""
    note: str = ""
    times: int = 1
    last_at: float = 0.0
