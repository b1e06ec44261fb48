"""The names of the kernel's nftables tables: a request of microseconds, where `nft list tables` reads all their chains
first, ten seconds where iptables has 100,000 (NFT_MSG_GETTABLE, linux/netfilter/nf_tables.h).
"""

from __future__ import annotations

import os

from nodelib.netlink import netfilter
from nodelib.netlink.framing import attributes, messages

_NFT_MSG_NEWTABLE, _NFT_MSG_GETTABLE = 10 << 8, (10 << 8) | 1  # NFNL_SUBSYS_NFTABLES
_NFTA_TABLE_NAME = 1
_FAMILIES = {1: "inet", 2: "ip", 3: "arp", 5: "netdev", 7: "bridge", 10: "ip6"}
_TIMEOUT = 5.0  # seconds


def tables() -> list[tuple[str, str]]:
    """Family and name of each, in the network namespace of the calling thread. Raises OSError."""
    found = list[tuple[str, str]]()
    with netfilter.connect(_TIMEOUT) as channel:
        channel.send(netfilter.message(_NFT_MSG_GETTABLE, netfilter.DUMP, 1))
        while True:
            for kind, _, _, payload in messages(channel.recv(1 << 16)):
                if kind in (netfilter.DONE, netfilter.ERROR):
                    code = netfilter.error_of(payload)
                    if code:
                        raise OSError(code, os.strerror(code))
                    return found
                if kind == _NFT_MSG_NEWTABLE:
                    name = dict(attributes(payload, netfilter.GENMSG)).get(_NFTA_TABLE_NAME, b"")
                    found.append((_FAMILIES.get(payload[0], ""), os.fsdecode(name.rstrip(b"\0"))))
