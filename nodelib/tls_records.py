"""TLS with a stranger: what an event loop does for it before, between and beside what the application gets.

OpenSSL goes on for as long as records arrive that the application never sees (new keys, tickets, hellos to negotiate
anew), and no count of an application's bytes bounds that; Go's crypto/tls takes sixteen in a row. It also has Diffie-
Hellman over finite fields of up to 8,192 bits (10,000 in TLS 1.2), which takes 0.2 to 5 seconds of a loop for a peer
that has only to name it. Go has never had that, and Python's ssl cannot leave it out of TLS 1.3.

Each connection of a StrangerContext gets its records in small pieces, which are counted, and its first hello is read.
"""

from __future__ import annotations

import ssl
import time
from typing import Any

from nodelib.frame_heads import FrameHeads

_PIECE = 4096  # bytes that OpenSSL gets at a time: 150 of the smallest records, some milliseconds
_MOST_HANDSHAKE = 256  # records; most have fewer than ten
# Bytes: OpenSSL takes 100 KiB of certificates, 0.2 ms for each of the 500 smallest, before it says that nobody knows
# them. What a server sends may have the names of all authorities that it takes.
_MOST_OF_CLIENT, _MOST_OF_SERVER = 12 << 10, 40 << 10
_MOST_UNSEEN = 64  # records after the handshake without anything for the application,
_SEEN_FOR_ONE = 16  # and one more for so many that had something
_LONGEST_HELLO = 32 << 10  # bytes
_HEAD = 5  # bytes of a record before its content
_RECORDS = range(20, 25)
_HANDSHAKE, _CLIENT_HELLO, _SERVER_HELLO = 22, 1, 2
_SUPPORTED_GROUPS, _KEY_SHARE = 10, 51
_FINITE_FIELDS = range(0x100, 0x200)  # ffdhe2048 to ffdhe8192, and those of private use (RFC 7919)
# What every OpenSSL has. Who offers finite fields must offer one of them, too: OpenSSL chooses by its own order, which
# begins with them. It may lack the groups with ML-KEM, and then asks for the finite field in a second hello.
_ELLIPTIC = frozenset((23, 24, 25, 29, 30))


def _refused(text: str) -> ssl.SSLError:
    return ssl.SSLError(ssl.SSL_ERROR_SSL, text)  # with one word alone it is shown as a tuple


class StrangerContext(ssl.SSLContext):
    """For servers, and for clients of servers that nobody knows, on an event loop (asyncio's or uvloop's).

    `spent`: seconds of this process for handshakes, of those that failed, too.
    """

    spent = 0.0

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        inner = ssl.MemoryBIO()
        found = super().wrap_bio(inner, outgoing, server_side, server_hostname, session)
        assert isinstance(found, _Counted)
        found.records, found.begun_by = _Records(incoming, inner, server_side), self
        return found

    @classmethod
    def of(cls, protocol: int) -> StrangerContext:
        """ssl.PROTOCOL_TLS_SERVER or PROTOCOL_TLS_CLIENT. Give it ciphers without DHE."""
        context = cls(protocol)
        context.sslobject_class = _Counted
        context.options |= ssl.OP_NO_RENEGOTIATION
        return context


class _Counted(ssl.SSLObject):
    records: _Records
    begun_by: StrangerContext

    def do_handshake(self) -> None:
        began = time.thread_time()
        try:
            self._shake()
        finally:
            self.begun_by.spent += time.thread_time() - began

    def _shake(self) -> None:
        while True:
            try:
                return super().do_handshake()
            except ssl.SSLWantReadError:
                if not self.records.feed_handshake():
                    raise

    def read(self, len: int = 1024, buffer: Any = None) -> Any:  # `len`: its name in ssl
        while True:
            try:
                found = super().read(len, buffer)
            except ssl.SSLWantReadError:
                if not self.records.feed():
                    raise
            else:
                self.records.seen += 1
                return found

    def pending(self) -> int:
        """With what OpenSSL has not looked at: uvloop reads only as long as something is pending."""
        return super().pending() + self.records.pending()

    def unwrap(self) -> Any:
        while True:
            try:
                return super().unwrap()
            except ssl.SSLWantReadError:
                if not self.records.feed():
                    raise


