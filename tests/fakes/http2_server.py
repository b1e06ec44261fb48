"""An HTTP/2 server without TLS, for probes: it answers each request with what a test has put down."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import RequestReceived


@dataclass
class Http2Server:
    """`answers` by path: the status, more headers, and the body. `asked`: the headers of each request."""

    answers: dict[str, tuple[int, dict[str, str], bytes]] = field(default_factory=dict)
    asked: list[dict[str, str]] = field(default_factory=list)
    port: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        connection.initiate_connection()
        try:
            while data := await reader.read(65536):
                for event in connection.receive_data(data):
                    if isinstance(event, RequestReceived):
                        self._answer(connection, event)
                writer.write(connection.data_to_send())
                await writer.drain()
        except OSError:
            return
        finally:
            writer.close()

    def _answer(self, connection: H2Connection, event: RequestReceived) -> None:
        headers = {str(name): str(value) for name, value in event.headers}
        self.asked.append(headers)
        status, more, body = self.answers[headers[":path"]]
        connection.send_headers(event.stream_id, [(":status", str(status)), *more.items()], end_stream=not body)
        if body:
            connection.send_data(event.stream_id, body, end_stream=True)


@asynccontextmanager
async def http2_server() -> AsyncIterator[Http2Server]:
    found = Http2Server()
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        server.close()
        await server.wait_closed()
