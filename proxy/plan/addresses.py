"""IP addresses and CIDRs as users write them, in canonical text. Pure."""

from __future__ import annotations

import ipaddress
import re

from nodelib import addresses
from nodelib.firewall.objects import Family
from proxy.model import IPNetwork

_BYTE = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_PLAIN_IPV4 = re.compile(rf"{_BYTE}(?:\.{_BYTE}){{3}}", re.ASCII)
_LONGEST = 100  # characters: the longest address with a prefix and blanks around it has fewer
_SPECIAL_IPV4 = re.compile(
    r"(?P<unspecified>0\.)|(?P<loopback>127\.)|(?P<link_local>169\.254\.)|(?P<multicast>(?:22[4-9]|23[0-9])\.)"
    r"|(?P<broadcast>255\.255\.255\.255)"
)


def parse_ip(text: object) -> str | None:
    """An address in canonical text; None when it is not one.

    Leading zeros in IPv4 are ignored, as in upstream's ParseIPSloppy; an IPv4-mapped IPv6 address becomes IPv4.
    """
    if not isinstance(text, str) or len(text) > _LONGEST:
        return None
    if _PLAIN_IPV4.fullmatch(text):
        return text  # the usual case, twenty times as fast
    candidate = text.strip()
    if "." in candidate and ":" not in candidate:
        candidate = ".".join([part.lstrip("0") or "0" if part.isdigit() else part for part in candidate.split(".")])
    try:
        address = ipaddress.ip_address(candidate)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None:
            return None
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
    return str(address)


def special(address: str) -> str:
    """What makes `address`, in canonical text, one that every node has itself: "loopback", …; "" for all others.

    A Service or endpoint with such an address would take over services of the nodes themselves, or the metadata service
    of a cloud. The API server refuses it in endpoints and externalIPs (ValidateNonSpecialIP in upstream's
    pkg/apis/core/validation), but not in a load balancer's status; upstream's proxy takes all of them.
    """
    if ":" in address:
        return addresses.special(ipaddress.IPv6Address(address))
    found = _SPECIAL_IPV4.match(address)  # twenty times as fast as the module ipaddress, and there may be many
    return (found.lastgroup or "").replace("_", "-") if found else ""


def parse_cidr(text: object) -> IPNetwork | None:
    """A network with its host bits cleared; None when it is not one."""
    if not isinstance(text, str) or len(text) > _LONGEST or "/" not in text:
        return None
    host, _, bits = text.strip().partition("/")
    address = parse_ip(host)
    if address is None or not (bits.isascii() and bits.isdigit()):
        return None
    try:
        return ipaddress.ip_network(f"{address}/{bits}", strict=False)
    except ValueError:
        return None


def family_of(address: str) -> Family:
    return Family.IPV6 if ":" in address else Family.IPV4
