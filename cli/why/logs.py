"""Which containers' logs answer why a pod is not well, and their last lines. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cli.why.model import LogTail, namespace_of, status_of
from nodelib.json_values import Json, object_or_empty, objects_in
from nodelib.text import one_line

LINES = 10  # of one container
BYTES = 16 * 1024
_LINE = 300  # bytes of one line
_MOST = 3  # containers of one pod
_NO_LOG = ("StartError", "ContainerStatusUnknown")  # it never ran, or its log is gone


@dataclass(frozen=True, slots=True)
class LogWanted:
    """`previous`: the container runs again, and the log is that of the attempt before."""

    namespace: str
    pod: str
    container: str
    previous: bool


def wanted(pod: Json) -> list[LogWanted]:
    """The containers that ended badly, or end again and again."""
    return list(_wanted(pod))[:_MOST]


def _wanted(pod: Json) -> Iterator[LogWanted]:
    meta, status = pod["metadata"], status_of(pod)
    for one in (*objects_in(status.get("initContainerStatuses")), *objects_in(status.get("containerStatuses"))):
        state, last = object_or_empty(one.get("state")), object_or_empty(one.get("lastState"))
        ended = object_or_empty(state.get("terminated")) or object_or_empty(last.get("terminated"))
        looping = object_or_empty(state.get("waiting")).get("reason") == "CrashLoopBackOff"
        bad = bool(ended.get("exitCode")) or looping
        if ended and bad and not one.get("ready") and ended.get("reason") not in _NO_LOG:
            yield LogWanted(namespace_of(pod), meta["name"], str(one.get("name")), "running" in state)


def tail(container: str, text: str) -> LogTail | None:
    """The last lines, none of which can drive a terminal; None for an empty log."""
    lines = [one_line(line.rstrip("\r"), _LINE) for line in text.split("\n")]
    while lines and not lines[-1].strip():
        lines.pop()
    return LogTail(container, tuple(lines[-LINES:])) if lines else None
