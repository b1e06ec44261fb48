"""The edge to nftables: text transactions through `nft -f -`, rules and elements over netlink. Decides nothing.

nft's text is its documented interface, and is used for tables, sets and chains, which seldom change. Elements change
with every endpoint: starting nft takes milliseconds, and its parser seconds at 30,000 Services, so they are sent
directly.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import socket
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

from nodelib import command
from nodelib.command import CommandError, Completed
from nodelib.errors import Temporary
from nodelib.firewall.objects import Family
from nodelib.netlink import netfilter
from nodelib.netlink.families import TableFamily
from nodelib.netlink.framing import attributes, messages, text_attribute
from nodelib.nft import counts, wire
from nodelib.nft.wire import Element, Message

_DUMP_INTERRUPTED = 0x10
_SNDBUFFORCE, _RCVBUFFORCE = 32, 33
_SOL_NETLINK, _NETLINK_CAP_ACK, _NETLINK_EXT_ACK = 270, 10, 11
_LARGEST = 1 << 28
_TRIES = 5
_ONE_BY_ONE = 32  # chains whose rules are read by a request for each

Run = Callable[..., Awaitable[Completed]]
F = TypeVar("F", bound=TableFamily)


class NftError(Temporary):
    """A transaction that was refused as a whole. `code`: the kernel's errno, 0 if nft refused it.

    `element`: the element that was refused, if the kernel says which.
    """

    def __init__(self, message: str, *, family: TableFamily, code: int = 0, element: Element | None = None) -> None:
        super().__init__(
            message,
            obj=f"{family} nftables",
            step="commit a transaction",
            action="Nothing was changed. If this persists, look for what else changes our table (`nft monitor`).",
        )
        self.code = code
        self.element = element


class Table(Protocol):
    """What users of one nftables table need. `NftTable` is the real one."""

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

    async def digests(self) -> dict[str, str]: ...

    async def exists(self) -> bool: ...


def digest_of(chains: Mapping[str, str]) -> str:
    """The digest of a table whose chains with rules have these digests, as Table.rules_digest() reads it."""
    return hashlib.sha256(repr(sorted(chains.items())).encode()).hexdigest() if chains else ""


class NftTable(Generic[F]):
    """One table of one address family. Transactions are sent one at a time, from threads: no call blocks the loop."""

    def __init__(
        self,
        family: F,
        name: str,
        *,
        run: Run = command.run,
        connect: Callable[[], socket.socket] = netfilter.connect,
    ) -> None:
        self._family = family
        self._name = name
        self._run = run
        self._connect = connect
        self._lock = asyncio.Lock()
        # Kept open, because closing a netlink socket takes milliseconds.
        self._channel: socket.socket | None = None
        self._sequence = 0

    @property
    def family(self) -> F:
        return self._family

    @property
    def name(self) -> str:
        return self._name

    async def text(self, transaction: str) -> None:
        """Commit `transaction`, all or nothing. Raises NftError with nft's message, CommandError without nft."""
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
        """Write rules, deletions and additions in one transaction, or without `atomic` in several. Raises NftError."""
        async with self._lock:
            await asyncio.to_thread(self._write, rules, delete, add, atomic)

    async def commit(self, batch: list[Message]) -> None:
        """Write these messages, in their order, in one transaction. Raises NftError."""
        async with self._lock:
            await asyncio.to_thread(self._commit_messages, batch)

    async def elements(self, sets: Iterable[str]) -> dict[str, set[bytes]] | None:
        """The elements in the kernel; None if the table or one of the sets does not exist. Raises NftError."""
        async with self._lock:
            return await asyncio.to_thread(self._elements, tuple(sets))

    async def sets(self) -> list[str]:
        """The names of the table's sets and maps; none if it does not exist."""
        async with self._lock:
            return await asyncio.to_thread(self._sets)

    async def chains(self, names: Iterable[str]) -> frozenset[str]:
        """Those of these chains that the table has. Raises NftError."""
        async with self._lock:
            return await asyncio.to_thread(self._chains, tuple(names))

    async def rules_digest(self) -> str:
        """A digest of the table's rules and their order; "" if it has no rules or does not exist."""
        return digest_of(await self.digests())

    async def digests(self, chains: Collection[str] | None = None) -> dict[str, str]:
        """Digests of the rules and their order in each of these chains, or in all that have rules."""
        async with self._lock:
            return await asyncio.to_thread(self._digests, chains)

    async def counted(self, chains: Iterable[str]) -> dict[str, int]:
        """The packets that the counters of each chain have counted; chains that do not exist are left out."""
        async with self._lock:
            return await asyncio.to_thread(self._counted, tuple(chains))

    async def exists(self) -> bool:
        """Whether the table exists. Raises NftError when nftables cannot be used at all."""
        async with self._lock:
            return await asyncio.to_thread(self._exists)

    def _write(self, rules: Sequence[Message], delete: Sequence[Element], add: Sequence[Element], atomic: bool) -> None:
        for batch in wire.batches(self._name, rules, delete, add, atomic=atomic):
            with self._errors("transaction"):
                self._commit(batch)

    def _commit_messages(self, batch: list[Message]) -> None:
        if batch:
            with self._errors("transaction"):
                self._commit(batch)

    def _commit(self, batch: list[Message]) -> None:
        channel, first = self._open(), self._numbers(len(batch) + 2)
        data, last = wire.datagram(self._family, batch, first)
        netfilter.reserve(channel, _SNDBUFFORCE, socket.SO_SNDBUF, min(2 * len(data) + 65536, _LARGEST))
        channel.send(data)
        refused: NftError | None = None
        while True:
            for kind, _, sequence, body in messages(channel.recv(1 << 18)):
                if kind != netfilter.ERROR or not first <= sequence <= last:
                    continue
                code = netfilter.error_of(body)
                if code and refused is None:
                    element = wire.refused_element(batch[sequence - first - 1], body) if sequence > first else None
                    refused = self._refused(code, "transaction", element)
                # The error is about the whole batch: none of its messages was processed.
                if sequence == last or (code and sequence == first):
                    if refused is not None:
                        raise refused
                    return

    def _numbers(self, count: int) -> int:
        """Reserve `count` sequence numbers that no other request has used, and return the first."""
        first = self._sequence + 1
        self._sequence = first + count if first < 1 << 30 else 0
        return first

    def _open(self) -> socket.socket:
        if self._channel is None:
            self._channel = self._connect()
            self._channel.settimeout(60)
            # The datagrams of a dump and the errors of a large batch must not be lost.
            netfilter.reserve(self._channel, _RCVBUFFORCE, socket.SO_RCVBUF, 4 << 20)
            # Errors name the attribute that they are about, and do not repeat the whole message.
            for option in (_NETLINK_EXT_ACK, _NETLINK_CAP_ACK):
                self._channel.setsockopt(_SOL_NETLINK, option, 1)
        return self._channel

    @contextmanager
    def _errors(self, step: str) -> Iterator[None]:
        """After a socket error the next request uses a new socket, so that late answers are not taken for its own."""
        try:
            yield
        except OSError as error:
            if self._channel is not None:
                self._channel.close()
                self._channel = None
            raise self._refused(error.errno or errno.ETIMEDOUT, step) from error

    def _ask(self, kind: int, flags: int, body: bytes) -> list[bytes] | None:
        """The payloads of the answers; None if the object does not exist."""
        for _ in range(_TRIES):
            with self._errors("read"):
                channel, number = self._open(), self._numbers(1)
                channel.send(wire.request(kind, flags, number, self._family, body))
                found: list[bytes] = []
                state = _collect(channel, number, found)
            if state == 0:
                return found
            if state == errno.ENOENT:
                return None
            if state != errno.EINTR:
                raise self._refused(state, "read")
        raise self._refused(errno.EINTR, "read")

    def _elements(self, sets: tuple[str, ...]) -> dict[str, set[bytes]] | None:
        found: dict[str, set[bytes]] = {}
        for name in sets:
            body = text_attribute(1, self._name) + text_attribute(2, name)
            payloads = self._ask(wire.GET_ELEMENTS, netfilter.DUMP, body)
            if payloads is None:
                return None
            found[name] = {raw for payload in payloads for raw in wire.elements_of(payload)}
        return found

    def _sets(self) -> list[str]:
        found = self._ask(wire.GET_SETS, netfilter.DUMP, text_attribute(1, self._name)) or ()
        parts = [dict(attributes(payload, 4)) for payload in found]
        return [one[2].rstrip(b"\0").decode() for one in parts if one[1] == self._name.encode() + b"\0"]

    def _chains(self, names: tuple[str, ...]) -> frozenset[str]:
        bodies = {name: text_attribute(1, self._name) + text_attribute(3, name) for name in names}
        return frozenset(
            name for name, body in bodies.items() if self._ask(wire.GET_CHAIN, netfilter.ACK, body) is not None
        )

    def _digests(self, chains: Collection[str] | None) -> dict[str, str]:
        table, own = text_attribute(1, self._name), self._name.encode() + b"\0"
        wanted = {one.encode() + b"\0" for one in chains} if chains is not None else None
        # Some by one request each, many by one for all.
        parts = (b"",) if chains is None or len(chains) > _ONE_BY_ONE else (text_attribute(2, one) for one in chains)
        found: dict[bytes, Any] = {}
        for part in parts:
            for payload in self._ask(wire.GET_RULE, netfilter.DUMP, table + part) or ():
                rule = dict(attributes(payload, 4))
                # Old kernels ignore the filters by table and chain, and answer each request with everything.
                if rule.get(1) != own:
                    continue
                name = rule[2]
                if (wanted is None or name in wanted) and (not part or part[4:].startswith(name)):
                    # Handles and positions are left out.
                    found.setdefault(name, hashlib.sha256()).update(counts.without(rule.get(4, b"")))
        return {name.rstrip(b"\0").decode(): digest.hexdigest() for name, digest in found.items()}

    def _counted(self, chains: tuple[str, ...]) -> dict[str, int]:
        found: dict[str, int] = {}
        for name in chains:
            body = text_attribute(1, self._name) + text_attribute(2, name)
            for payload in self._ask(wire.GET_RULE, netfilter.DUMP, body) or ():
                parts = dict(attributes(payload, 4))
                # Old kernels ignore the filter by chain.
                if parts.get(2) == name.encode() + b"\0":
                    found[name] = found.get(name, 0) + counts.packets(parts.get(4, b""))
        return found

    def _exists(self) -> bool:
        return self._ask(wire.GET_TABLE, netfilter.ACK, text_attribute(1, self._name)) is not None

    def _refused(self, code: int, step: str, element: Element | None = None) -> NftError:
        what = f" (an element of {element.set})" if element else ""
        message = f"{step} of table {self._name}: {os.strerror(code)}{what}"
        return NftError(message, family=self._family, code=code, element=element)


def _collect(channel: socket.socket, number: int, found: list[bytes]) -> int:
    """Append the payloads of the answers to request `number` to `found`. Returns 0, or the errno that ended it."""
    interrupted = False
    while True:
        for kind, flags, sequence, body in messages(channel.recv(1 << 18)):
            if sequence != number:
                continue
            interrupted = interrupted or bool(flags & _DUMP_INTERRUPTED)
            if kind in (netfilter.ERROR, netfilter.DONE):
                return netfilter.error_of(body) or (errno.EINTR if interrupted else 0)
            found.append(body)
