"""The names of the kernel's nftables tables: a request of microseconds, where `nft list tables` reads all their chains
first, ten seconds where iptables has 100,000 (NFT_MSG_GETTABLE, linux/netfilter/nf_tables.h).
"""

from __future__ import annotations

import os

from nodelib.netlink import netfilter
from nodelib.netlink.framing import attributes
from nodelib.nft import wire

_NFTA_TABLE_NAME = 1
_FAMILIES = {1: "inet", 2: "ip", 3: "arp", 5: "netdev", 7: "bridge", 10: "ip6"}
_TIMEOUT = 5.0  # seconds


def tables() -> list[tuple[str, str]]:
    """Family and name of each, in the network namespace of the calling thread. Raises OSError."""
    with netfilter.connect(_TIMEOUT) as channel:
        return [_named(payload) for payload in netfilter.dump(channel, wire.SUBSYSTEM | wire.GET_TABLE)]


def _named(payload: bytes) -> tuple[str, str]:
    name = dict(attributes(payload, netfilter.GENMSG)).get(_NFTA_TABLE_NAME, b"")
    return _FAMILIES.get(payload[0], ""), os.fsdecode(name.rstrip(b"\0"))
