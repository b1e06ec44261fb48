"""Whether anybody listens where a packet ends. Pure.

What listens is read from the network namespace of the pod or node (read.Listening); the rules of a Service do not
know it, so a wrong targetPort looks well everywhere else.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable

from controlplane.machine.model import Listener

Listening = Callable[[str], tuple[Listener, ...] | None]
"""All listeners in the network namespace that an address leads to; None: not known."""

_SHOWN = 6


def unknown(address: str) -> None:
    """For callers that cannot look."""


def blind(_: object) -> Listening:
    """How to learn who listens, for callers that cannot look anywhere."""
    return unknown


def silence(found: Iterable[Listener] | None, address: str, port: int, protocol: str) -> str:
    """Why nobody takes packets for address:port, "" when somebody does or it is not known."""
    if found is None or protocol not in ("tcp", "udp"):
        return ""
    every = list(found)
    here = [one for one in every if one.port == port]
    if any(one.protocol == protocol and _takes(one.address, address) for one in here):
        return ""
    text = f"nobody listens on {port}/{protocol}"
    own = [one for one in here if one.protocol == protocol]
    if own:
        return f"{text} at {address}: only at {', '.join(sorted({one.address for one in own}))}"
    if here:
        return f"{text}, only on {port}/{here[0].protocol}"
    others = open_ports(every, protocol)
    return f"{text}, only on {', '.join(f'{one}/{protocol}' for one in others[:_SHOWN])}" if others else text


def open_ports(found: Iterable[Listener], protocol: str) -> list[int]:
    """The ports that others can reach, without those of loopback addresses."""
    return sorted({one.port for one in found if one.protocol == protocol and not _plain(one.address).is_loopback})


def _takes(listens_at: str, address: str) -> bool:
    at = _plain(listens_at)
    return at.is_unspecified or at == _plain(address)


def _plain(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """An IPv4 address that is written as an IPv6 one is that IPv4 address."""
    found = ipaddress.ip_address(text)
    return (found.ipv4_mapped or found) if isinstance(found, ipaddress.IPv6Address) else found
