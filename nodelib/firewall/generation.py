"""The generation of the kernel's nft ruleset: a number that grows with every transaction of anybody.

One netlink message tells whether anything changed since last time, where listing the rules of a large
table takes a second. NFT_MSG_GETGEN, linux/netfilter/nf_tables.h; of the namespace of the caller.
"""

from __future__ import annotations

import socket
import struct

_NETLINK_NETFILTER = 12
_NFT_MSG_GETGEN = (10 << 8) | 16  # NFNL_SUBSYS_NFTABLES, NFT_MSG_GETGEN
_REQUEST = 1
_NFTA_GEN_ID = 1
_HEADER = struct.Struct("=IHHII")  # nlmsghdr
_ATTRIBUTE = struct.Struct("=HH")
_GENMSG = 4


def read_generation() -> int | None:
    """None where the kernel has no nf_tables or does not let us ask."""
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_NETFILTER) as channel:
            channel.settimeout(1)
            channel.send(_HEADER.pack(_HEADER.size + _GENMSG, _NFT_MSG_GETGEN, _REQUEST, 1, 0) + bytes(_GENMSG))
            return _generation(channel.recv(4096))
    except OSError:
        return None


def _generation(answer: bytes) -> int | None:
    if len(answer) < _HEADER.size + _GENMSG:
        return None
    length, kind, *_ = _HEADER.unpack_from(answer)
    if kind >> 8 != _NFT_MSG_GETGEN >> 8:  # NLMSG_ERROR
        return None
    offset = _HEADER.size + _GENMSG
    while offset + _ATTRIBUTE.size <= min(length, len(answer)):
        size, name = _ATTRIBUTE.unpack_from(answer, offset)
        if name == _NFTA_GEN_ID:
            (number,) = struct.unpack_from(">I", answer, offset + _ATTRIBUTE.size)
            return int(number)
        offset += max(_ATTRIBUTE.size, size + 3 & ~3)
    return None
