"""IP addresses as text."""

from __future__ import annotations

import ipaddress


def is_address(text: str) -> bool:
    """An IPv4 or IPv6 address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
