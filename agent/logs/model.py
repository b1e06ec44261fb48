"""Settings and files of container logs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Protocol

from agent.common.model.binding import config
from agent.common.model.durations import seconds
from nodelib import quantity

IsRunning = Callable[[bool], Awaitable[bool]]


class LogFolder(Protocol):
    """The files of one container's log (logs/edge/log_folder.py); what changes them raises Temporary."""

    def size(self, path: str) -> int | None: ...

    def names(self, folder: str) -> list[str]: ...

    def remove(self, path: str) -> None: ...

    def rename(self, path: str, to: str) -> None: ...

    def pack(self, path: str) -> None: ...


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Rotation of container logs."""

    max_size: Annotated[int, config("containerLogMaxSize", convert=quantity.value)]
    max_files: Annotated[int, config("containerLogMaxFiles")]
    workers: Annotated[int, config("containerLogMaxWorkers")]
    monitor_interval: Annotated[float, config("containerLogMonitorInterval", convert=seconds)]
