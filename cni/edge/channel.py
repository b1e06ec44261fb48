"""One rtnetlink socket: several requests in one datagram, then all their acknowledgements. Decides nothing."""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Sequence
from typing import Any, Self

from cni.edge.messages import CLASSES, decode, refusal
from cni.edge.netns import in_namespace
from nodelib.errors import Conflict, NodewrightError, NotFound, Permanent, Temporary

_ERROR, _DONE, _DUMP_INTR = 2, 3, 0x10  # linux/netlink.h
_SOL_NETLINK, _EXT_ACK = 270, 11
_HEADER = struct.Struct("=IHHII")
_ANSWER_SECONDS = 30
_DUMP_TRIES = 8


class Channel:
    """A socket in the namespace `netns` (a descriptor; None: the caller's own). Use it from one thread."""

    def __init__(self, netns: int | None = None) -> None:
        self._socket = _open() if netns is None else in_namespace(netns, _open)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def call(self, messages: Sequence[Any], step: str, obj: str) -> list[Any]:
        """Send all messages in one datagram and wait for every acknowledgement. Raises the first refusal, translated.

        After a refused message the kernel carries on with the next one (netlink_rcv_skb), so a message must not depend
        on an earlier one.
        """
        self._send(messages, step, obj)
        waiting = set(range(1, len(messages) + 1))
        answers: list[Any] = []
        refused: tuple[int, int, str] | None = None
        while waiting:
            for kind, _, sequence, data in self._receive(step, obj):
                if kind == _ERROR:
                    waiting.discard(sequence)
                    code, text = refusal(data)
                    if code and (refused is None or sequence < refused[0]):
                        refused = (sequence, code, text)
                elif kind in CLASSES:
                    answers.append(decode(kind, data))
        if refused is not None:
            raise translate(refused[1], refused[2], step=step, obj=obj)
        return answers

    def dump(self, message: Any) -> list[Any]:
        """All answers to a dump. One that the kernel marks as interrupted is repeated.

        https://docs.kernel.org/userspace-api/netlink/intro.html, "Dump consistency".
        """
        for _ in range(_DUMP_TRIES):
            answers, interrupted = self._dump_once(message)
            if not interrupted:
                return answers
        raise Temporary(f"the kernel's list changed {_DUMP_TRIES} times while it was read", step="netlink dump")

    def _dump_once(self, message: Any) -> tuple[list[Any], bool]:
        self._send([message], "netlink dump", "")
        answers: list[Any] = []
        interrupted = False
        while True:
            for kind, flags, _, data in self._receive("netlink dump", ""):
                interrupted |= bool(flags & _DUMP_INTR)
                if kind in (_DONE, _ERROR):
                    code = -struct.unpack_from("=i", data, 16)[0] if len(data) >= 20 else 0
                    if code:
                        raise translate(code, "", step="netlink dump", obj="")
                    return answers, interrupted
                if kind in CLASSES:
                    answers.append(decode(kind, data))

    def _send(self, messages: Sequence[Any], step: str, obj: str) -> None:
        data = bytearray()
        for sequence, message in enumerate(messages, 1):
            message["header"]["sequence_number"] = sequence
            message["header"]["pid"] = 0
            message.reset()
            message.encode()
            data += message.data
        try:
            self._socket.send(data)
        except OSError as error:
            raise translate(error.errno or 0, "", step=step, obj=obj) from error

    def _receive(self, step: str, obj: str) -> list[tuple[int, int, int, bytes]]:
        try:
            data = self._socket.recv(1 << 17)
        except TimeoutError as error:
            raise Temporary(f"no answer from the kernel in {_ANSWER_SECONDS} s", step=step, obj=obj) from error
        except OSError as error:
            raise translate(error.errno or 0, "", step=step, obj=obj) from error
        parts, offset = [], 0
        while offset + _HEADER.size <= len(data):
            length, kind, flags, sequence, _ = _HEADER.unpack_from(data, offset)
            parts.append((kind, flags, sequence, data[offset : offset + length]))
            offset += (length + 3) & ~3
        return parts


def translate(code: int, text: str, *, step: str, obj: str) -> NodewrightError:
    """An errno as an error that says what to do. `text`: the kernel's own explanation, if any."""
    reason = os.strerror(code) + (f" ({text})" if text else "")
    if code == errno.EEXIST:
        return Conflict(reason, step=step, obj=obj)
    if code in (errno.ENODEV, errno.ENOENT, errno.ESRCH, errno.EADDRNOTAVAIL):
        return NotFound(reason, step=step, obj=obj)
    if code in (errno.EPERM, errno.EACCES):
        return Permanent(reason, step=step, obj=obj, action="Run it as root with CAP_NET_ADMIN on this node.")
    if code in (errno.EBUSY, errno.EAGAIN, errno.EINTR, errno.ENOBUFS, errno.ENOMEM):
        return Temporary(reason, step=step, obj=obj)
    if code == errno.EOPNOTSUPP:
        return Permanent(reason, step=step, obj=obj, action="The kernel lacks this kind of link (veth, bridge).")
    return Permanent(reason, step=step, obj=obj)


def _open() -> socket.socket:
    sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
    sock.setsockopt(_SOL_NETLINK, _EXT_ACK, 1)
    sock.settimeout(_ANSWER_SECONDS)
    sock.bind((0, 0))
    return sock
