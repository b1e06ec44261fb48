"""The generation of the kernel's nft ruleset: a number that grows with every transaction, whoever makes it.

One netlink message shows whether anything changed, while listing the rules of a large table takes a second
(NFT_MSG_GETGEN, linux/netfilter/nf_tables.h). It reads the network namespace of the calling thread.
"""

from __future__ import annotations

from nodelib import netfilter
from nodelib.netlink import attributes

_NFT_MSG_GETGEN = (10 << 8) | 16  # NFNL_SUBSYS_NFTABLES, NFT_MSG_GETGEN
_NFTA_GEN_ID = 1


def read_generation() -> int | None:
    """The generation; None where the kernel has no nf_tables or does not let us ask."""
    try:
        answer = netfilter.ask(_NFT_MSG_GETGEN, 0)
    except OSError:
        return None
    number = dict(attributes(answer, netfilter.GENMSG)).get(_NFTA_GEN_ID)
    return int.from_bytes(number, "big") if number is not None else None
