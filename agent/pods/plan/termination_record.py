"""The checkpoint pod_endings: which pods terminate since when, so that a restart of the agent gives no new grace."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from agent.pods.model.facts import Cause, Termination
from nodelib.errors import Invalid

# A pod that finished or was rejected has nothing left that could need a grace.
_RECORDED = (Cause.DELETED, Cause.REMOVED, Cause.DEADLINE, Cause.EVICTED)


def is_recorded(termination: Termination | None) -> bool:
    """Whether the checkpoint keeps it."""
    return termination is not None and termination.cause in _RECORDED


def encode(terminations: Mapping[str, Termination]) -> str:
    """By pod UID."""
    listed = {
        uid: {
            "cause": one.cause.value,
            "since": one.since,
            "grace": one.grace,
            "reason": one.reason,
            "message": one.message,
            "disrupted": one.disrupted,
        }
        for uid, one in sorted(terminations.items())
    }
    return json.dumps({"version": 1, "endings": listed})


def decode(text: str) -> dict[str, Termination]:
    """By pod UID. Raises Invalid if the text is not such a checkpoint."""
    try:
        return {str(uid): _termination(one) for uid, one in json.loads(text)["endings"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Invalid(
            f"not a record of pod terminations: {type(error).__name__}: {error}", step="read checkpoint"
        ) from error


def restored(termination: Termination, now: float) -> Termination:
    """The termination after a restart: a clock that was set back must not lengthen its grace."""
    return replace(termination, since=min(termination.since, now))


def _termination(one: Mapping[str, object]) -> Termination:
    return Termination(
        cause=Cause(one["cause"]),
        since=float(str(one["since"])),
        grace=int(str(one["grace"])),
        reason=str(one["reason"]),
        message=str(one["message"]),
        disrupted=bool(one["disrupted"]),
    )
