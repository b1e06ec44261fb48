"""Who answers in userspace mode: the rules lead to a socket, the socket has a pool of endpoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nodelib.firewall.trace import Node, Packet, trace
from proxy.plan.userspace.roundrobin import Address
from tests.fakes.fake_iptables import FakeIptables


@dataclass(frozen=True)
class UserspaceTracer:
    """`sockets`: what each port of the proxy chooses from."""

    fake: FakeIptables
    sockets: Mapping[int, tuple[Address, ...]]

    def flow(self, packet: Packet, node: Node) -> str:
        """Endpoints in the order of their addresses; "reset" where a socket has none, "passes" past the proxy."""
        seen: dict[str, None] = {}
        for outcome in trace(self.fake.content(), packet, node):
            if not outcome.translated:
                seen["passes"] = None
                continue
            pool = self.sockets[int(outcome.to.rpartition(":")[2])]
            for host, port in pool:
                seen[f"{host}:{port}"] = None
            if not pool:
                seen["reset"] = None
        return ", ".join(seen)
