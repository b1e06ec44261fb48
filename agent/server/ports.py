"""The seams towards the machine itself: files of logs, figures of the kernel, TLS, upgraded connections.

Protocols of `work/logrotate`, `work/stats` and `work/server`; those with functions only are
satisfied by modules of `edge` as they are.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Protocol

from aiohttp import web

from agent.explain.model import Explanation
from agent.images.model.images import ImageReport
from agent.logs.model import IsRunning
from agent.server.model import ClientSubject, TlsFiles


class LogReader(Protocol):
    """Whole lines of a container's log (logs/edge/logs.py). Both raise NotFound when there is no such log."""

    def read(self, path: str, tail_lines: int | None) -> AsyncGenerator[bytes, None]: ...

    def follow(self, path: str, tail_lines: int | None, is_running: IsRunning) -> AsyncGenerator[bytes, None]:
        """Through rotations; raises Temporary when the kernel refuses a watch."""
        ...

    def close(self) -> None: ...


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
    """The proxied upgrade of a connection (server/edge/relay.py). Raises UpgradeFailed."""

    async def proxy_upgrade(
        self, request: web.Request, url: str, *, idle_timeout: float, protocols: str = ""
    ) -> web.StreamResponse: ...


class Explains(Protocol):
    """Why pods are as they are, from the node's own record (explain/work.py)."""

    async def pod(self, namespace: str, name: str) -> Explanation | None:
        """None: this node has no such pod."""
        ...

    async def all(self) -> list[Explanation]: ...


class ImageReports(Protocol):
    """What holds the node's images (images/work/image_gc.py)."""

    async def report(self) -> ImageReport:
        """Raises NodewrightError."""
        ...
