"""A runtime's streaming server over real TCP: accepts any upgrade and echoes, or refuses on demand."""

from __future__ import annotations

import asyncio


class FakeStreamingServer:
    """`async with FakeStreamingServer() as peer`. `requests` are the heads that came; switches are attributes."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.refuse: bytes = b""
        self.close_after: int | None = None
        self.ended = 0
        self.url = ""
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> FakeStreamingServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/exec/token?x=1"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.requests.append(await reader.readuntil(b"\r\n\r\n"))
        if self.refuse:
            writer.write(self.refuse)
        else:
            writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\nhello ")
            seen = 0
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
                seen += len(data)
                if self.close_after is not None and seen >= self.close_after:
                    break
        try:
            await writer.drain()
        except ConnectionError:
            pass
        self.ended += 1
        writer.close()
