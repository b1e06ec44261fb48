"""IP addresses and networks from objects that others wrote. Pure.

Python's `ipaddress` accepts any text after the "%" of an IPv6 address as its zone, line breaks included, and keeps it
in str(): an address that was only parsed may end a rule and begin another one. No API object or CNI configuration needs
a zone, so such an address is not one here.
"""

from __future__ import annotations

import hashlib
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_BROADCAST = IPv4Address("255.255.255.255")


def parse_address(text: object) -> Address:
    """The address in `text`. Raises ValueError, for an IPv6 address with a zone too."""
    if not isinstance(text, str) or "%" in text:
        raise ValueError("not an IP address")
    return ip_address(text)


def parse_network(text: object, *, strict: bool = True) -> Network:
    """The network in `text`. Raises ValueError, for host bits too unless `strict` is False."""
    if not isinstance(text, str) or "%" in text:
        raise ValueError("not a network in CIDR form")
    return ip_network(text, strict=strict)


def special(address: Address) -> str:
    """Why no other host can have `address`: "loopback", "unspecified", "link-local", "multicast", …; "" if one can.

    The words follow ValidateNonSpecialIP of upstream's pkg/apis/core/validation, which also refuses these.
    """
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return "IPv4-mapped"
    for word, found in (
        ("unspecified", address.is_unspecified),
        ("loopback", address.is_loopback),
        ("link-local", address.is_link_local),
        ("multicast", address.is_multicast),
        ("broadcast", address == _BROADCAST),
    ):
        if found:
            return word
    return ""


def hardware_address(address: Address) -> str:
    """A fixed, locally administered hardware address for the owner of `address`, as in kubenet and OVN.

    It is derived from the address, so a neighbour entry stays valid when another pod gets the address later. Bridges
    have one, too: otherwise they use the lowest of their ports', which changes as pods come and go.
    """
    tail = address.packed if address.version == 4 else hashlib.sha256(address.packed).digest()[:4]
    return ":".join(f"{octet:02x}" for octet in (0x0A, 0x58, *tail))
