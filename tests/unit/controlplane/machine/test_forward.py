"""Ports of this machine: connections take turns, silent places are passed over, and each direction ends by itself."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

from controlplane.machine.edge.forward import Forward, place


def test_places() -> None:
    assert place("127.0.0.1:80") == ("127.0.0.1", 80)
    assert place("[::1]:80") == ("::1", 80)


@contextlib.asynccontextmanager
async def echo(name: str) -> AsyncIterator[tuple[str, int]]:
    """Answers, once the client has said all, with its own name and what it was told."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said = await reader.read()
        writer.write(name.encode() + said)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[:2]


async def ask(port: int, text: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(text)
    writer.write_eof()
    async with asyncio.timeout(30):
        return await reader.read()


async def test_connections_take_turns_and_pass_over_a_place_where_nobody_listens() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound and not listening
        async with echo("a") as first, echo("b") as second:
            forward = Forward([first, closed.getsockname(), second])
            async with await asyncio.start_server(forward.serve, "127.0.0.1", 0) as server:
                port = server.sockets[0].getsockname()[1]
                found = [await ask(port, b"!") for _ in range(3)]
                long = await ask(port, b"x" * 300_000)
    assert found == [b"a!", b"b!", b"b!"]
    assert long == b"a" + b"x" * 300_000


async def test_a_client_is_turned_away_when_nobody_listens() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        forward = Forward([closed.getsockname()])
        async with await asyncio.start_server(forward.serve, "127.0.0.1", 0) as server:
            with contextlib.suppress(ConnectionResetError):
                assert await ask(server.sockets[0].getsockname()[1], b"!") == b""
