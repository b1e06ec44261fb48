"""One request over HTTP/2, on a connection of its own: how probes ask with HTTP/2 and no TLS, and by gRPC with TLS.

aiohttp speaks no HTTP/2, and gRPC's library always asks whose a certificate is. Whoever answers is a pod: what comes is
bounded in bytes, and read a little at a time, so that a flood of small frames leaves the loop to others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    InformationalResponseReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.exceptions import ProtocolError

Headers = Sequence[tuple[str, str]]
_CHUNK = 4096  # bytes that are read and decoded in a row: a few hundred frames at most
_MOST = 128 * 1024  # bytes of a connection
_MOST_INTERIM = 5  # as Go's transport


@dataclass(slots=True)
class Answer:
    """`headers` and `trailers` by name in lower case, the first of each; `body` is cut to what was wanted."""

    headers: dict[str, str] = field(default_factory=dict)
    trailers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    is_whole: bool = False
    interim: int = 0

    @property
    def status(self) -> int:
        """0 for what is none."""
        text = self.headers.get(":status", "")
        return int(text) if text.isascii() and text.isdigit() and len(text) == 3 else 0


async def ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, headers: Headers, body: bytes = b"", *, most: int
) -> Answer:
    """The answer, with `most` bytes of its body. Raises OSError for a server that speaks otherwise, or too much."""
    connection = H2Connection(H2Configuration(client_side=True, header_encoding=None))
    try:
        connection.initiate_connection()
        stream = connection.get_next_available_stream_id()
        connection.send_headers(stream, headers, end_stream=not body)
        if body:
            connection.send_data(stream, body, end_stream=True)
        return await _answer(connection, reader, writer, most)
    except ProtocolError as error:
        raise ConnectionError(f"malformed HTTP/2: {error or type(error).__name__}") from error


async def _answer(
    connection: H2Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, most: int
) -> Answer:
    answer, taken = Answer(), 0
    while not answer.is_whole:
        writer.write(connection.data_to_send())
        await writer.drain()
        data = await reader.read(_CHUNK)
        taken += len(data)
        if not data:
            raise ConnectionError("the server closed the connection")
        if taken > _MOST:
            raise ConnectionError(f"the answer has more than {_MOST} bytes")
        for event in connection.receive_data(data):
            _take(event, answer, connection, most)
        await asyncio.sleep(0)  # what has arrived is read without a turn for others
    return answer


def _take(event: Event, answer: Answer, connection: H2Connection, most: int) -> None:
    match event:
        case InformationalResponseReceived():
            answer.interim += 1
            if answer.interim > _MOST_INTERIM:
                raise ConnectionError("too many 1xx informational responses")
        case ResponseReceived():
            answer.headers = _by_name(event.headers)
        case TrailersReceived():
            answer.trailers = _by_name(event.headers)
        case DataReceived():
            connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            answer.body = (answer.body + event.data)[:most]
            answer.is_whole = len(answer.body) == most
        case StreamReset() | ConnectionTerminated():
            if not answer.is_whole:
                raise ConnectionError(f"the server ended the request (HTTP/2 error {int(event.error_code or 0)})")
        case StreamEnded():
            answer.is_whole = True


def _by_name(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in headers:
        found.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))
    return found
