"""Errors that say what to do.

The class is for the caller: retry, give up, or read again. The fields are for the user: which object, which step, why,
and what to do about it.
"""

from __future__ import annotations


class NodewrightError(Exception):
    """Base of every error that this project raises on purpose.

    `retry_after`: seconds to wait before another try, None: the caller's own back-off.
    """

    retry_after: float | None = None

    def __init__(self, message: str, *, obj: str = "", step: str = "", action: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.obj = obj
        self.step = step
        self.action = action

    def __str__(self) -> str:
        head = ": ".join(part for part in (self.obj, self.step, self.message) if part)
        return f"{head}. {self.action}" if self.action else head


class Temporary(NodewrightError):
    """Worth another try. `retry_after`: seconds, None: the caller's own back-off."""

    def __init__(
        self, message: str, *, retry_after: float | None = None, obj: str = "", step: str = "", action: str = ""
    ) -> None:
        super().__init__(message, obj=obj, step=step, action=action)
        self.retry_after = retry_after


class Permanent(NodewrightError):
    """Another try is pointless until something else changes."""


class Invalid(Permanent):
    """The input itself is wrong."""


class WrongUsage(Invalid):
    """The command line is wrong: an option or operand that cannot be. Nothing was done."""


class NotFound(Permanent):
    """The thing asked for does not exist."""


class Conflict(Temporary):
    """Somebody else changed the object first: read it again and decide again."""
