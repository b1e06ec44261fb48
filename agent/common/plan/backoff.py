"""Back-off of restarts and pulls: doubling between bounds (10 s to 300 s by default), reset after 10 quiet minutes.

Follows k8s.io/client-go/util/flowcontrol.Backoff as the kubelet uses it: what counts is the time of the event (a
container's exit, a failed pull), not the time at which it is noticed.
"""

from __future__ import annotations

from agent.common.model.states import BackOff, BackOffBounds

_QUIET = 600.0  # seconds, all of them
_STEP_FIRST = 1.0
_STEP_LONGEST = 10.0


def extended(entry: BackOff | None, event_at: float, now: float, bounds: BackOffBounds) -> BackOff:
    """The back-off once another try begins `now`, after the failure at `event_at`."""
    if entry is None or _expired(entry, event_at):
        return BackOff(bounds.first, now)
    return BackOff(min(entry.delay * 2, bounds.longest), now)


def until(entry: BackOff | None, event_at: float) -> float:
    """The time before which there is no other try after the event at `event_at`; 0.0: no back-off."""
    if entry is None or _expired(entry, event_at):
        return 0.0
    return event_at + entry.delay


def next_at(entry: BackOff | None) -> float:
    """The time before which there is no other try after the last one, whenever that failed; 0.0: no back-off."""
    return entry.updated_at + entry.delay if entry is not None else 0.0


def derived(attempt: int, started_at: float, finished_at: float, bounds: BackOffBounds) -> BackOff | None:
    """The back-off of an attempt that has ended, as an agent derives it that has just started.

    The first attempt has none, and an attempt that ran for ten minutes resets it.
    """
    if attempt < 1 or finished_at - started_at > _QUIET:
        return None
    return BackOff(min(bounds.first * 2 ** min(attempt - 1, 9), bounds.longest), started_at)


def step_delay(times: int) -> float:
    """Seconds before a step that failed `times` times in a row is tried again."""
    return min(_STEP_FIRST * 2.0 ** min(max(times - 1, 0), 8), _STEP_LONGEST)


def _expired(entry: BackOff, event_at: float) -> bool:
    return event_at - entry.updated_at > _QUIET
