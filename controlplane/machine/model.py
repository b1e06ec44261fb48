"""Links, addresses and routes as values: each says what must exist in a network namespace."""

from __future__ import annotations

from dataclasses import dataclass

HOST = ""  # the namespace that this command runs in
WIRE = "wire"


@dataclass(frozen=True, slots=True)
class Bridge:
    space: str
    name: str


@dataclass(frozen=True, slots=True)
class Veth:
    """A pair: `name` in `space`, `peer` in `peer_space` as a port of `bridge` ("": no bridge)."""

    space: str
    name: str
    peer_space: str
    peer: str
    bridge: str


@dataclass(frozen=True, slots=True)
class Up:
    space: str
    name: str


@dataclass(frozen=True, slots=True)
class Address:
    space: str
    name: str
    address: str  # with prefix length


@dataclass(frozen=True, slots=True)
class Route:
    """Through the gateway `via` or the link `dev`; with neither, an unreachable route."""

    space: str
    destination: str
    via: str = ""
    dev: str = ""
    source: str = ""
    metric: int = 0


NetworkObject = Bridge | Veth | Up | Address | Route


@dataclass(frozen=True, slots=True)
class Listener:
    """A socket that takes packets: a listening TCP one, or a UDP one without a peer. `protocol`: tcp or udp."""

    protocol: str
    address: str
    port: int
