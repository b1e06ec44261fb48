"""How waits are made: of a failed step, of a back-off, with their advice."""

from __future__ import annotations

from agent.common.model.states import Failure
from agent.explain.model import Wait
from agent.explain.plan.record import Record
from agent.pods.model.timeline import Activity, ActivityKind, TimelineEntry


def failed_step(record: Record, on: str, failure: Failure, container: str = "") -> Wait:
    action = failure.action or record.action(failure.reason, failure.message, container)
    begun = record.facts.shown(failure.since) if failure.since else None
    next_try = record.facts.shown(max(failure.retry_at, record.facts.now))
    return Wait(on, failure.reason, failure.message, action, begun, next_try, failure.times)


def wait_for(
    record: Record,
    on: str,
    reason: str,
    error: str = "",
    *,
    container: str = "",
    retry_at: float | None = None,
    begun: TimelineEntry | None = None,
    pull_policy: str = "",
) -> Wait:
    """`retry_at` in steady seconds."""
    next_try = record.facts.shown(retry_at) if retry_at is not None else None
    action = record.action(reason, error, container, pull_policy)
    return Wait(on, reason, error, action, begun.at if begun else None, next_try, begun.times if begun else 0)


def newest_failure(record: Record, *activities: Activity) -> TimelineEntry | None:
    """The newest failures (or container ends) in the timeline, of the first activity that has any."""
    for what in activities:
        newest = next((one for one in reversed(record.timeline) if one.what == what), None)
        if newest is not None and (newest.outcome != "ok" or what.kind is ActivityKind.ENDED):
            return newest
    return None
