"""One address in front of several servers: real sockets."""

from __future__ import annotations

import asyncio
import contextlib

from controlplane.kubeadm.balancer import Balancer
from nodelib.tasks import cancel_and_wait


async def named_server(name: str) -> tuple[asyncio.Server, int]:
    """Says its name to whoever says something."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.read(100):
            writer.write(name.encode())
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[1]


async def ask(port: int) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"?")
    said = await asyncio.wait_for(reader.read(100), 5)
    writer.close()
    return said.decode()


async def test_every_backend_has_its_turn_and_a_dead_one_is_passed_over() -> None:
    first, one = await named_server("a")
    second, two = await named_server("b")
    balancer = Balancer([("127.0.0.1", one), ("127.0.0.1", two)])
    front = await asyncio.start_server(balancer.serve, "127.0.0.1", 0)
    port = front.sockets[0].getsockname()[1]
    async with front:
        assert {await ask(port), await ask(port)} == {"a", "b"}
        first.close()
        await first.wait_closed()
        assert [await ask(port) for _ in range(4)] == ["b"] * 4
        second.close()
        await second.wait_closed()
        assert await ask(port) == ""  # nobody is left: the connection ends


async def test_the_connections_of_a_backend_that_falls_silent_end_and_clients_find_another() -> None:
    """It still takes connections, as the kernel does for a process that is stopped."""
    silent = asyncio.Event()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"first")
        await reader.read()
        writer.close()

    holding = await asyncio.start_server(hold, "127.0.0.1", 0)
    stopped = holding.sockets[0].getsockname()[1]
    second, other = await named_server("b")

    async def answers(host: str, port: int) -> bool:
        await asyncio.sleep(0)
        return port != stopped or not silent.is_set()

    balancer = Balancer([("127.0.0.1", stopped), ("127.0.0.1", other)])
    front = await asyncio.start_server(balancer.serve, "127.0.0.1", 0)
    port = front.sockets[0].getsockname()[1]
    watching = asyncio.create_task(balancer.watch(answers))
    async with front, second:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read(100) == b"first"
        silent.set()
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(100), 10) == b""
        assert [await ask(port) for _ in range(3)] == ["b"] * 3
        writer.close()
        await cancel_and_wait(watching)
    holding.close()
