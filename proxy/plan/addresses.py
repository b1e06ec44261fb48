"""IP addresses and CIDRs as users write them, in canonical text. Pure."""

from __future__ import annotations

import ipaddress
import re

from nodelib.firewall.objects import Family
from proxy.model import IPNetwork

_BYTE = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_PLAIN_IPV4 = re.compile(rf"{_BYTE}(?:\.{_BYTE}){{3}}", re.ASCII)


def parse_ip(text: object) -> str | None:
    """An address in canonical text; None when it is not one.

    Leading zeros in IPv4 are ignored, as in upstream's ParseIPSloppy; an IPv4-mapped IPv6 address becomes IPv4.
    """
    if not isinstance(text, str):
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


def parse_cidr(text: object) -> IPNetwork | None:
    """A network with its host bits cleared; None when it is not one."""
    if not isinstance(text, str) or "/" not in text:
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