class _Records:
    """Hands records from what has arrived to OpenSSL. `seen`: how many had something for the application."""

    def __init__(self, arrived: ssl.MemoryBIO, inner: ssl.MemoryBIO, of_client: bool) -> None:
        self._arrived, self._inner = arrived, inner
        self._most = _MOST_OF_CLIENT if of_client else _MOST_OF_SERVER
        self._given = 0  # bytes, in the handshake
        self._hello = _Hello()
        self._early = bytearray()  # arrived before the first hello was whole
        self._heads = FrameHeads(_HEAD, _content_of)
        self._count = self._of_handshake = 0
        self.seen = 0

    def feed_handshake(self) -> bool:
        """Whether OpenSSL got more. Raises SSLError for a peer that is refused."""
        free = len(self._early)
        if not self._hello.is_judged:
            self._early += self._arrived.read()
            free = self._hello.look_at(self._early)
        if self._count > _MOST_HANDSHAKE:
            raise _refused("too many records in a TLS handshake")
        if self._given > self._most:
            raise _refused(f"a TLS handshake of more than {self._most} bytes")
        given = self._give(free)
        self._given += given
        self._of_handshake = self._count
        return given > 0

    def feed(self) -> bool:
        """The same, after the handshake: OpenSSL has read everything that it got."""
        unseen = self._count - self._of_handshake - self.seen
        if unseen > _MOST_UNSEEN + self.seen // _SEEN_FOR_ONE:
            raise _refused("too many TLS records without data")
        return self._give(len(self._early)) > 0

    def pending(self) -> int:
        return len(self._early) + self._inner.pending

    def _give(self, free: int) -> int:
        size = min(_PIECE, free) if self._hello.is_judged else free
        data = bytes(self._early[:size])
        del self._early[:size]
        if not self._early and self._hello.is_judged:
            data = data or self._arrived.read(_PIECE)
        self._count += sum(1 for _ in self._heads.within(data))
        self._inner.write(data)
        return len(data)


def _content_of(head: bytes) -> int:
    return int.from_bytes(head[3:])


class _Hello:
    """The first message of a peer. `is_judged`: it was looked at, or is none, which OpenSSL may refuse."""

    def __init__(self) -> None:
        self.is_judged = False
        self._message = bytearray()
        self._at = 0  # where the next record begins

    def look_at(self, arrived: bytearray) -> int:
        """How much of `arrived` OpenSSL may have, which is gone the next time. Raises SSLError: the peer is refused."""
        while len(arrived) - self._at >= _HEAD and not self.is_judged:
            kind, size = arrived[self._at], _number(arrived, self._at + 3, 2)
            end = self._at + _HEAD + size
            if kind not in _RECORDS or arrived[self._at + 1] != 3:
                self.is_judged = True
            elif len(arrived) < end:
                break
            elif kind == _HANDSHAKE:
                self._message += arrived[self._at + _HEAD : end]
                self._at = end
                self._judge()
            elif self._message:
                raise _refused("a TLS message is interrupted")
            else:
                self._at = end
        if self.is_judged or (arrived and arrived[0] not in _RECORDS):
            self.is_judged = True
            return len(arrived)
        if len(arrived) > _LONGEST_HELLO:
            raise _refused("the first TLS message is too long")
        if self._message:
            return 0
        free, self._at = self._at, 0
        return free

    def _judge(self) -> None:
        size = 4 + _number(self._message, 1, 3)
        if len(self._message) >= max(4, size):
            _judge(bytes(self._message[:size]))
            self.is_judged = True


def _judge(message: bytes) -> None:
    """Raises SSLError for a hello by which OpenSSL would work in a finite field."""
    kind, body = message[0], message[4:]
    if kind not in (_CLIENT_HELLO, _SERVER_HELLO):
        raise _refused("the first TLS message is no hello")
    found = _extensions(kind, body)
    share = found.get(_KEY_SHARE, b"")
    if kind == _SERVER_HELLO:
        groups = [int.from_bytes(share[:2])]
    else:
        groups = [number for number, _ in _pairs(share[2:])]
        offered = _numbers(found.get(_SUPPORTED_GROUPS, b"")[2:])
        if any(number in _FINITE_FIELDS for number in offered) and not _ELLIPTIC & set(offered):
            raise _refused("no elliptic curve in common")
    if any(number in _FINITE_FIELDS for number in groups):
        raise _refused("Diffie-Hellman over finite fields is not spoken here")


def _extensions(kind: int, body: bytes) -> dict[int, bytes]:
    """Nothing for a hello that is cut off: OpenSSL refuses that."""
    at = 2 + 32  # version, random
    at += 1 + _number(body, at, 1)  # session
    if kind == _CLIENT_HELLO:
        at += 2 + _number(body, at, 2)  # suites
        at += 1 + _number(body, at, 1)  # compressions
    else:
        at += 2 + 1
    return dict(_pairs(body[at + 2 :]))


def _pairs(content: bytes) -> list[tuple[int, bytes]]:
    """Numbers of two bytes, each with its content."""
    found, at = list[tuple[int, bytes]](), 0
    while at + 4 <= len(content):
        size = _number(content, at + 2, 2)
        found.append((_number(content, at, 2), content[at + 4 : at + 4 + size]))
        at += 4 + size
    return found


def _numbers(content: bytes) -> list[int]:
    return [_number(content, at, 2) for at in range(0, len(content) - 1, 2)]


def _number(content: bytes | bytearray, at: int, size: int) -> int:
    return int.from_bytes(content[at : at + size])
