"""One request over HTTP/2, on a connection of its own: how probes ask with HTTP/2 and no TLS, and by gRPC with TLS.

aiohttp speaks no HTTP/2, and gRPC's library always asks whose a certificate is. Whoever answers is a pod, and h2 takes
up to 40 µs for a frame of nine bytes: what comes is bounded in bytes and in frames of each kind, and read a little at a
time, so that a flood of small frames leaves the loop to others. Pushed streams are refused: each would be gone through
whenever the server changes its settings.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

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
from h2.settings import SettingCodes, Settings

from nodelib.frame_heads import FrameHeads

Headers = Sequence[tuple[str, str]]
_CHUNK = 1024  # bytes that are read and decoded in a row: a hundred frames at most
_MOST = 128 * 1024  # bytes of a connection
_HEAD = 9  # bytes of a frame before its content
_LONGEST_FRAME = 16 * 1024  # bytes of its content, as long as nobody has allowed more
_DATA, _OF_HEADERS = 0, frozenset((1, 9))  # HEADERS and CONTINUATION
_MOST_DATA = 1024  # frames
_MOST_HEADERS = 24 * 1024  # bytes of frames
_MOST_OTHERS, _MOST_OF_OTHERS = 64, 4096  # frames, and their bytes
_SETTINGS = {SettingCodes.ENABLE_PUSH: 0, SettingCodes.MAX_HEADER_LIST_SIZE: _MOST_HEADERS}
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
    # Texts are not packed: hpack's way takes quadratic time, and a pod's headers may have a megabyte.
    connection.encoder.encode = partial(connection.encoder.encode, huffman=False)  # type: ignore[method-assign] # its own
    connection.local_settings = Settings(client=True, initial_values=_SETTINGS)
    connection.decoder.max_header_list_size = _MOST_HEADERS
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
    answer, taken, frames = Answer(), 0, _Frames()
    while not answer.is_whole:
        writer.write(connection.data_to_send())
        await writer.drain()
        data = await reader.read(_CHUNK)
        taken += len(data)
        if not data:
            raise ConnectionError("the server closed the connection")
        if taken > _MOST:
            raise ConnectionError(f"the answer has more than {_MOST} bytes")
        frames.count(data)
        for event in connection.receive_data(data):
            _take(event, answer, connection, most)
        await asyncio.sleep(0)  # what has arrived is read without a turn for others
    return answer


class _Frames:
    """Counts the frames of a server by their heads."""

    def __init__(self) -> None:
        self._heads = FrameHeads(_HEAD, _content_of)
        self._data = self._headers = self._others = self._of_others = 0

    def count(self, data: bytes) -> None:
        """Raises ConnectionError for too much of a kind."""
        for head in self._heads.within(data):
            size = _content_of(head)
            if size > _LONGEST_FRAME:
                raise ConnectionError(f"malformed HTTP/2: a frame of {size} bytes")
            self._add(head[3], _HEAD + size)

    def _add(self, kind: int, size: int) -> None:
        if kind == _DATA:
            self._data += 1
        elif kind in _OF_HEADERS:
            self._headers += size
        else:
            self._others, self._of_others = self._others + 1, self._of_others + size
        if self._data > _MOST_DATA or self._others > _MOST_OTHERS or self._of_others > _MOST_OF_OTHERS:
            raise ConnectionError("the server sends too many HTTP/2 frames")
        if self._headers > _MOST_HEADERS:
            raise ConnectionError(f"the server sends more than {_MOST_HEADERS} bytes of HTTP/2 headers")


def _content_of(head: bytes) -> int:
    return int.from_bytes(head[:3])


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
