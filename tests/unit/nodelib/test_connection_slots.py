"""Connections that are passed on: whoever takes all of them cannot keep others out, shown with real processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import AsyncIterator

import pytest

from nodelib.connection_slots import ConnectionSlots, most_connections

FILES = 240
FORWARD = """
import asyncio, sys
from controlplane.machine.edge.forward import run
asyncio.run(run(["=".join(sys.argv[1:])]))
"""
# Without its checks: what stands behind it here speaks no TLS.
BALANCER = """
import asyncio, sys
from controlplane.kubeadm.balancer import Balancer, _place
async def run(here, there):
    async with await asyncio.start_server(Balancer([_place(there)]).serve, *_place(here)) as server:
        await server.serve_forever()
asyncio.run(run(*sys.argv[1:]))
"""


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        said = await reader.read(100)
        writer.write(b"heard " + said)
        await writer.drain()
        await reader.read()
    writer.close()


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextlib.asynccontextmanager
async def _running(program: str, behind: int) -> AsyncIterator[int]:
    """The program, with few descriptors; its port."""
    port = _free_port()
    words = [f"127.0.0.1:{port}", f"127.0.0.1:{behind}"]
    process = await asyncio.create_subprocess_exec(
        *("prlimit", f"--nofile={FILES}:{FILES}", sys.executable, "-S", "-c", program, *words),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(30):
            while await _asked(port) != b"heard ?":
                await asyncio.sleep(0.05)
        yield port
    finally:
        process.kill()
        await process.wait()


async def _asked(port: int) -> bytes:
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return b""
    try:
        writer.write(b"?")
        async with asyncio.timeout(5):
            return await reader.read(100)
    except (OSError, TimeoutError):
        return b""
    finally:
        writer.transport.abort()


@pytest.mark.parametrize("program", [FORWARD, BALANCER], ids=["forward", "balancer"])
async def test_whoever_opens_more_connections_than_fit_does_not_keep_others_out(program: str) -> None:
    """Each of them has said something, and is kept open."""
    flood: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    async with (
        await asyncio.start_server(_answer, "127.0.0.1", 0) as server,
        _running(program, server.sockets[0].getsockname()[1]) as port,
    ):
        for _ in range(2 * FILES):
            with contextlib.suppress(OSError):
                flood.append(await asyncio.open_connection("127.0.0.1", port))
                flood[-1][1].write(b"x")
        async with asyncio.timeout(20):
            while await _asked(port) != b"heard ?":
                await asyncio.sleep(0.1)
        for _, writer in flood:
            writer.transport.abort()


async def test_who_has_the_most_gives_way_and_who_speaks_stays() -> None:
    slots, ended = ConnectionSlots(3, fair=0.1), asyncio.Event()
    held: list[object] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with slots.slot(writer) as slot:
            held.append(slot)
            while slot is not None and await reader.read(100):
                slot.heard()
                writer.write(b"!")
        ended.set()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        many = [await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0)) for _ in range(2)]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.3", 0))
        async with asyncio.timeout(20):
            while len(held) < 3:
                await asyncio.sleep(0.01)
            late, also = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.4", 0))
            also.write(b"?")
            assert await late.read(1) == b"!"
            await ended.wait()
            writer.write(b"?")
            assert await reader.read(1) == b"!"
        for one in (writer, also, *(each for _, each in many)):
            one.transport.abort()


def test_there_is_room_for_some_whatever_the_limit() -> None:
    assert most_connections() >= 8
