"""How bodies of answers are read: whole or by line, each with a bound, and JSON that is not quite standard, too."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import aiohttp

from nodelib.json_values import Json
from nodelib.kube import raw_json
from nodelib.kube.answers import Unusable
from nodelib.threads import in_thread_if

_ANSWER_LIMIT = 64 * 1024 * 1024  # bytes, uncompressed; lists are asked for in smaller pages when one is larger
_EVENT_LIMIT = 16 * 1024 * 1024  # bytes; etcd takes objects of 1.5 MiB
_LARGE = 64 * 1024  # bytes; that much takes milliseconds where it is no standard JSON


async def understood(read: Callable[[bytes], Json], raw: bytes) -> Json:
    """What `read` makes of an answer, or of the same as standard JSON. Raises as `read`."""
    try:
        return read(raw)
    except Unusable:
        standard = await in_thread_if(len(raw) > _LARGE, raw_json.standard, raw)
        if standard is None:
            raise
    return read(standard)


async def bounded(response: aiohttp.ClientResponse) -> bytes:
    """The whole body. Raises Unusable when it is larger than any answer, once the limit has arrived."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > _ANSWER_LIMIT:
            response.close()
            raise Unusable(f"more than {_ANSWER_LIMIT >> 20} MiB")
    return bytes(body)


async def lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """The lines of a stream, however long (readline() refuses those longer than its buffer). Raises Unusable."""
    pending = bytearray()
    async for chunk in content.iter_any():
        pending += chunk
        if b"\n" in chunk:
            *whole, rest = bytes(pending).split(b"\n")
            pending = bytearray(rest)
            for line in whole:
                if line.strip():
                    yield line
        if len(pending) > _EVENT_LIMIT:
            raise Unusable(f"a watch event larger than {_EVENT_LIMIT >> 20} MiB")
    if pending.strip():
        raise Unusable("a watch event that is cut")
