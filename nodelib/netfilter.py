"""One request to netfilter over netlink and its answers (linux/netfilter/nfnetlink.h). Blocking, microseconds.

The frame that every subsystem shares; messages and attributes are read by nodelib.nft.wire. In the network namespace
of the calling thread.
"""

from __future__ import annotations

import os
import socket
import struct

from nodelib.nft.wire import ATTRIBUTE, HEADER, messages

REQUEST, ACK, DUMP, CREATE, EXCL = 0x1, 0x4, 0x300, 0x400, 0x200
ERROR, DONE = 2, 3  # NLMSG_ERROR is the acknowledgement too
GENMSG = 4  # bytes of nfgenmsg, before the attributes of each payload
_NETLINK_NETFILTER = 12
_NESTED = 0x8000


def connect(timeout: float | None = None) -> socket.socket:
    """A socket to ask with; `timeout` in seconds. Raises OSError."""
    channel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_NETFILTER)
    channel.settimeout(timeout)
    return channel


def message(kind: int, flags: int, number: int, body: bytes = b"", family: int = 0) -> bytes:
    """`kind`: subsystem and message; `body`: attributes."""
    head = struct.pack(">BBH", family, 0, 0)
    return HEADER.pack(HEADER.size + len(head) + len(body), kind, flags | REQUEST, number, 0) + head + body


def ask(kind: int, flags: int, body: bytes = b"", *, timeout: float = 1) -> bytes:
    """The payload of the one answer, nfgenmsg first; b"" for a mere acknowledgement. Raises OSError."""
    with connect(timeout) as channel:
        channel.send(message(kind, flags, 1, body))
        for answer, _, _, payload in messages(channel.recv(8192)):
            if answer != ERROR:
                return payload
            check(payload)
    return b""


def error_of(payload: bytes) -> int:
    """The errno of an NLMSG_ERROR or the end of a dump, 0 for none."""
    (code,) = struct.unpack_from("=i", payload) if len(payload) >= 4 else (0,)
    return -int(code)


def check(payload: bytes) -> None:
    """Raises OSError for an answer that is one."""
    code = error_of(payload)
    if code:
        raise OSError(code, os.strerror(code))


def attribute(kind: int, value: bytes) -> bytes:
    """Padded, as all but the last must be."""
    return ATTRIBUTE.pack(ATTRIBUTE.size + len(value), kind) + value + bytes(-len(value) % 4)


def nested(kind: int, value: bytes) -> bytes:
    """An attribute of attributes."""
    return attribute(kind | _NESTED, value)


def reserve(channel: socket.socket, forced: int, plain: int, size: int) -> None:
    """SO_SNDBUFFORCE and SO_RCVBUFFORCE go beyond the sysctl's limit; a user namespace may not use them."""
    try:
        channel.setsockopt(socket.SOL_SOCKET, forced, size)
    except PermissionError:
        channel.setsockopt(socket.SOL_SOCKET, plain, size)
