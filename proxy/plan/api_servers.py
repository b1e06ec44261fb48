"""Where the API servers are, which no Service takes over. Pure.

A Service whose external IP is the address of an API server, with its port, would get what every node behind the rules
sends there, heartbeats and all: whoever may create Services in one namespace would have the whole cluster NotReady.
Upstream writes these rules (CVE-2020-8554). Only API servers write the endpoints of the Service `kubernetes`.

Each takes its own out of them when it stops. With its address given away meanwhile, a proxy that knows no other API
server would never learn that it is back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from proxy.model import Endpoint, NamespacedName, Problem, ServicePort

_KEPT = 32  # addresses of API servers that are gone: some of them come back

SERVICE = NamespacedName("default", "kubernetes")


class ApiServers:
    """In memory only; not thread-safe."""

    def __init__(self) -> None:
        self._ports: dict[str, frozenset[int]] = {}  # by address
        self._addresses: dict[int, list[str]] = {}  # by port

    def put(self, endpoints: Iterable[Endpoint]) -> set[str]:
        """Take all that there are. Returns the addresses for which that says something new."""
        before, found = self._ports, dict[str, frozenset[int]]()
        for one in endpoints:
            found[one.ip] = found.get(one.ip, frozenset()) | {one.port}
        gone = [(ip, ports) for ip, ports in before.items() if ip not in found]  # those that went last at the end
        now = self._ports = dict(gone[-_KEPT:]) | found
        self._addresses = {}
        for ip, ports in sorted(now.items()):
            for port in ports:
                self._addresses.setdefault(port, []).append(ip)
        return {ip for ip in before.keys() | now.keys() if before.get(ip) != now.get(ip)}

    def without(self, port: ServicePort) -> tuple[ServicePort, list[Problem]]:
        """The port without addresses at which an API server has it."""
        mine = self._addresses.get(port.port, ()) if port.name.protocol == "TCP" else ()
        taken = [ip for ip in mine if ip in port.external_ips or ip in port.load_balancer_ips]
        if not taken:
            return port, []
        external, balanced = (
            tuple([ip for ip in given if ip not in taken]) for given in (port.external_ips, port.load_balancer_ips)
        )
        problem = Problem(f"Service {port.name}", f"{', '.join(taken)} port {port.port} is an API server's")
        return replace(port, external_ips=external, load_balancer_ips=balanced), [problem]
