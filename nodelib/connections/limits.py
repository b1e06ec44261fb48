"""How many connections of strangers there may be, how long each may take, and how much it may send."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """`head`: bytes of a request's head, as upstream (the command line of an exec is part of it); `heads`: of all heads
    together, except of those with a certificate of the cluster, such as the API server. `seconds`: for the TLS
    handshake, and for a head. `strangers`: connections without an authorized request, each of which has `fair_seconds`
    before it gives way to a new one; `connections`: all; `per_second`: new ones.
    """

    head: int = 1 << 20
    heads: int = 4 << 20
    seconds: float = 10.0
    strangers: int = 24
    fair_seconds: float = 2.0
    connections: int = 1000
    per_second: int = 100


# For what everybody may ask: health and metrics.
OPEN = ConnectionLimits(head=64 << 10, strangers=64, connections=128)
# The same at a great many ports of one server: a load balancer keeps a connection to each.
OPEN_AT_MANY = ConnectionLimits(head=64 << 10, strangers=256, connections=1024, per_second=400)
