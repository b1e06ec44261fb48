"""Links, addresses and routes that a cluster needs, as values: each says what must be so."""

from __future__ import annotations

from dataclasses import dataclass

HOST = ""  # the namespace that the command runs in
WIRE = "wire"


@dataclass(frozen=True, slots=True)
class Bridge:
    space: str
    name: str


@dataclass(frozen=True, slots=True)
class Veth:
    """A pair: `name` in `space`, `peer` in `peer_space` as a port of `bridge` ("": of none)."""

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
    """`via` a gateway, or `dev` a link, or (neither) unreachable."""

    space: str
    destination: str
    via: str = ""
    dev: str = ""
    source: str = ""
    metric: int = 0


Wish = Bridge | Veth | Up | Address | Route
