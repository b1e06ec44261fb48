"""What a pod may have the node decode when it is asked over HTTP/2: frames of every kind, as many as it likes."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Iterator

import pytest

from agent.probes import http2

_HEADERS = ((":method", "GET"), (":scheme", "http"), (":authority", "x"), (":path", "/"))


def frame(kind: int, flags: int, stream: int, content: bytes = b"") -> bytes:
    return len(content).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + content


_SETTINGS, _OK, _END = frame(4, 0, 0), frame(1, 4, 1, b"\x88"), frame(0, 1, 1, b"body")


def _windows(number: int) -> bytes:
    return b"\0\4" + struct.pack(">I", 1000 + number)


_PUSHED = b"".join(frame(5, 4, 1, (2 * one).to_bytes(4) + b"\x82\x86\x84\x41\x01x") for one in range(1, 4000))
_FLOODS = {
    "promises": _PUSHED,
    "promises, and windows of all of them": _PUSHED + b"".join(frame(4, 0, 0, _windows(one)) for one in range(6000)),
    "settings": frame(4, 0, 0) * 20_000,
    "settings in one frame": b"".join(
        frame(4, 0, 0, b"".join(struct.pack(">HI", number, 1) for number in range(100, 2800))) for _ in range(10)
    ),
    "pings": frame(6, 0, 0, b"12345678") * 10_000,
    "what nobody knows": frame(0xBB, 0, 0) * 20_000,
    "priorities": frame(2, 0, 1, b"\0\0\0\0\1") * 10_000,
    "windows": frame(8, 0, 0, b"\0\0\0\1") * 10_000,
    "data without any": _OK + frame(0, 0, 1) * 20_000,
    "headers": b"".join(frame(1, 4, 1, b"\x08\x03103" + b"\x00\x01a\x00" * 900) for _ in range(5)) + _OK + _END,
}


async def _asked(sent: bytes, most: int = 1000, headers: http2.Headers = _HEADERS) -> http2.Answer:
    """The answer of a server that sends this and then nothing more."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(sent)
        while await reader.read(1 << 16):
            pass
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    try:
        async with asyncio.timeout(30):
            return await http2.ask(reader, writer, headers, most=most)
    finally:
        writer.transport.abort()
        server.close()


@pytest.mark.parametrize("flood", _FLOODS)
async def test_floods_are_cut_soon(flood: str) -> None:
    """Of 128 KiB that were decoded, the second took two seconds, and the others up to 0.4."""
    began = time.thread_time()
    with pytest.raises(ConnectionError) as found:
        await _asked(_SETTINGS + _FLOODS[flood])
    assert "closed" not in str(found.value)
    assert time.thread_time() - began < 0.15


def _pieces(body: bytes, size: int) -> Iterator[bytes]:
    for at in range(0, len(body), size):
        yield frame(0, 0, 1, body[at : at + size])


@pytest.mark.parametrize(
    ("sent", "body"),
    [
        pytest.param(_SETTINGS + _OK + _END, b"body", id="plain"),
        pytest.param(_OK + b"".join(_pieces(b"x" * 5000, 10)) + _END, b"x" * 1000, id="in small pieces"),
        pytest.param(_SETTINGS + frame(6, 0, 0, b"12345678") * 20 + _OK + _END, b"body", id="some pings"),
        pytest.param(
            frame(4, 0, 0, b"\0\3\0\0\0\x64\0\4\0\xff\xff\xff\0\5\0\0\x40\0") + frame(4, 1, 0)
            + frame(1, 4, 1, b"\x88" + (b"\x00\x01a\x64" + b"v" * 100) * 100) + _END, b"body", id="many headers",
        ),
    ],
)  # fmt: skip
async def test_what_servers_send(sent: bytes, body: bytes) -> None:
    assert (await _asked(sent)).body == body


async def test_a_long_header_of_a_pod() -> None:
    """Packed as hpack does it, one of 200 KB took seven seconds, four times as long for twice as many bytes."""
    began = time.thread_time()
    answer = await _asked(_SETTINGS + _OK + _END, headers=(*_HEADERS, ("x-long", "x" * 300_000)))
    assert answer.body == b"body" and time.thread_time() - began < 0.5
