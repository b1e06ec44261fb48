"""One service port as elements of the shared maps.

What goes where follows upstream pkg/proxy/nftables/proxier.go (syncProxyRules); the layout is ours (layout.py).
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

_PROTOCOL = {"TCP": 6, "UDP": 17, "SCTP": 132}  # of IP
_INDEX = struct.Struct("=I")  # numgen puts its number into a register in the order of the host
_PORT = struct.Struct(">Hxx")


class Front(NamedTuple):
    """An address at which a service port is reached."""

    address: str
    port: int
    protocol: str

    def __str__(self) -> str:
        shown = f"[{self.address}]" if ":" in self.address else self.address
        return f"{shown}:{self.port}/{self.protocol}"


@dataclass(frozen=True, slots=True)
class PortElements:
    """`fronts` belong to this port alone; `shared` elements may be those of other ports as well."""

    fronts: dict[Front, tuple[Element, ...]]
    shared: tuple[Element, ...] = ()
    chains: frozenset[str] = field(default=frozenset())
    no_local_internal: bool = False
    no_local_external: bool = False


@dataclass(frozen=True, slots=True)
class _Facts:
    """What is decided about one port before anything is encoded."""

    port: ServicePort
    found: Categories
    internal: bool  # has endpoints for traffic to the cluster IP
    external: bool  # has endpoints for traffic from outside

    def chain(self, *, local: bool) -> str:
        """Where traffic under that policy goes, "" when nobody is there."""
        count = len(self.found.local if local else self.found.cluster)
        if not count:
            return ""
        name = f"{'local' if local else 'pick'}-{count}"
        return f"sticky-{name}" if self.port.affinity_seconds else name


def port_elements(port: ServicePort, endpoints: Sequence[Endpoint], ctx: Context) -> PortElements:
    """Everything the kernel needs for `port` with these endpoints."""
    found = categorize(endpoints, port, ctx.node, ctx.zone)
    facts = _Facts(
        port,
        found,
        internal=found.any and (bool(found.local) or not port.internal_local),
        external=found.any and (bool(found.local) or not port.external_local),
    )
    protocol = port.name.protocol
    fronts: dict[Front, tuple[Element, ...]] = {}
    chains: set[str] = set()
    for address in port.external_ips:
        at = Front(address, port.port, protocol)
        fronts[at] = tuple(_external(facts, at, chains))
    for address in port.load_balancer_ips:
        at = Front(address, port.port, protocol)
        fronts[at] = (*_external(facts, at, chains), *_firewall(facts, at, ctx))
    if port.node_port:
        for address in ctx.node_port_ips or ():
            at = Front(address, port.node_port, protocol)
            fronts[at] = tuple(_external(facts, at, chains))
    at = Front(port.cluster_ip, port.port, protocol)
    fronts[at] = tuple(_internal(facts, at, chains))
    if port.affinity_seconds:
        chains.add(f"remember-{port.affinity_seconds}")
    return PortElements(
        fronts,
        (Element(layout.CLUSTER_IPS, wire.plain(packed(port.cluster_ip))), *_hairpin(facts)),
        frozenset(chains),
        no_local_internal=found.any and not facts.internal,
        no_local_external=found.any and not facts.external,
    )


def _internal(facts: _Facts, at: Front, chains: set[str]) -> Iterable[Element]:
    key = front_key(at)
    if not facts.internal:
        yield _refused(facts, key)
        return
    local = facts.port.internal_local
    chain = facts.chain(local=local)
    if chain:
        chains.add(chain)
        yield Element(layout.SERVICES, wire.verdict(key, chain))
        yield from _endpoints(key, facts.found.local if local else facts.found.cluster, local)
        yield from _sticky(facts, key)


def _external(facts: _Facts, at: Front, chains: set[str]) -> Iterable[Element]:
    key = front_key(at)
    if not facts.external:
        yield _refused(facts, key)
    if not facts.found.any:
        return
    everywhere = facts.chain(local=False)
    if everywhere:
        yield from _endpoints(key, facts.found.cluster, False)
    if not facts.port.external_local:
        if everywhere:
            chains.add(f"external-{everywhere}")
            yield Element(layout.SERVICES, wire.verdict(key, f"external-{everywhere}"))
            yield from _sticky(facts, key)
        return
    yield Element(layout.SERVICES, wire.verdict(key, "external-local"))
    yield from _sticky(facts, key)
    here = facts.chain(local=True)
    for name, chain in ((layout.SHORT_CIRCUIT, everywhere), (layout.LOCAL_POLICY, here)):
        if chain:
            chains.add(chain)
            yield Element(name, wire.verdict(key, chain))
    yield from _endpoints(key, facts.found.local, True)


def _sticky(facts: _Facts, key: bytes) -> Iterable[Element]:
    if facts.port.affinity_seconds:
        yield Element(layout.STICKY, wire.verdict(key, f"remember-{facts.port.affinity_seconds}"))


def _firewall(facts: _Facts, at: Front, ctx: Context) -> Iterable[Element]:
    """Only where there are endpoints, as upstream: a refusal needs no firewall."""
    port = facts.port
    if not (facts.found.any and port.source_ranges):
        return
    key = front_key(at)
    yield Element(layout.FIREWALLED, wire.plain(key))
    ranges = port.source_ranges
    if any(ctx.node_ip and ipaddress.ip_address(ctx.node_ip) in ipaddress.ip_network(cidr) for cidr in ranges):
        # A load balancer's address is often local to the node: then that is the source of the node's own requests.
        ranges = (*ranges, *port.load_balancer_ips)
    for first, last in _merged(ranges):
        yield Element(layout.RANGES, wire.ranged(key + first, key + last))


def _merged(cidrs: Iterable[str]) -> list[tuple[bytes, bytes]]:
    """First and last address of each range; overlapping ones are one, the kernel refuses them otherwise."""
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


def _hairpin(facts: _Facts) -> Iterable[Element]:
    """Only an endpoint on this node can send a packet that comes back to itself here."""
    protocol = _PROTOCOL[facts.port.name.protocol]
    for endpoint in facts.found.reachable:
        if endpoint.local:
            address = packed(endpoint.ip)
            key = address + address + bytes((protocol, 0, 0, 0)) + _PORT.pack(endpoint.port)
            yield Element(layout.HAIRPIN, wire.plain(key))


def _refused(facts: _Facts, key: bytes) -> Element:
    """Endpoints elsewhere only: drop, so that a load balancer does not take the refusal for a dead Service."""
    return Element(layout.NO_ENDPOINTS, wire.verdict(key, "" if facts.found.any else "reject-chain"))


def front_key(at: Front) -> bytes:
    return packed(at.address) + bytes((_PROTOCOL[at.protocol], 0, 0, 0)) + _PORT.pack(at.port)


def packed(address: str) -> bytes:
    """An address in the order of the network."""
    if ":" in address:
        return ipaddress.IPv6Address(address).packed
    return bytes(map(int, address.split(".")))
