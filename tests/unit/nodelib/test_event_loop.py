"""The agent's event loop beside peers that reset their connections."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import ssl
import struct
from collections.abc import Iterator

import pytest

from nodelib.event_loop import Loop

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER with no time: close sends a reset


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        made.settimeout(10)
        yield made


async def _reset_connection(listener: socket.socket) -> socket.socket:
    """The end of a connection that its peer has reset."""
    near = socket.socket()
    near.setblocking(False)
    await asyncio.get_running_loop().sock_connect(near, listener.getsockname())
    far, _ = listener.accept()
    far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    far.close()
    return near


async def _connect(
    listener: socket.socket, tls: ssl.SSLContext | None, cancelled_after: int | None = None
) -> socket.socket:
    """The socket that was given to the loop, after the connection has failed. `cancelled_after`: so many turns."""
    near = await _reset_connection(listener)
    name = "server" if tls is not None else None
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(loop.create_connection(asyncio.Protocol, sock=near, ssl=tls, server_hostname=name))
    if cancelled_after is not None:
        for _ in range(cancelled_after):
            await asyncio.sleep(0)
        task.cancel()
    await asyncio.wait([task])
    if not task.cancelled() and task.exception() is None:
        await asyncio.sleep(0.01)
        task.result()[0].abort()
    return near


@pytest.mark.parametrize("tls", [ssl.create_default_context(), None], ids=["tls", "plain"])
def test_a_reset_connection_closes_no_descriptor_of_another(listener: socket.socket, tls: ssl.SSLContext) -> None:
    """The Lease, a watch of the Services and each new pod failed for three minutes once an API server was killed."""

    async def play() -> list[int]:
        lost = []
        for _ in range(50):
            near = await _connect(listener, tls)
            await asyncio.sleep(0)  # the loop closes the descriptor
            taken = [os.open("/dev/null", os.O_RDONLY) for _ in range(3)]  # one of them has its number now
            del near
            gc.collect()
            for one in taken:
                try:
                    os.close(one)
                except OSError:
                    lost.append(one)
        return lost

    with asyncio.Runner(loop_factory=Loop) as runner:
        assert runner.run(play()) == []


def test_no_descriptor_is_left_open(listener: socket.socket) -> None:
    async def play() -> None:
        tls = ssl.create_default_context()
        for number in range(30):
            if number == 10:
                gc.collect()
                before = len(os.listdir("/proc/self/fd"))
            await _connect(listener, tls)
            await _connect(listener, tls, cancelled_after=number % 4)
        await asyncio.sleep(0.05)
        gc.collect()
        assert len(os.listdir("/proc/self/fd")) <= before

    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(play())


def test_a_connection_over_a_given_socket_works_and_ends(listener: socket.socket) -> None:
    async def play() -> None:
        near = socket.socket()
        near.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(near, listener.getsockname())
        far, _ = listener.accept()
        reader, writer = await asyncio.open_connection(sock=near)
        writer.write(b"question")
        assert (await loop.run_in_executor(None, far.recv, 100)) == b"question"
        far.sendall(b"answer")
        far.shutdown(socket.SHUT_WR)
        assert await reader.read() == b"answer"
        writer.close()
        await writer.wait_closed()
        assert (await loop.run_in_executor(None, far.recv, 100)) == b"", "closed"
        far.close()

    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(play())
