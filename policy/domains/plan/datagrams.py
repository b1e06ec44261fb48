"""Finds the receiver and the content of a UDP packet. Pure; whatever the bytes are, it never raises."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

from policy.model import Address

_UDP, _HEADER = 17, 8


def received(packet: bytes) -> tuple[Address, bytes] | None:
    """To whom the packet goes, and what it carries; None for what is no whole UDP packet.

    IPv6 with further headers is none: servers do not send such, and the kernel has put fragments together.
    """
    version = packet[0] >> 4 if packet else 0
    if version == 4 and len(packet) >= 20 and packet[9] == _UDP:
        at = (packet[0] & 0xF) * 4
        if at < 20 or int.from_bytes(packet[6:8], "big") & 0x3FFF:
            return None
        return _content(IPv4Address(packet[16:20]), packet, at)
    if version == 6 and len(packet) >= 40 and packet[6] == _UDP:
        return _content(IPv6Address(packet[24:40]), packet, 40)
    return None


def _content(receiver: Address, packet: bytes, at: int) -> tuple[Address, bytes] | None:
    length = int.from_bytes(packet[at + 4 : at + 6], "big")
    if length < _HEADER or at + length > len(packet):
        return None
    return receiver, packet[at + _HEADER : at + length]
