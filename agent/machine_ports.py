"""The seams towards the machine itself: files of logs, figures of the kernel, TLS, upgraded connections.

Protocols of `work/logrotate`, `work/stats` and `work/server`; those with functions only are
satisfied by modules of `edge` as they are.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from aiohttp import web

from agent.model.serving import ClientSubject, TlsFiles
from agent.model.stats import CgroupSample, ContainerDetails, Cpu, Disk, FsUsage, Interface, Memory, PodCgroup, Pressure

IsRunning = Callable[[bool], Awaitable[bool]]


class LogFolder(Protocol):
    """The files of one container's log (edge/log_folder.py); what changes them raises Temporary."""

    def size(self, path: str) -> int | None: ...

    def names(self, folder: str) -> list[str]: ...

    def remove(self, path: str) -> None: ...

    def rename(self, path: str, to: str) -> None: ...

    def pack(self, path: str) -> None: ...


class LogReader(Protocol):
    """Whole lines of a container's log (edge/logs.py). Both raise NotFound when there is no such log."""

    def read(self, path: str, tail_lines: int | None) -> AsyncGenerator[bytes, None]: ...

    def follow(self, path: str, tail_lines: int | None, is_running: IsRunning) -> AsyncGenerator[bytes, None]:
        """Through rotations; raises Temporary when the kernel refuses a watch."""
        ...

    def close(self) -> None: ...


class CgroupFigures(Protocol):
    """Accounting of cgroups (edge/stats.py). Blocks on files: for a thread."""

    def sample(self, path: str) -> CgroupSample | None: ...

    def pods(self, kubepods: str) -> dict[str, PodCgroup]: ...

    def a_process(self, path: str) -> int | None: ...

    def details(self, path: str) -> ContainerDetails | None: ...


class MachineFigures(Protocol):
    """Accounting of the machine, of file systems and of folders (edge/stats.py). Blocks on files: for a thread."""

    def node_memory(self) -> tuple[Memory, int, int]: ...

    def node_cpu(self) -> Cpu: ...

    def boot_time(self) -> int: ...

    def process_limits(self) -> tuple[int, int]: ...

    def interfaces(self, pid: int | str = "self") -> tuple[Interface, ...]: ...

    def default_interface(self) -> str: ...

    def own_process(self) -> tuple[Cpu, Memory]: ...

    def node_pressure(self) -> tuple[Pressure, Pressure, Pressure]: ...

    def filesystem(self, path: str) -> FsUsage | None: ...

    def disk(self, device: int) -> Disk | None: ...

    def tree(self, path: str) -> tuple[int, int]: ...

    def volumes_of(self, pods_dir: str, uid: str) -> list[tuple[str, str, str]]: ...


class Tls(Protocol):
    """Certificates of the server and of its clients (edge/server/). Everything raises Invalid naming the file."""

    def self_signed(self, folder: str, names: Sequence[str], addresses: Sequence[str]) -> tuple[str, str]:
        """Paths of certificate and key; blocks: for a thread."""
        ...

    def context(self, files: TlsFiles) -> ssl.SSLContext:
        """For the listening socket; blocks: for a thread."""
        ...

    def subject(self, der: bytes, decoded: Mapping[str, Any]) -> ClientSubject: ...


class Upgrades(Protocol):
    """The proxied upgrade of a connection (edge/server/relay.py). Raises UpgradeFailed."""

    async def proxy_upgrade(
        self, request: web.Request, url: str, *, idle_timeout: float, protocols: str = ""
    ) -> web.StreamResponse: ...
