"""Packet sockets on the interface where addresses are announced (packet(7)).

The kernel cannot do this for us: it answers for a proxied neighbour (`ip neigh add proxy`) only if that one is behind
another interface, and for an address of our own also on the ports of the node's own daemons.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import socket
import struct
from collections.abc import Callable, Iterable
from ipaddress import IPv6Address

from nodelib.errors import Temporary

_SO_ATTACH_FILTER = 26
_OUTGOING = 4  # packet type of what this machine sends
_AT_ONCE = 64  # frames between two looks at the rest of the process
_REST = 0.01  # seconds after that many
_LARGEST = 2048
_BUFFER = 256 << 10


class Link:
    """Frames of one interface. `open()` first; after an OSError `close()` and open it again."""

    def __init__(self, interface: str, filters: Iterable[tuple[int, bytes]], received: Callable[[list[bytes]], None]):
        """`filters`: EtherType and packed filter of each socket."""
        self.interface = interface
        self.mac = b""
        self._filters, self._received = tuple(filters), received
        self._sockets: list[socket.socket] = []
        self._groups: dict[IPv6Address, None] = {}
        self._joined: socket.socket | None = None
        self._rest: asyncio.TimerHandle | None = None
        self.failure: OSError | None = None

    def open(self) -> None:
        """Raises Temporary."""
        try:
            for kind, program in self._filters:
                self._sockets.append(_packet_socket(self.interface, kind, program))
            self.mac = bytes(self._sockets[0].getsockname()[4])
            self._joined = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) if len(self._filters) > 1 else None
        except OSError as error:
            self.close()
            raise Temporary(
                str(error),
                obj=f"interface {self.interface}",
                step="open a packet socket",
                action="--interface names the link that the nodes share; it needs root (CAP_NET_RAW).",
            ) from error
        self.failure = None
        groups, self._groups = self._groups, {}
        self.join(groups)
        for one in self._sockets:
            asyncio.get_running_loop().add_reader(one.fileno(), self._ready, one)

    def close(self) -> None:
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None
        for one in self._sockets:
            with contextlib.suppress(RuntimeError):
                asyncio.get_running_loop().remove_reader(one.fileno())
            one.close()
        self._sockets.clear()
        if self._joined is not None:
            self._joined.close()
            self._joined = None

    def send(self, frames: Iterable[bytes]) -> None:
        """What finds no room is lost, as on any link."""
        for frame in frames:
            if not self._sockets:
                return
            try:
                self._sockets[0].send(frame)
            except (BlockingIOError, InterruptedError):
                continue
            except OSError as error:
                self.failure = error
                return

    def join(self, groups: Iterable[IPv6Address]) -> None:
        """Be in exactly these multicast groups, so that switches and the interface let their frames through."""
        wanted = dict.fromkeys(groups)
        if self._joined is not None:
            for option, changed in (
                (socket.IPV6_LEAVE_GROUP, self._groups.keys() - wanted.keys()),
                (socket.IPV6_JOIN_GROUP, wanted.keys() - self._groups.keys()),
            ):
                for group in changed:
                    self._member(option, group)
        self._groups = wanted

    def _member(self, option: int, group: IPv6Address) -> None:
        assert self._joined is not None
        try:
            index = socket.if_nametoindex(self.interface)
            self._joined.setsockopt(socket.IPPROTO_IPV6, option, group.packed + struct.pack("@i", index))
        except OSError as error:
            self.failure = error

    def _ready(self, one: socket.socket) -> None:
        frames: list[bytes] = []
        try:
            for _ in range(_AT_ONCE):
                frame, origin = one.recvfrom(_LARGEST)
                if origin[2] != _OUTGOING:
                    frames.append(frame)
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self.failure = error
            asyncio.get_running_loop().remove_reader(one.fileno())
        else:
            self._pause()
        if frames:
            self._received(frames)

    def _pause(self) -> None:
        """More waits: whoever floods us gets no more of this node than this. The kernel drops what has no room."""
        loop = asyncio.get_running_loop()
        for one in self._sockets:
            loop.remove_reader(one.fileno())
        if self._rest is None:
            self._rest = loop.call_later(_REST, self._resume)

    def _resume(self) -> None:
        self._rest = None
        if self.failure is None:
            for one in self._sockets:
                asyncio.get_running_loop().add_reader(one.fileno(), self._ready, one)


def _packet_socket(interface: str, kind: int, program: bytes) -> socket.socket:
    # Without a protocol until the filter is there and the interface bound: no frame arrives before that.
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, 0)
    try:
        code = ctypes.create_string_buffer(program)
        head = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
        made.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, head)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        made.bind((interface, kind))
    except OSError:
        made.close()
        raise
    return made
