"""Encodes one service port as elements of the shared maps. Pure.

Which traffic goes where follows syncProxyRules in upstream pkg/proxy/nftables/proxier.go; the layout is our own, see
`layout.py`.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from nodelib.nft import wire
from nodelib.nft.wire import Element
from proxy.model import Endpoint, ServicePort
from proxy.plan.context import Context
from proxy.plan.nftables import layout
from proxy.plan.topology import Categories, Endpoints, categorize

_PROTOCOL = {"TCP": 6, "UDP": 17, "SCTP": 132}  # IP protocol numbers
_INDEX = struct.Struct("=I")  # numgen writes its number in host byte order
_PORT = struct.Struct(">Hxx")


class Frontend(NamedTuple):
    """An address at which a service port is reached."""

    address: str
    port: int
    protocol: str

    def __str__(self) -> str:
        shown = f"[{self.address}]" if ":" in self.address else self.address
        return f"{shown}:{self.port}/{self.protocol}"


@dataclass(frozen=True, slots=True)
class PortElements:
    """The elements of one port. Other ports may have the same `shared` ones; `chains`: the on-demand chains in use."""

    frontends: dict[Frontend, tuple[Element, ...]]
    shared: tuple[Element, ...] = ()
    chains: frozenset[str] = field(default=frozenset())
    no_local_internal: bool = False
    no_local_external: bool = False


@dataclass(frozen=True, slots=True)
class _Decisions:
    """What is decided about one port before anything is encoded."""

    port: ServicePort
    found: Categories
    internal: bool  # has endpoints for traffic to the cluster IP
    external: bool  # has endpoints for traffic from outside

    def chain(self, *, local: bool) -> str:
        """The chain for traffic under that policy, "" when it has no endpoint."""
        count = len(self.found.local if local else self.found.cluster)
        if not count:
            return ""
        name = f"{'local' if local else 'pick'}-{count}"
        return f"sticky-{name}" if self.port.affinity_seconds else name


def port_elements(port: ServicePort, endpoints: Sequence[Endpoint], ctx: Context) -> PortElements:
    """All elements that the kernel needs for `port` with these endpoints."""
    found = categorize(endpoints, port, ctx.node, ctx.zone)
    decided = _Decisions(
        port,
        found,
        internal=found.any and (bool(found.local) or not port.internal_local),
        external=found.any and (bool(found.local) or not port.external_local),
    )
    protocol = port.name.protocol
    frontends: dict[Frontend, tuple[Element, ...]] = {}
    chains: set[str] = set()
    for address in port.external_ips:
        at = Frontend(address, port.port, protocol)
        frontends[at] = tuple(_external(decided, at, chains))
    for address in port.load_balancer_ips:
        at = Frontend(address, port.port, protocol)
        frontends[at] = (*_external(decided, at, chains), *_firewall(decided, at, ctx))
    if port.node_port:
        for address in ctx.node_port_ips or ():
            at = Frontend(address, port.node_port, protocol)
            frontends[at] = tuple(_external(decided, at, chains))
    at = Frontend(port.cluster_ip, port.port, protocol)
    frontends[at] = tuple(_internal(decided, at, chains))
    if port.affinity_seconds:
        chains.add(f"remember-{port.affinity_seconds}")
    return PortElements(
        frontends,
        (Element(layout.CLUSTER_IPS, wire.plain(packed(port.cluster_ip))), *_hairpin(decided)),
        frozenset(chains),
        no_local_internal=found.any and not decided.internal,
        no_local_external=found.any and not decided.external,
    )


def _internal(decided: _Decisions, at: Frontend, chains: set[str]) -> Iterable[Element]:
    key = frontend_key(at)
    if not decided.internal:
        yield _refused(decided, key)
        return
    local = decided.port.internal_local
    chain = decided.chain(local=local)
    if chain:
        chains.add(chain)
        yield Element(layout.SERVICES, wire.verdict(key, chain))
        yield from _endpoints(key, decided.found.local if local else decided.found.cluster, local)
        yield from _sticky(decided, key)


def _external(decided: _Decisions, at: Frontend, chains: set[str]) -> Iterable[Element]:
    key = frontend_key(at)
    if not decided.external:
        yield _refused(decided, key)
    if not decided.found.any:
        return
    everywhere = decided.chain(local=False)
    if everywhere:
        yield from _endpoints(key, decided.found.cluster, False)
    if not decided.port.external_local:
        if everywhere:
            chains.add(f"external-{everywhere}")
            yield Element(layout.SERVICES, wire.verdict(key, f"external-{everywhere}"))
            yield from _sticky(decided, key)
        return
    yield Element(layout.SERVICES, wire.verdict(key, "external-local"))
    yield from _sticky(decided, key)
    here = decided.chain(local=True)
    for name, chain in ((layout.SHORT_CIRCUIT, everywhere), (layout.LOCAL_POLICY, here)):
        if chain:
            chains.add(chain)
            yield Element(name, wire.verdict(key, chain))
    yield from _endpoints(key, decided.found.local, True)


def _sticky(decided: _Decisions, key: bytes) -> Iterable[Element]:
    if decided.port.affinity_seconds:
        yield Element(layout.STICKY, wire.verdict(key, f"remember-{decided.port.affinity_seconds}"))


def _firewall(decided: _Decisions, at: Frontend, ctx: Context) -> Iterable[Element]:
    """Source ranges, as upstream only where there are endpoints: a refusal needs no firewall."""
    port = decided.port
    if not (decided.found.any and port.source_ranges):
        return
    key = frontend_key(at)
    yield Element(layout.FIREWALLED, wire.plain(key))
    ranges = port.source_ranges
    if any(ctx.node_ip and ipaddress.ip_address(ctx.node_ip) in ipaddress.ip_network(cidr) for cidr in ranges):
        # A load balancer's address is often local to the node, and then the source of the node's own requests.
        ranges = (*ranges, *port.load_balancer_ips)
    for first, last in _merged(ranges):
        yield Element(layout.RANGES, wire.ranged(key + first, key + last))


def _merged(cidrs: Iterable[str]) -> list[tuple[bytes, bytes]]:
    """First and last address of each range. Overlapping ranges are merged, because the kernel refuses them."""
    found: list[tuple[bytes, bytes]] = []
    networks = [ipaddress.ip_network(cidr) for cidr in cidrs]
    ends = sorted([(one.network_address.packed, one.broadcast_address.packed) for one in networks])
    for first, last in ends:
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found


def _endpoints(key: bytes, endpoints: Endpoints, local: bool) -> Iterable[Element]:
    first = layout.LOCAL if local else 0
    for index, endpoint in enumerate(endpoints, first):
        value = packed(endpoint.ip) + _PORT.pack(endpoint.port)
        yield Element(layout.ENDPOINTS, wire.valued(key + _INDEX.pack(index), value))


def _hairpin(decided: _Decisions) -> Iterable[Element]:
    """Elements for endpoints on this node: only these can reach themselves through this node."""
    protocol = _PROTOCOL[decided.port.name.protocol]
    for endpoint in decided.found.reachable:
        if endpoint.local:
            address = packed(endpoint.ip)
            key = address + address + bytes((protocol, 0, 0, 0)) + _PORT.pack(endpoint.port)
            yield Element(layout.HAIRPIN, wire.plain(key))


def _refused(decided: _Decisions, key: bytes) -> Element:
    """With endpoints on other nodes only, drop: a load balancer would take a reject for a dead Service."""
    return Element(layout.NO_ENDPOINTS, wire.verdict(key, "" if decided.found.any else "reject-chain"))


def frontend_key(at: Frontend) -> bytes:
    return packed(at.address) + bytes((_PROTOCOL[at.protocol], 0, 0, 0)) + _PORT.pack(at.port)


def packed(address: str) -> bytes:
    """An address in network byte order."""
    if ":" in address:
        return ipaddress.IPv6Address(address).packed
    return bytes(map(int, address.split(".")))
