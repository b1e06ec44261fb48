"""The generation of the kernel's nft ruleset: a number that grows with every transaction of anybody.

One netlink message tells whether anything changed since last time, where listing the rules of a large
table takes a second. NFT_MSG_GETGEN, linux/netfilter/nf_tables.h; of the namespace of the caller.
"""

from __future__ import annotations

from nodelib import netfilter
from nodelib.nft.wire import attributes

_NFT_MSG_GETGEN = (10 << 8) | 16  # NFNL_SUBSYS_NFTABLES, NFT_MSG_GETGEN
_NFTA_GEN_ID = 1


def read_generation() -> int | None:
    """None where the kernel has no nf_tables or does not let us ask."""
    try:
        answer = netfilter.ask(_NFT_MSG_GETGEN, 0)
    except OSError:
        return None
    number = dict(attributes(answer, netfilter.GENMSG)).get(_NFTA_GEN_ID)
    return int.from_bytes(number, "big") if number is not None else None
