"""A UDP flow of connection tracking, as a frozen value for those who decide which flows to delete. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UdpFlow:
    """Where the client sends to, and who answers. Addresses are canonical texts."""

    source: str
    source_port: int
    destination: str
    destination_port: int
    reply_source: str
    reply_port: int
