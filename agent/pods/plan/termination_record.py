"""The checkpoint pod_endings: which pods terminate since when, so that a restart of the agent gives no new grace."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from agent.pods.model.facts import Cause, Termination
from nodelib.errors import Invalid
from nodelib.json_values import decode as decode_json

# A pod that finished or was rejected has nothing left that could need a grace.
_RECORDED = (Cause.DELETED, Cause.REMOVED, Cause.DEADLINE, Cause.EVICTED)


def is_recorded(termination: Termination | None) -> bool:
    """Whether the checkpoint keeps it."""
    return termination is not None and termination.cause in _RECORDED


@dataclass(frozen=True, slots=True)
class Moment:
    """One moment on each clock (nodelib/clock.py): the steady one counts anew in each process, the others do not.

    `monotonic` counts from the boot of the machine; nothing of a pod runs on after that.
    """

    wall: float
    monotonic: float
    steady: float


def encode(terminations: Mapping[str, Termination], now: Moment) -> str:
    """By pod UID. The age of each is kept by the monotonic clock; `since` is for people."""
    listed = {
        uid: {
            "cause": one.cause.value,
            "since": one.since - now.steady + now.wall,
            "monotonic": one.since - now.steady + now.monotonic,
            "grace": one.grace,
            "reason": one.reason,
            "message": one.message,
            "disrupted": one.disrupted,
        }
        for uid, one in sorted(terminations.items())
    }
    return json.dumps({"version": 1, "endings": listed})


def decode(text: str, now: Moment) -> dict[str, Termination]:
    """By pod UID. Raises Invalid if the text is not such a checkpoint."""
    try:
        return {str(uid): _termination(one, now) for uid, one in decode_json(text)["endings"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Invalid(
            f"not a record of pod terminations: {type(error).__name__}: {error}", step="read checkpoint"
        ) from error


def _termination(one: Mapping[str, object], now: Moment) -> Termination:
    known = one.get("monotonic")
    age = now.wall - float(str(one["since"])) if known is None else now.monotonic - float(str(known))
    return Termination(
        cause=Cause(one["cause"]),
        since=now.steady - max(0.0, age),
        grace=int(str(one["grace"])),
        reason=str(one["reason"]),
        message=str(one["message"]),
        disrupted=bool(one["disrupted"]),
    )
