"""The edge to nftables: transactions in text through `nft -f -`, elements over netlink. Decides nothing.

The text is the interface that nftables' authors document, and rules change seldom. Elements change with every
endpoint: starting nft costs milliseconds and its parser seconds at 30,000 Services, so they are sent directly.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Protocol

from nodelib import command
from nodelib.command import CommandError, Completed
from nodelib.errors import Temporary
from nodelib.firewall.objects import Family
from nodelib.nft import wire
from nodelib.nft.wire import Element, Message

_NETLINK_NETFILTER = 12
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_DUMP_INTERRUPTED = 0x10
_NO_SUCH = (errno.ENOENT,)
_SOL_NETLINK, _NETLINK_NO_ENOBUFS = 270, 5
_LARGEST = 1 << 28
_TRIES = 5

Run = Callable[..., Awaitable[Completed]]


class NftError(Temporary):
    """A transaction that the kernel refused as a whole; `code` is its errno, 0 when nft said no."""

    def __init__(self, message: str, *, family: Family, code: int = 0) -> None:
        super().__init__(
            message,
            obj=f"{family} nftables",
            step="commit a transaction",
            action="Nothing of it was changed. If it goes on, look for what else changes our table (`nft monitor`).",
        )
        self.code = code


class Table(Protocol):
    """What users of one nftables table need; `NftTable` is the real one."""

    @property
    def family(self) -> Family: ...

    @property
    def name(self) -> str: ...

    async def text(self, transaction: str) -> None: ...

    async def write(
        self, delete: Sequence[Element], add: Sequence[Element], *, rules: Sequence[Message] = (), atomic: bool = True
    ) -> None: ...

    async def elements(self, sets: Iterable[str]) -> dict[str, set[bytes]] | None: ...

    async def rules_digest(self) -> str: ...

    async def exists(self) -> bool: ...


def open_netlink() -> socket.socket:
    """Of the network namespace of the calling thread."""
    return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_NETFILTER)


class NftTable:
    """One table of one family. Transactions are sent one at a time, from threads: nothing here blocks the loop."""

    def __init__(
        self,
        family: Family,
        name: str,
        *,
        run: Run = command.run,
        connect: Callable[[], socket.socket] = open_netlink,
    ) -> None:
        self._family = family
        self._name = name
        self._run = run
        self._connect = connect
        self._lock = asyncio.Lock()

    @property
    def family(self) -> Family:
        return self._family

    @property
    def name(self) -> str:
        return self._name

    async def text(self, transaction: str) -> None:
        """All or nothing. Raises NftError with nft's own words, CommandError when there is no nft."""
        async with self._lock:
            try:
                await self._run(("nft", "-f", "-"), stdin=transaction.encode(), timeout=300)
            except CommandError as error:
                if error.returncode in (None, 127):
                    raise
                raise NftError(str(error), family=self._family) from error

    async def write(
        self, delete: Sequence[Element], add: Sequence[Element], *, rules: Sequence[Message] = (), atomic: bool = True
    ) -> None:
        """Rules, deletions, additions; without `atomic` in several transactions when there is much. Raises NftError."""
        async with self._lock:
            await asyncio.to_thread(self._write, rules, delete, add, atomic)

    async def elements(self, sets: Iterable[str]) -> dict[str, set[bytes]] | None:
        """What stands in the kernel; None when the table or one of the sets is not there. Raises NftError."""
        return await asyncio.to_thread(self._elements, tuple(sets))

    async def rules_digest(self) -> str:
        """Changes when a rule of the table is added, changed, moved or removed; "" without a table."""
        return await asyncio.to_thread(self._digest)

    async def exists(self) -> bool:
        """Raises NftError when nftables cannot be used at all."""
        return await asyncio.to_thread(self._exists)

    def _write(self, rules: Sequence[Message], delete: Sequence[Element], add: Sequence[Element], atomic: bool) -> None:
        with self._open() as channel:
            for data, first, last in wire.batches(self._family, self._name, rules, delete, add, atomic=atomic):
                self._commit(channel, data, first, last)

    def _open(self) -> socket.socket:
        try:
            channel = self._connect()
            channel.settimeout(60)
            # A dump's datagrams and the errors of a large batch must not be lost.
            _force(channel, 33, socket.SO_RCVBUF, 4 << 20)
            return channel
        except OSError as error:
            raise self._refused(error.errno or 0, "open netlink") from error

    def _commit(self, channel: socket.socket, data: bytes, first: int, last: int) -> None:
        _force(channel, 32, socket.SO_SNDBUF, min(2 * len(data) + 65536, _LARGEST))
        refused = 0
        try:
            channel.send(data)
            while True:
                for kind, _, sequence, body in wire.messages(channel.recv(1 << 18)):
                    if kind != _NLMSG_ERROR:
                        continue
                    (code,) = struct.unpack_from("=i", body)
                    refused = refused or -code
                    # The batch's own number: nothing of it was looked at.
                    if sequence == last or (code and sequence == first):
                        if refused:
                            raise self._refused(refused, "transaction")
                        return
        except OSError as error:
            raise self._refused(error.errno or 0, "transaction") from error

    def _dump(self, data: bytes) -> Iterator[bytes] | None:
        """Payloads of the answers, None for "no such thing"."""
        for _ in range(_TRIES):
            found: list[bytes] = []
            with self._open() as channel:
                try:
                    channel.send(data)
                    state = _collect(channel, found)
                except OSError as error:
                    raise self._refused(error.errno or 0, "read") from error
            if state == 0:
                return iter(found)
            if state in _NO_SUCH:
                return None
            if state != errno.EINTR:
                raise self._refused(state, "read")
        raise self._refused(errno.EINTR, "read")

    def _elements(self, sets: tuple[str, ...]) -> dict[str, set[bytes]] | None:
        found: dict[str, set[bytes]] = {}
        for name in sets:
            payloads = self._dump(wire.elements_request(self._family, self._name, name))
            if payloads is None:
                return None
            found[name] = {raw for payload in payloads for raw in wire.elements_of(payload)}
        return found

    def _digest(self) -> str:
        body = wire.text_attribute(1, self._name)
        payloads = self._dump(wire.request(wire.GET_RULE, 0x300, 1, self._family, body))
        if payloads is None:
            return ""
        digest, any_rule = hashlib.sha256(), False
        for payload in payloads:
            parts = [(kind, value) for kind, value in wire.attributes(payload, 4)]
            # The dump's own filter by table came late to the kernel; handles and positions are not part of a rule.
            if (1, self._name.encode() + b"\0") not in parts:
                continue
            any_rule = True
            for kind, value in parts:
                if kind in (2, 4):
                    digest.update(value)
        return digest.hexdigest() if any_rule else ""

    def _exists(self) -> bool:
        body = wire.text_attribute(1, self._name)
        with self._open() as channel:
            try:
                channel.send(wire.request(wire.GET_TABLE, 0, 1, self._family, body))
                for kind, _, _, answer in wire.messages(channel.recv(1 << 16)):
                    if kind == _NLMSG_ERROR:
                        (code,) = struct.unpack_from("=i", answer)
                        if -code == errno.ENOENT:
                            return False
                        raise self._refused(-code, "look for the table")
            except OSError as error:
                raise self._refused(error.errno or 0, "look for the table") from error
        return True

    def _refused(self, code: int, step: str) -> NftError:
        return NftError(f"{step} of table {self._name}: {os.strerror(code)}", family=self._family, code=code)


def _collect(channel: socket.socket, found: list[bytes]) -> int:
    """Payloads until the dump is done; 0, or the errno it ended with."""
    interrupted = False
    while True:
        for kind, flags, _, body in wire.messages(channel.recv(1 << 18)):
            interrupted = interrupted or bool(flags & _DUMP_INTERRUPTED)
            if kind in (_NLMSG_ERROR, _NLMSG_DONE):
                (code,) = struct.unpack_from("=i", body) if len(body) >= 4 else (0,)
                if code:
                    return int(-code)
                if kind == _NLMSG_DONE:
                    return errno.EINTR if interrupted else 0
            else:
                found.append(body)


def _force(channel: socket.socket, forced: int, plain: int, size: int) -> None:
    """SO_SNDBUFFORCE and SO_RCVBUFFORCE go beyond the sysctl's limit; a user namespace may not use them."""
    try:
        channel.setsockopt(socket.SOL_SOCKET, forced, size)
    except PermissionError:
        channel.setsockopt(socket.SOL_SOCKET, plain, size)
