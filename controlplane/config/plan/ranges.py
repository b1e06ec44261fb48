"""Which address ranges a cluster may have. Pure."""

from __future__ import annotations

import ipaddress
import itertools
from collections.abc import Iterator

from controlplane.config.model import Ranges

IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network
# Prefix lengths: of pods, from which every node gets a /24 or /64 (upstream allows 16 bits for nodes), and of Services
# (upstream allows 20 bits; the tenth address is that of DNS).
_PODS = {4: (8, 24), 6: (48, 64)}
_SERVICES = {4: (12, 27), 6: (108, 122)}
_NODES = {4: (16, 27)}
_OF_A_NODE = {4: 24, 6: 64}


def problems(ranges: Ranges, families: tuple[int, ...], nodes: int) -> list[tuple[str, str]]:
    """(field, text) of what is wrong with the ranges; the fields are those of Ranges."""
    found = [*_one("pods", ranges.pods, families, _PODS), *_one("services", ranges.services, families, _SERVICES)]
    found += _one("nodes", ranges.nodes, (4,), _NODES)
    if found:
        return found
    for network in networks(ranges.pods):
        room = 1 << (_OF_A_NODE[network.version] - network.prefixlen)
        if room < nodes:
            found.append(
                (
                    "pods",
                    f"{network} has room for {room} nodes and not for {nodes}, at /{_OF_A_NODE[network.version]} each",
                )
            )
    return found + _overlaps(ranges)


def _one(
    field: str, text: str, families: tuple[int, ...], lengths: dict[int, tuple[int, int]]
) -> Iterator[tuple[str, str]]:
    if not text:
        return
    given = networks(text)
    if tuple(network.version for network in given) != families:
        wanted = " and one ".join(f"IPv{version}" for version in families)
        yield field, f"needs one {wanted} range{', in this order' if len(families) > 1 else ''}"
        return
    for network in given:
        low, high = lengths[network.version]
        if not low <= network.prefixlen <= high:
            yield field, f"/{network.prefixlen} is outside /{low} to /{high}"
        elif network.is_loopback or network.is_multicast or network.is_link_local or network.is_unspecified:
            yield field, f"{network} is a range with a purpose of its own"


def _overlaps(ranges: Ranges) -> list[tuple[str, str]]:
    given = [(name, network) for name in ("nodes", "pods", "services") for network in networks(getattr(ranges, name))]
    return [
        (later, f"{network} overlaps {other} of the {earlier}")
        for (earlier, other), (later, network) in itertools.combinations(given, 2)
        if network.version == other.version and network.overlaps(other)
    ]


def networks(text: str) -> tuple[IPNetwork, ...]:
    """The ranges of a text with commas."""
    return tuple(ipaddress.ip_network(one.strip()) for one in text.split(",") if one.strip())
