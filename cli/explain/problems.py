"""A problem, with what to do about it. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong in one sentence, and what to do about it in another, "" when nothing is known."""

    text: str
    action: str = ""
