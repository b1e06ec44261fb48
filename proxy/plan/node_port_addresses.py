"""NodePort addresses: from keywords and CIDRs to networks, and from networks to the node's own addresses. Pure.

Upstream: pkg/proxy/util/nodeport_addresses.go.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence

from nodelib.firewall.objects import Family
from proxy.plan.addresses import family_of, parse_ip

_LOOPBACK = {Family.IPV4: "127.0.0.0/8", Family.IPV6: "::1/128"}
ANY = ("0.0.0.0/0", "::/0")


def expand(given: Sequence[str], node_ips: Iterable[str]) -> tuple[str, ...]:
    """Replace keywords by CIDRs (upstream expandNodePortAddressKeywords)."""
    found: list[str] = []
    for item in given:
        if item == "primary":
            firsts: dict[Family, str] = {}
            for address in node_ips:
                firsts.setdefault(family_of(address), address)
            bits = {Family.IPV4: 32, Family.IPV6: 128}
            found.extend(
                f"{address}/{bits[family]}"
                for family, address in firsts.items()
                if not ipaddress.ip_address(address).is_loopback
            )
        elif item == "localhost":
            found.extend(_LOOPBACK.values())
        elif item == "all":
            found.extend(ANY)
        else:
            found.append(item)
    return tuple(found)


def networks(cidrs: Iterable[str], family: Family, *, every: bool = False) -> tuple[str, ...] | None:
    """The CIDRs of `family`; None: every address, because there are none for the family or one is the zero CIDR.

    With `every` the zero CIDR is kept, so that addresses can be matched against it.
    """
    own = tuple([cidr for cidr in cidrs if family_of(cidr) is family])
    if not every and (not own or any(cidr.endswith("/0") for cidr in own)):
        return None
    return own


def has_loopback(cidrs: tuple[str, ...] | None) -> bool:
    """Whether 127.0.0.0/8 or a part of it is among them. None, every address, includes it."""
    if cidrs is None:
        return True
    loopback = ipaddress.ip_network(_LOOPBACK[Family.IPV4])
    return any(ipaddress.ip_network(cidr).overlaps(loopback) for cidr in cidrs)


def node_port_ips(
    cidrs: tuple[str, ...] | None, addresses: Iterable[str], family: Family, *, localhost: bool
) -> tuple[str, ...] | None:
    """Those of the node's `addresses` that serve NodePorts; None: all.

    Loopback addresses do so only with `localhost`, and only for IPv4.
    """
    if cidrs is None:
        return None
    found: dict[str, None] = {}
    for cidr in cidrs:
        network = ipaddress.ip_network(cidr)
        for text in addresses:
            parsed = parse_ip(text)
            if parsed is None or family_of(parsed) is not family:
                continue
            address = ipaddress.ip_address(parsed)
            allowed = not address.is_loopback or (localhost and family is Family.IPV4)
            if address in network and allowed:
                found[parsed] = None
    return tuple(found)
