"""The back-off of what is tried again: of a container that is about to start anew, of a sandbox that was replaced."""

from __future__ import annotations

from agent.common.model.pods import RunState
from agent.common.plan import backoff
from agent.pods.plan.restart_backoff import SANDBOX, backoff_key
from agent.pods.work.steps.context import Context
from nodelib.json_values import Json


def extend(context: Context, container: Json) -> None:
    """The container's newest attempt has ended, and another begins."""
    memory, key = context.memory, backoff_key(container)
    latest = memory.seen.latest(container["name"])
    if latest is not None and latest.state is RunState.EXITED:
        ended = memory.ended.get(latest.id, latest.finished_at / 1e9)
        _extend(context, key, ended)


def extend_by_id(context: Context, container_id: str) -> None:
    """As extend(), of the container with this record."""
    one = context.memory.seen.container(container_id)
    found = context.memory.pod.container(one.name) if one is not None else None
    if found is not None:
        extend(context, found[1])


def extend_sandbox(context: Context) -> None:
    """The pod's sandbox is replaced."""
    _extend(context, SANDBOX, context.deps.clock.steady())


def _extend(context: Context, key: str, ended: float) -> None:
    known, now = context.memory.backoff, context.deps.clock.steady()
    known[key] = backoff.extended(known.get(key), ended, now, context.deps.containers.restarts)
