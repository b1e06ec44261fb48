"""The text of pod_endings: which pods are on their way out since when, so that no grace starts anew with the agent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from agent.pods.model.facts import Cause, Termination
from nodelib.errors import Invalid

# A pod whose containers ended by themselves has nothing left to wait for, and one that was refused nothing that runs.
_REMEMBERED = (Cause.DELETED, Cause.REMOVED, Cause.DEADLINE, Cause.EVICTED)


def is_remembered(termination: Termination | None) -> bool:
    return termination is not None and termination.cause in _REMEMBERED


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
    """Raises Invalid for what this agent has not written whole."""
    try:
        return {str(uid): _ending(one) for uid, one in json.loads(text)["endings"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Invalid(f"it is no record of endings: {type(error).__name__}: {error}", step="read checkpoint") from error


def restored(termination: Termination, now: float) -> Termination:
    """As it counts now: a clock that was set back must not make a grace longer than it was."""
    return replace(termination, since=min(termination.since, now))


def _ending(one: Mapping[str, object]) -> Termination:
    return Termination(
        cause=Cause(one["cause"]),
        since=float(str(one["since"])),
        grace=int(str(one["grace"])),
        reason=str(one["reason"]),
        message=str(one["message"]),
        disrupted=bool(one["disrupted"]),
    )
