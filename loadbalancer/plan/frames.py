"""ARP (RFC 826, 5227) and neighbour discovery (RFC 4861) as Ethernet frames. Pure.

What is read comes from anybody on the link: whatever is not exactly one of these messages is none.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from loadbalancer.model import Address

BROADCAST = b"\xff" * 6
_NOBODY = b"\0" * 6
ARP, IPV6 = 0x0806, 0x86DD
SOLICITATION, ADVERTISEMENT = 135, 136
_REQUEST, _REPLY = 1, 2
_ETHERNET = struct.Struct("!6s6sH")
_ARP = struct.Struct("!HHBBH6s4s6s4s")
_ARP_HEAD = (1, 0x0800, 6, 4)  # Ethernet, IPv4 and the lengths of their addresses
_IPV6 = struct.Struct("!IHBB16s16s")
_ICMP = struct.Struct("!BBHI16s")
_ICMPV6, _HOPS = 58, 255  # a packet with another hop limit has passed a router
_SOURCE_OPTION, _TARGET_OPTION = 1, 2
_SOLICITED, _OVERRIDE = 0x40000000, 0x20000000
ALL_NODES = IPv6Address("ff02::1")


@dataclass(frozen=True, slots=True)
class Question:
    """Somebody asks who has an address. `asker` is None in a probe, by one who wants to have it himself."""

    address: Address
    mac: bytes
    asker: Address | None


@dataclass(frozen=True, slots=True)
class Claim:
    """Somebody says that an address is his."""

    address: Address
    mac: bytes


def read(frame: bytes) -> list[Question | Claim]:
    """What an Ethernet frame asks and claims; nothing if it is about something else."""
    if len(frame) < _ETHERNET.size:
        return []
    _, source, kind = _ETHERNET.unpack_from(frame)
    rest = frame[_ETHERNET.size :]
    if kind == ARP:
        return list(_read_arp(rest, source))
    return list(_read_ndp(rest, source)) if kind == IPV6 else []


def _read_arp(packet: bytes, source: bytes) -> Iterator[Question | Claim]:
    if len(packet) < _ARP.size:
        return
    *head, operation, mac, sender, _, target = _ARP.unpack_from(packet)
    if tuple(head) != _ARP_HEAD or operation not in (_REQUEST, _REPLY):
        return
    asker, asked = IPv4Address(sender), IPv4Address(target)
    if int(asker):
        yield Claim(asker, mac)
    if operation == _REQUEST and asker != asked:
        yield Question(asked, source, asker if int(asker) else None)


def _read_ndp(packet: bytes, source: bytes) -> Iterator[Question | Claim]:
    if len(packet) < _IPV6.size + _ICMP.size:
        return
    _, length, following, hops, sender, _ = _IPV6.unpack_from(packet)
    body = packet[_IPV6.size : _IPV6.size + length]
    if following != _ICMPV6 or hops != _HOPS or len(body) < _ICMP.size or len(body) != length:
        return
    kind, code, _, _, target = _ICMP.unpack_from(body)
    asker, about = IPv6Address(sender), IPv6Address(target)
    if code != 0 or about.is_multicast:
        return
    if kind == SOLICITATION:
        yield Question(about, source, None if asker.is_unspecified else asker)
    elif kind == ADVERTISEMENT:
        yield Claim(about, _option(body[_ICMP.size :], _TARGET_OPTION) or source)


def _option(options: bytes, wanted: int) -> bytes:
    while len(options) >= 8 and options[1]:
        if options[0] == wanted and options[1] == 1:
            return options[2:8]
        options = options[8 * options[1] :]
    return b""


def answer(question: Question, mac: bytes) -> bytes:
    """Our answer: the address is at `mac`."""
    if isinstance(question.address, IPv4Address):
        asker = question.asker or IPv4Address(0)
        packet = _ARP.pack(*_ARP_HEAD, _REPLY, mac, question.address.packed, question.mac, asker.packed)
        return _ETHERNET.pack(question.mac, mac, ARP) + packet
    if question.asker is None:
        return _advertisement(question.address, mac, ALL_NODES, _multicast(ALL_NODES), 0)
    return _advertisement(question.address, mac, question.asker, question.mac, _SOLICITED)


def announcements(address: Address, mac: bytes) -> list[bytes]:
    """For everybody: the address is at `mac` now. Some systems believe only ARP requests, some only replies."""
    if isinstance(address, IPv6Address):
        return [_advertisement(address, mac, ALL_NODES, _multicast(ALL_NODES), 0)]
    head = _ETHERNET.pack(BROADCAST, mac, ARP)
    return [
        head + _ARP.pack(*_ARP_HEAD, _REQUEST, mac, address.packed, _NOBODY, address.packed),
        head + _ARP.pack(*_ARP_HEAD, _REPLY, mac, address.packed, BROADCAST, address.packed),
    ]


def probe(address: Address, mac: bytes) -> bytes:
    """Asks whether anybody else has the address, without claiming it."""
    if isinstance(address, IPv4Address):
        packet = _ARP.pack(*_ARP_HEAD, _REQUEST, mac, bytes(4), _NOBODY, address.packed)
        return _ETHERNET.pack(BROADCAST, mac, ARP) + packet
    group = solicited_node(address)
    body = _ICMP.pack(SOLICITATION, 0, 0, 0, address.packed)
    return _ETHERNET.pack(_multicast(group), mac, IPV6) + _packet(IPv6Address(0), group, body)


def solicited_node(address: IPv6Address) -> IPv6Address:
    """The multicast group in which an address is asked for."""
    return IPv6Address((0xFF02 << 112) | (1 << 32) | (0xFF << 24) | (int(address) & 0xFFFFFF))


def _multicast(group: IPv6Address) -> bytes:
    return b"\x33\x33" + group.packed[-4:]


def _advertisement(address: Address, mac: bytes, to: Address, to_mac: bytes, solicited: int) -> bytes:
    body = _ICMP.pack(ADVERTISEMENT, 0, 0, _OVERRIDE | solicited, address.packed) + bytes((_TARGET_OPTION, 1)) + mac
    return _ETHERNET.pack(to_mac, mac, IPV6) + _packet(address, to, body)


def _packet(source: Address, to: Address, body: bytes) -> bytes:
    """An ICMPv6 packet with its checksum, which the kernel does not add to what a packet socket sends."""
    pseudo = source.packed + to.packed + struct.pack("!II", len(body), _ICMPV6)
    total = sum(struct.unpack(f"!{(len(pseudo) + len(body)) // 2}H", pseudo + body))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    checked = body[:2] + struct.pack("!H", ~total & 0xFFFF) + body[4:]
    return _IPV6.pack(6 << 28, len(body), _ICMPV6, _HOPS, source.packed, to.packed) + checked
