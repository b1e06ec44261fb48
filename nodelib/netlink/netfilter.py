"""Requests to netfilter over netlink (linux/netfilter/nfnetlink.h), for all its subsystems. Blocking, for microseconds.

They go to the network namespace of the calling thread. `framing.py` has the messages.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable, Iterator

from nodelib.netlink.framing import HEADER, attributes, messages

REQUEST, ACK, DUMP, CREATE, EXCL = 0x1, 0x4, 0x300, 0x400, 0x200
ERROR, DONE = 2, 3  # NLMSG_ERROR is the acknowledgement too
GENMSG = 4  # bytes of nfgenmsg, before the attributes of each payload
_NETLINK_NETFILTER = 12


def connect(timeout: float | None = None) -> socket.socket:
    """A netlink socket; `timeout` in seconds. Raises OSError."""
    channel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_NETFILTER)
    channel.settimeout(timeout)
    return channel


def message(kind: int, flags: int, number: int, body: bytes = b"", family: int = 0, resource: int = 0) -> bytes:
    """One request. `kind`: subsystem and message type; `body`: attributes; `resource`: a group or queue (res_id)."""
    head = struct.pack(">BBH", family, 0, resource)
    return HEADER.pack(HEADER.size + len(head) + len(body), kind, flags | REQUEST, number, 0) + head + body


def orders(kind: int, bodies: Iterable[bytes], resource: int) -> list[bytes]:
    """Requests of one kind, each to be acknowledged and numbered from 1 on."""
    return [message(kind, ACK, number, body, resource=resource) for number, body in enumerate(bodies, 1)]


def reported(data: bytes, kind: int) -> Iterator[dict[int, bytes]]:
    """The attributes of each message of this kind in one datagram of the kernel."""
    return (dict(attributes(payload, GENMSG)) for one, _, _, payload in messages(data) if one == kind)


def ask(kind: int, flags: int, body: bytes = b"", *, timeout: float = 1) -> bytes:
    """Send one request; the payload of its answer, nfgenmsg first, b"" for a mere acknowledgement. Raises OSError."""
    with connect(timeout) as channel:
        channel.send(message(kind, flags, 1, body))
        for answer, _, _, payload in messages(channel.recv(8192)):
            if answer != ERROR:
                return payload
            check(payload)
    return b""


def dump(channel: socket.socket, kind: int, family: int = 0) -> Iterator[bytes]:
    """Ask for all objects of a kind; the payload of each, nfgenmsg first. Raises OSError."""
    channel.send(message(kind, DUMP, 1, family=family))
    while True:
        for answer, _, _, payload in messages(channel.recv(1 << 18)):
            if answer in (ERROR, DONE):
                return check(payload)
            yield payload


def error_of(payload: bytes) -> int:
    """The errno in an NLMSG_ERROR or at the end of a dump, 0 for none."""
    (code,) = struct.unpack_from("=i", payload) if len(payload) >= 4 else (0,)
    return -int(code)


def check(payload: bytes) -> None:
    """Raise OSError if the answer has an errno."""
    code = error_of(payload)
    if code:
        raise OSError(code, os.strerror(code))


def reserve(channel: socket.socket, forced: int, plain: int, size: int) -> None:
    """Set a buffer's size by SO_SNDBUFFORCE or SO_RCVBUFFORCE, which a user namespace may not use, or else plainly."""
    try:
        channel.setsockopt(socket.SOL_SOCKET, forced, size)
    except PermissionError:
        channel.setsockopt(socket.SOL_SOCKET, plain, size)
