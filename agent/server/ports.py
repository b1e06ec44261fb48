"""Protocols of what the server needs from outside: sockets, TLS, log files, upgraded connections, API reviews, reports.

A Protocol that has functions only is satisfied by a module of `edge` as it is.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Protocol

from aiohttp import web

from agent.eviction.model import EvictionReport
from agent.explain.model import Explanation
from agent.images.model.images import ImageReport
from agent.logs.model import IsRunning
from agent.server.model import ClientSubject, SystemLogFile, SystemLogFolder, TlsFiles
from nodelib.json_values import Json


class Listeners(Protocol):
    """Open sockets of the server (edge/listeners.py)."""

    async def listen(
        self, name: str, app: web.Application, address: str, port: int, tls: ssl.SSLContext | None = None
    ) -> tuple[str, int]:
        """Serve `app` on a TCP port (-1 for any free one) and return the address and port in use.

        Raises Invalid when the port cannot be bound.
        """
        ...

    async def listen_unix(self, app: web.Application, path: str) -> None:
        """Serve `app` to root on a unix socket of mode 0600. A failure is logged: the agent works without it."""
        ...

    async def close(self) -> None:
        """Stop listening and end running requests after a short time."""
        ...


class Tls(Protocol):
    """Certificates of the server and its clients (edge/tls.py, edge/certificates.py).

    All raise Invalid with the path of the file; all but subject() block.
    """

    def self_signed(self, folder: str, names: Sequence[str], addresses: Sequence[str]) -> tuple[str, str]:
        """Paths of certificate and key in `folder`, created when they are missing or no longer fit."""
        ...

    def context(self, files: TlsFiles) -> ssl.SSLContext:
        """The context of a listening socket; it follows later changes of the files."""
        ...

    def subject(self, der: bytes, decoded: Mapping[str, Any]) -> ClientSubject:
        """`decoded` is the dictionary of ssl's getpeercert()."""
        ...


class ReviewApi(Protocol):
    """The call of nodelib.kube.client.KubeClient that TokenReview and SubjectAccessReview need."""

    async def post(self, path: str, body: Json) -> Json:
        """Raises ApiError, ApiUnreachable."""
        ...


class LogReader(Protocol):
    """Whole lines of a container's log (logs/edge/log_reader.py)."""

    def read(self, path: str, tail_lines: int | None, group: str = "") -> AsyncGenerator[bytes, None]:
        """What the log holds now. Raises NotFound when there is no log."""
        ...

    def follow(
        self, path: str, tail_lines: int | None, is_running: IsRunning, group: str = ""
    ) -> AsyncGenerator[bytes, None]:
        """Lines as they are written, through rotations. Raises NotFound, Temporary (the kernel refuses a watch)."""
        ...

    def close(self) -> None: ...


class SystemLogFiles(Protocol):
    """The host's log folder (edge/system_logs.py)."""

    def find(self, root: str, path: str) -> SystemLogFile | SystemLogFolder | None:
        """What is at `path` below `root`. Blocking."""
        ...

    def read(self, file: SystemLogFile) -> AsyncGenerator[bytes, None]:
        """Its content as it is now."""
        ...


class Journal(Protocol):
    """The journal of the machine (edge/journal.py)."""

    async def units(self, argv: Sequence[str]) -> str:
        """The units that have written to it, "" where there is none."""
        ...

    def read(self, argv: Sequence[str]) -> AsyncGenerator[bytes, None]:
        """What the journal's command prints. Raises CommandError."""
        ...


class Upgrades(Protocol):
    """Proxy of an upgraded connection (edge/upgrade_proxy.py)."""

    async def proxy_upgrade(
        self, request: web.Request, url: str, *, idle_timeout: float, protocols: str = ""
    ) -> web.StreamResponse:
        """Return when the connection has ended. Raises UpgradeFailed."""
        ...


class Explains(Protocol):
    """Why pods are in their state (explain/work.py)."""

    async def pod(self, namespace: str, name: str) -> Explanation | None:
        """None when this node has no such pod."""
        ...

    async def all(self) -> list[Explanation]: ...


class ImageReports(Protocol):
    """What holds the images of the node (images/work/image_gc.py)."""

    async def report(self) -> ImageReport:
        """Raises NodewrightError."""
        ...


class EvictionReports(Protocol):
    """How near the node is to evicting pods (eviction/work/eviction.py)."""

    def report(self) -> EvictionReport: ...
