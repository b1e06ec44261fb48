"""Settings of container logs and the options of a request for one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated

from agent.common.model.binding import config
from agent.common.model.durations import seconds
from nodelib import quantity

IsRunning = Callable[[bool], Awaitable[bool]]
"""Whether a container still runs. The argument is True when the runtime must be asked, not the agent's own record."""

STREAMS: Mapping[str, bytes] = {"Stdout": b"stdout", "Stderr": b"stderr"}
"""Values of the `stream` option besides "All", and how the log writes them."""


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Rotation of container logs: size in bytes, number of files, parallel rotations, interval in seconds."""

    max_size: Annotated[int, config("containerLogMaxSize", convert=quantity.value)]
    max_files: Annotated[int, config("containerLogMaxFiles")]
    workers: Annotated[int, config("containerLogMaxWorkers")]
    monitor_interval: Annotated[float, config("containerLogMonitorInterval", convert=seconds)]


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
