"""UDP flows as connection tracking remembers them: a frozen value, shared by whoever must end some of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UdpFlow:
    """What the client sends to, and who answers. Addresses as text in their canonical form."""

    source: str
    source_port: int
    destination: str
    destination_port: int
    reply_source: str
    reply_port: int
