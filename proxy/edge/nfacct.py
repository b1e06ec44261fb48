"""Named packet counters of the kernel (nfnetlink_acct), which rules can count into. Blocking, microseconds."""

from __future__ import annotations

import errno
import os
import socket
import struct

_NETLINK_NETFILTER = 12
_ACCT_NEW = (7 << 8) | 0  # NFNL_SUBSYS_ACCT, NFNL_MSG_ACCT_NEW; linux/netfilter/nfnetlink_acct.h
_ACCT_GET = (7 << 8) | 1
_REQUEST, _ACK, _CREATE, _EXCL = 0x1, 0x4, 0x400, 0x200
_NAME, _PACKETS = 1, 2
_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_GENMSG = bytes(4)


def ensure(name: str) -> bool:
    """Create the counter; False where the kernel has no such counters or does not let us."""
    try:
        _request(_ACCT_NEW, _REQUEST | _ACK | _CREATE | _EXCL, name)
    except OSError as error:
        return error.errno == errno.EEXIST
    return True


def packets(name: str) -> int | None:
    """The counter's packets; None when it does not exist."""
    try:
        answer = _request(_ACCT_GET, _REQUEST, name)
    except OSError:
        return None
    offset = _HEADER.size + len(_GENMSG)
    while offset + _ATTRIBUTE.size <= len(answer):
        size, kind = _ATTRIBUTE.unpack_from(answer, offset)
        if kind & 0x3FFF == _PACKETS:
            (count,) = struct.unpack_from(">Q", answer, offset + _ATTRIBUTE.size)
            return int(count)
        offset += max(_ATTRIBUTE.size, (size + 3) & ~3)
    return None


def _request(kind: int, flags: int, name: str) -> bytes:
    value = name.encode() + b"\0"
    attribute = _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), _NAME) + value + bytes(-len(value) % 4)
    body = _GENMSG + attribute
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_NETFILTER) as channel:
        channel.settimeout(1)
        channel.send(_HEADER.pack(_HEADER.size + len(body), kind, flags, 1, 0) + body)
        answer = channel.recv(8192)
    if _HEADER.unpack_from(answer)[1] == 2:  # NLMSG_ERROR, also the acknowledgement
        (code,) = struct.unpack_from("=i", answer, _HEADER.size)
        if code:
            raise OSError(-code, os.strerror(-code), name)
    return answer
