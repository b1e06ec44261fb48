"""What asks the demo whether it answers: who answers in its place can neither fill the memory nor hold it up."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from controlplane.cluster.edge.probe import ask

HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


async def asked(pieces: bytes, pause: float, timeout: float) -> str:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(HEAD)
            while pieces:
                writer.write(pieces)
                await writer.drain()
                await asyncio.sleep(pause)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        return await asyncio.wait_for(asyncio.to_thread(ask, "127.0.0.1", port, "/", timeout), 20)


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    ("pieces", "pause", "timeout"), [(b"x" * 65536, 0.0, 10.0), (b"x", 0.05, 0.5)], ids=["flood", "drops"]
)
async def test_an_answer_without_end_is_none(pieces: bytes, pause: float, timeout: float) -> None:
    with pytest.raises(OSError, match="no end"):
        await asked(pieces, pause, timeout)


async def test_a_short_answer_is_its_body() -> None:
    assert await asked(b"", 0.0, 5.0) == ""
