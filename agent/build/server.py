"""Put together what the HTTPS server reaches the machine with; called by the composition root."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from typing import Any

from agent.common.edge.inotify import Inotify
from agent.logs.edge.logs import Logs
from agent.server.edge import certificates, relay
from agent.server.edge.tls import ServingTls
from agent.server.model import ClientSubject, TlsFiles
from agent.server.work import ServerEdges


class _Tls:
    def self_signed(self, folder: str, names: Sequence[str], addresses: Sequence[str]) -> tuple[str, str]:
        return certificates.ensure_self_signed(folder, names, addresses)

    def context(self, files: TlsFiles) -> ssl.SSLContext:
        return ServingTls(files).context

    def subject(self, der: bytes, decoded: Mapping[str, Any]) -> ClientSubject:
        return certificates.subject_of(der, decoded)


def server_edges() -> ServerEdges:
    """To be made inside the running loop; the server closes them. Raises Temporary (no inotify instance left)."""
    return ServerEdges(tls=_Tls(), upgrades=relay, logs=Logs(Inotify()))
