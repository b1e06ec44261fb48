"""Clients that nobody knows and that want no good: `python -m … ATTACK PORT CA CLIENTS`, until it is killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import sys
from collections.abc import Awaitable, Callable

HEAD = b"GET /pods HTTP/1.1\r\nHost: x\r\n"
_AGAIN = 1.0  # seconds until a client that was turned away comes back

Attack = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def _huge_heads(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD)
    for number in range(3):
        writer.write(b"X-%d: " % number + b"a" * 1_000_000 + b"\r\n")
        await writer.drain()
    await reader.read()


async def _almost_huge_heads(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Each by itself is allowed; it never ends."""
    writer.write(HEAD)
    for number in range(9):
        writer.write(b"X-%d: " % number + b"a" * 100_000 + b"\r\n")
        await writer.drain()
    await reader.read()


async def _half_heads(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD)
    await reader.read()


async def _slow_heads(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    for number in range(10_000):
        writer.write(b"x" if number else b"G")
        await writer.drain()
        await asyncio.sleep(0.5)


async def _one_after_the_other(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """The first request waits for its review; more heads come behind it."""
    writer.write(HEAD + b"Authorization: Bearer slow-%d\r\n\r\n" % id(writer))
    for _ in range(3):
        writer.write(HEAD + b"X: " + b"a" * 1_000_000 + b"\r\n\r\n")
        await writer.drain()
    await reader.read()


async def _bodies(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"POST /run/ns/web/main HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n"
                 b"Authorization: Bearer slow-%d\r\n\r\n" % id(writer))  # fmt: skip
    for _ in range(3):
        writer.write(b"a" * 1_000_000)
        await writer.drain()
    await reader.read()


async def _replayed_tokens(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"Authorization: Bearer an-old-one\r\n\r\n")
    await reader.read()


async def _repeat(attack: Attack, port: int, tls: ssl.SSLContext) -> None:
    while True:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname="localhost")
            try:
                await attack(reader, writer)
            finally:
                writer.transport.abort()
        await asyncio.sleep(_AGAIN)


ATTACKS: dict[str, Attack] = {
    "huge heads": _huge_heads,
    "almost huge heads": _almost_huge_heads,
    "half heads": _half_heads,
    "slow heads": _slow_heads,
    "one after the other": _one_after_the_other,
    "bodies": _bodies,
    "replayed tokens": _replayed_tokens,
}


async def _main(attack: str, port: str, authority: str, clients: str) -> None:
    tls = ssl.create_default_context(cafile=authority)
    print("attacking", flush=True)
    async with asyncio.TaskGroup() as group:
        for _ in range(int(clients)):
            group.create_task(_repeat(ATTACKS[attack], int(port), tls))


if __name__ == "__main__":
    os.nice(10)
    asyncio.run(_main(*sys.argv[1:]))
