"""Why containers ended: by themselves, out of memory, or stopped by the node."""

from __future__ import annotations

from collections.abc import Iterator

from agent.common.model.pods import ContainerState, RunState
from agent.explain.model import End
from agent.explain.plan.record import Record
from agent.pods.model.timeline import Activity, ActivityKind, TimelineEntry
from agent.pods.plan.container_exits import how
from agent.probes.model import ProbeAnswer
from nodelib.text import cut

_MESSAGE_LIMIT = 300  # characters of a termination message, from its end
_ERROR_LIMIT = 600  # bytes of the runtime's error


def ends(record: Record) -> Iterator[End]:
    """Every container of the pod that has exited."""
    for one in record.seen.containers:
        if one.state is RunState.EXITED:
            yield End(one.name, one.finished_at / 1e9, how(one), _reason(record, one), one.attempt + 1)


def _reason(record: Record, one: ContainerState) -> str:
    if one.reason == "OOMKilled":
        return out_of_memory(record, one.name)
    return stopped_for(record, one) or last_message(one)


def last_message(one: ContainerState) -> str:
    """The end of its termination message, or the runtime's error for one that never started."""
    text = one.message.strip()
    if one.reason == "StartError":
        return cut(text, _ERROR_LIMIT)
    return text if len(text) <= _MESSAGE_LIMIT else f"…{text[-_MESSAGE_LIMIT:]}"


def fatal_probe(record: Record, one: ContainerState) -> ProbeAnswer | None:
    """The probe that this attempt was stopped for, if its answer is still known."""
    stop = _stop_of(record, one)
    for answer in record.probes:
        if stop is not None and answer.container == one.name and answer.kind is stop.probe and answer.outcome:
            return answer
    return None


def stopped_for(record: Record, one: ContainerState) -> str:
    """Why the node stopped it; "" when it ended by itself."""
    stop = _stop_of(record, one)
    return stop.note if stop is not None else ""


def _stop_of(record: Record, one: ContainerState) -> TimelineEntry | None:
    """The stop that ended this attempt."""
    at, stopping = one.finished_at / 1e9, Activity(ActivityKind.STOP, one.name)
    for stop in record.timeline:
        # One entry counts equal stops of several attempts. It ends with the newest of them.
        newest = max(stop.last_at, stop.at) + (stop.seconds or 0) + 1
        if stop.what == stopping and stop.note and stop.at <= at <= newest:
            return stop
    return None


def out_of_memory(record: Record, name: str) -> str:
    """The limit that container `name` ran into, and what to do."""
    found = record.pod.container(name)
    limit = (((found[1].get("resources") or {}).get("limits") or {}).get("memory", "")) if found else ""
    had = f"It used more memory than its limit of {limit}" if limit else "The node or the pod ran out of memory"
    return f"{had}. {record.action('OOMKilled', '', name)}"
