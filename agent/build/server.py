"""Joins the edges of the kubelet's HTTPS server: TLS, listeners, logs, upgraded connections."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from typing import Any

from agent.common.edge.inotify import Inotify
from agent.common.work.gate import Gate
from agent.logs.edge.log_reader import MOST_TAILS, LogReader
from agent.server.edge import certificates, journal, system_logs, upgrade_proxy
from agent.server.edge.listeners import Listeners
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
    """Must run inside the event loop. The server closes them."""
    return ServerEdges(
        tls=_Tls(),
        upgrades=upgrade_proxy,
        logs=LogReader(Inotify("container logs"), Gate(MOST_TAILS, longest=None)),
        system_logs=system_logs,
        journal=journal,
        listeners=Listeners(),
    )
