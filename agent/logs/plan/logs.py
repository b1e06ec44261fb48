"""Container logs: what a request asks for, which container it means, and which bytes of a CRI log answer it.

Specification: v1 PodLogOptions and its validation, validateContainerLogStatus of
pkg/kubelet/kubelet_pods.go, and the CRI logging format (k8s.io/cri-client/pkg/logs). The
line filter is fed with whole lines and keeps no clock and no file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from nodelib.errors import Invalid, NotFound, Temporary

Json = dict[str, Any]

_NANO = 1_000_000_000
_STREAMS = {"Stdout": b"stdout", "Stderr": b"stderr"}
_WAITING = {
    "ErrImagePull": "image can't be pulled",
    "ImagePullBackOff": "trying and failing to pull image",
}


@dataclass(frozen=True, slots=True)
class LogOptions:
    """v1 PodLogOptions as the kubelet takes them; `since` in nanoseconds since the epoch."""

    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail_lines: int | None = None
    limit_bytes: int | None = None
    since: int | None = None
    stream: str = "All"


class InvalidQuery(Invalid):
    """Query parameters that cannot be read: HTTP 400 (values that are not allowed: 422)."""

    def __init__(self, message: str, *, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class NotStarted(Temporary):
    """The container has no log yet; the text says what it waits for."""


def parse_options(query: Mapping[str, str], now: float) -> LogOptions:
    """Read the query of /containerLogs; `now` in seconds. Raises InvalidQuery with upstream's status codes."""
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
        or (options.stream != "All" and (options.stream not in _STREAMS or options.tail_lines is not None))
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
    try:
        return int(text)
    except ValueError as error:
        raise _unreadable() from error


def _flag(query: Mapping[str, str], key: str) -> bool:
    # Every other word is true, the empty one too (runtime.Convert_Slice_string_To_bool of apimachinery).
    return key in query and query[key].lower() not in ("0", "false")


def _unreadable() -> InvalidQuery:
    return InvalidQuery('{"message": "Unable to decode query."}')


def container_id(pod_name: str, status: Json, container: str, previous: bool) -> str:
    """The id (without its runtime prefix) whose log is meant. Raises NotFound or NotStarted with upstream's texts."""
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
    return str(chosen).rpartition("://")[2]


def _container_status(status: Json, container: str) -> Json | None:
    for kind in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"):
        for entry in status.get(kind) or []:
            if entry.get("name") == container:
                found: Json = entry
                return found
    return None


def timestamp_ns(text: bytes) -> int:
    """Nanoseconds since the epoch of an RFC 3339 time. Raises ValueError."""
    whole, _, rest = text.partition(b".")
    if not rest:
        return _parse(text.decode("ascii")) * _NANO
    digits = len(rest) - len(rest.lstrip(b"0123456789"))
    if not 1 <= digits <= 9:
        raise ValueError(f"{text!r} is no RFC 3339 time")
    return _parse((whole + rest[digits:]).decode("ascii")) * _NANO + int(rest[:digits].ljust(9, b"0"))


def _parse(text: str) -> int:
    if len(text) < 20:
        raise ValueError(f"{text!r} is no RFC 3339 time")
    return round(datetime.fromisoformat(text).timestamp())


def fixed_width(text: bytes) -> bytes:
    """The same time with nine digits after the point, as `kubectl logs --timestamps` shows it."""
    whole, point, rest = text.partition(b".")
    if not point:
        return text[:19] + b".000000000" + text[19:]
    digits = len(rest) - len(rest.lstrip(b"0123456789"))
    return whole + b"." + rest[:digits].ljust(9, b"0") + rest[digits:]


class LineFilter:
    """Turns lines of a CRI log into the bytes of the answer.

    A line is `<RFC 3339 time> <stdout|stderr> <tags> <content>`; the tag P says that the
    content goes on in the next line of that stream. Lines that are nothing of the kind are
    counted in `malformed` and left out, as upstream does. `done` is true once limitBytes is
    reached: nothing more will come out.
    """

    def __init__(self, options: LogOptions) -> None:
        self._timestamps = options.timestamps
        self._since = options.since
        self._stream = _STREAMS.get(options.stream)
        self._remain = options.limit_bytes
        self._at_line_start = True
        self._seconds: tuple[bytes, int] = (b"", 0)
        self.malformed = 0

    @property
    def done(self) -> bool:
        return self._remain is not None and self._remain <= 0

    def feed(self, lines: bytes) -> bytes:
        """The answer for whole lines (the last may lack its newline)."""
        out = b"".join(self._entries(lines))
        if self._remain is None:
            return out
        out = out[: max(self._remain, 0)]
        self._remain -= len(out)
        return out

    def _entries(self, lines: bytes) -> Iterator[bytes]:
        for line in _split(lines):
            parts = line.split(b" ", 3)
            if len(parts) != 4 or parts[1] not in (b"stdout", b"stderr") or not self._good_time(parts[0]):
                self.malformed += 1
                continue
            time, stream, tags, content = parts
            if self._stream is not None and stream != self._stream:
                continue
            if self._since is not None and self._time(time) < self._since:
                continue
            if tags.split(b":", 1)[0] == b"P":
                content = content.removesuffix(b"\n")
            if self._timestamps and self._at_line_start:
                yield fixed_width(time) + b" "
            self._at_line_start = not content or content.endswith(b"\n")
            yield content

    def _good_time(self, text: bytes) -> bool:
        if text[:19] == self._seconds[0]:
            return True
        try:
            seconds = timestamp_ns(text) // _NANO
        except ValueError:
            return False
        self._seconds = (text[:19], seconds)
        return True

    def _time(self, text: bytes) -> int:
        # Lines of one second follow each other: the calendar is worked out once for all of them.
        if text.endswith(b"Z") and text[:19] == self._seconds[0]:
            return self._seconds[1] * _NANO + int(text[20:-1].ljust(9, b"0") or b"0")
        return timestamp_ns(text)


def _split(lines: bytes) -> Iterator[bytes]:
    # bytes.splitlines also breaks at a carriage return, which is content here.
    *whole, rest = lines.split(b"\n")
    for line in whole:
        yield line + b"\n"
    if rest:
        yield rest
