"""Reads the first bytes of a packet: addresses, protocol and ports. Pure.

Whatever the bytes are, reading them never raises and looks at no more than a few headers: anybody who may send a packet
to an isolated pod writes them.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

from policy.drops.model import Flow, Packet
from policy.model import Address, Direction

_TCP, _UDP, _SCTP = 6, 17, 132
_WITH_PORTS = frozenset((_TCP, _UDP, _SCTP))
_PROTOCOLS = {_TCP: "TCP", _UDP: "UDP", _SCTP: "SCTP", 1: "ICMP", 58: "ICMPv6"}
_FRAGMENT = 44
_EXTENSIONS = frozenset((0, 43, 60, _FRAGMENT))  # hop-by-hop options, routing, destination options
_MOST_EXTENSIONS = 8
_SYN_ACK = 0x12


def packet(data: bytes) -> Packet | None:
    """The packet, from its network header on; None for what is none."""
    version = data[0] >> 4 if data else 0
    if version == 4:
        return _ipv4(data)
    return _ipv6(data) if version == 6 else None


def flow(found: Packet, direction: Direction, isolated: frozenset[Address]) -> Flow:
    """The connection that a packet belongs to. `isolated`: the addresses of the pods whose rules refused it.

    Answers are refused too when a connection is no longer allowed: their source is the server.
    """
    source, target = found.source in isolated, found.target in isolated
    backwards = found.answer if source == target else source == (direction is Direction.INGRESS)
    protocol = protocol_name(found.protocol)
    if backwards:
        return Flow(direction, found.target, found.source, protocol, found.source_port)
    return Flow(direction, found.source, found.target, protocol, found.port)


def protocol_name(number: int) -> str:
    """As policies have it, and for the rest its number."""
    return _PROTOCOLS.get(number, str(number))


def _ipv4(data: bytes) -> Packet | None:
    header = (data[0] & 0xF) * 4
    if len(data) < 20 or header < 20:
        return None
    ends = IPv4Address(data[12:16]), IPv4Address(data[16:20])
    later = int.from_bytes(data[6:8], "big") & 0x1FFF
    return _with_ports(*ends, data[9], b"" if later else data[header:])


def _ipv6(data: bytes) -> Packet | None:
    if len(data) < 40:
        return None
    ends = IPv6Address(data[8:24]), IPv6Address(data[24:40])
    protocol, at, later = data[6], 40, False
    for _ in range(_MOST_EXTENSIONS):
        if protocol not in _EXTENSIONS or at + 8 > len(data):
            break
        if protocol == _FRAGMENT:
            later = later or int.from_bytes(data[at + 2 : at + 4], "big") >> 3 > 0
            length = 8
        else:
            length = (data[at + 1] + 1) * 8
        protocol, at = data[at], at + length
    return _with_ports(*ends, protocol, b"" if later else data[at:])


def _with_ports(source: Address, target: Address, protocol: int, rest: bytes) -> Packet:
    if protocol not in _WITH_PORTS or len(rest) < 4:
        return Packet(source, target, protocol)
    ports = int.from_bytes(rest[:2], "big"), int.from_bytes(rest[2:4], "big")
    answer = protocol == _TCP and len(rest) > 13 and rest[13] & _SYN_ACK == _SYN_ACK
    return Packet(source, target, protocol, *ports, answer)
