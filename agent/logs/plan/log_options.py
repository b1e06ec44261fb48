"""What a request for a container's log asks for, and which container id it means.

Follows v1 PodLogOptions with its validation, and validateContainerLogStatus of pkg/kubelet/kubelet_pods.go.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from agent.logs.model import STREAMS, LogOptions
from agent.logs.plan.log_lines import timestamp_ns
from nodelib.errors import Invalid, NotFound, Temporary
from nodelib.json_values import Json

_NANO = 1_000_000_000
_INT = re.compile(r"[+-]?[0-9]{1,30}")
_WAITING = {
    "ErrImagePull": "image can't be pulled",
    "ImagePullBackOff": "trying and failing to pull image",
}


class InvalidQuery(Invalid):
    """Query parameters that cannot be parsed (HTTP 400) or have values that are not allowed (422)."""

    def __init__(self, message: str, *, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class NotStarted(Temporary):
    """The container has no log yet. The message says what it waits for."""


def parse_options(query: Mapping[str, str], now: float) -> LogOptions:
    """Parse the query of /containerLogs; `now` in seconds. Raises InvalidQuery with upstream's status codes."""
    tail = query.get("tail") or query.get("tailLines")
    options = LogOptions(
        follow=_flag(query, "follow"),
        previous=_flag(query, "previous"),
        timestamps=_flag(query, "timestamps"),
        tail_lines=None if tail in (None, "", "all") else _number(str(tail)),
        limit_bytes=_optional(query, "limitBytes"),
        since=_since(query, now),
        stream=query.get("stream") or "All",
    )
    _validate(options, query)
    return options


def _validate(options: LogOptions, query: Mapping[str, str]) -> None:
    seconds = _optional(query, "sinceSeconds")
    wrong = (
        (options.tail_lines is not None and options.tail_lines < 0)
        or (options.limit_bytes is not None and options.limit_bytes < 1)
        or (seconds is not None and (seconds < 1 or bool(query.get("sinceTime"))))
        or (options.stream != "All" and (options.stream not in STREAMS or options.tail_lines is not None))
    )
    if wrong:
        raise InvalidQuery('{"message": "Invalid request."}', status=422)


def _since(query: Mapping[str, str], now: float) -> int | None:
    seconds = _optional(query, "sinceSeconds")
    if seconds is not None:
        return int(now * _NANO) - seconds * _NANO
    text = query.get("sinceTime")
    if not text:
        return None
    try:
        return timestamp_ns(text.encode())
    except ValueError as error:
        raise _unreadable() from error


def _optional(query: Mapping[str, str], key: str) -> int | None:
    text = query.get(key)
    return _number(text) if text else None


def _number(text: str) -> int:
    # As Go's ParseInt: int() would also take "1_000", " 7 " and the digits of other scripts.
    if not _INT.fullmatch(text) or not -(2**63) <= (found := int(text)) < 2**63:
        raise _unreadable()
    return found


def _flag(query: Mapping[str, str], key: str) -> bool:
    # Any other value is true, the empty one too (runtime.Convert_Slice_string_To_bool of apimachinery).
    return key in query and query[key].lower() not in ("0", "false")


def _unreadable() -> InvalidQuery:
    return InvalidQuery('{"message": "Unable to decode query."}')


def container_id(pod_name: str, status: Json, container: str, previous: bool) -> str:
    """The id of the container that has the log, as the status has it. Raises NotFound, NotStarted, as upstream."""
    found = _container_status(status, container)
    if found is None:
        raise NotFound(f'container "{container}" in pod "{pod_name}" is not available')
    state = found.get("state") or {}
    last = (found.get("lastState") or {}).get("terminated") or {}
    if previous:
        if not last.get("containerID"):
            raise NotFound(f'previous terminated container "{container}" in pod "{pod_name}" not found')
        chosen = last["containerID"]
    elif state.get("running") is not None:
        chosen = found.get("containerID", "")
    elif state.get("terminated") is not None or last:
        chosen = (state.get("terminated") or {}).get("containerID") or last.get("containerID")
        if not chosen:
            raise NotFound(f'container "{container}" in pod "{pod_name}" is terminated')
    elif state.get("waiting") is not None:
        reason = str(state["waiting"].get("reason", ""))
        why = _WAITING.get(reason, reason)
        raise NotStarted(f'container "{container}" in pod "{pod_name}" is waiting to start: {why}')
    else:
        raise NotStarted(f'container "{container}" in pod "{pod_name}" is waiting to start - no logs yet')
    return str(chosen)


def _container_status(status: Json, container: str) -> Json | None:
    for kind in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"):
        for entry in status.get(kind) or []:
            if entry.get("name") == container:
                found: Json = entry
                return found
    return None
