"""Back-off of restarts and pulls: from 10 s doubling to 300 s, reset after 10 quiet minutes.

Follows k8s.io/client-go/util/flowcontrol.Backoff as the kubelet uses it: what counts is the time of the event (a
container's exit, a failed pull), not the time at which it is noticed.
"""

from __future__ import annotations

from agent.common.model.states import BackOff

FIRST = 10.0  # seconds, all of them
LONGEST = 300.0
_STEP_FIRST = 1.0
_STEP_LONGEST = 10.0


def extended(
    entry: BackOff | None, event_at: float, now: float, first: float = FIRST, longest: float = LONGEST
) -> BackOff:
    """The back-off once another try begins `now`, after the failure at `event_at`."""
    if entry is None or _expired(entry, event_at, longest):
        return BackOff(first, now)
    return BackOff(min(entry.delay * 2, longest), now)


def until(entry: BackOff | None, event_at: float, longest: float = LONGEST) -> float:
    """The time before which there is no other try after the event at `event_at`; 0.0: no back-off."""
    if entry is None or _expired(entry, event_at, longest):
        return 0.0
    return event_at + entry.delay


def derived(attempt: int, started_at: float, finished_at: float) -> BackOff | None:
    """The back-off of an attempt that has ended, as an agent derives it that has just started.

    The first attempt has none, and an attempt that ran for ten minutes resets it.
    """
    if attempt < 1 or finished_at - started_at > 2 * LONGEST:
        return None
    return BackOff(min(FIRST * 2 ** min(attempt - 1, 8), LONGEST), started_at)


def step_delay(times: int) -> float:
    """Seconds before a step that failed `times` times in a row is tried again."""
    return min(_STEP_FIRST * 2.0 ** min(max(times - 1, 0), 8), _STEP_LONGEST)


def _expired(entry: BackOff, event_at: float, longest: float) -> bool:
    return event_at - entry.updated_at > 2 * longest
