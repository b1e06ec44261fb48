"""Asks an agent at its local socket. Who is root in its node may listen there in its place."""

from __future__ import annotations

import aiohttp

from nodelib.inner_sockets import reached
from nodelib.json_values import Json, decode

_MOST = 64 << 20  # bytes of an answer


async def get(path: str, what: str, seconds: float) -> tuple[int, Json]:
    """The status of the answer, and its JSON object if the status is 200.

    Raises OSError, aiohttp.ClientError, TimeoutError, and ValueError for an answer that is none.
    """
    timeout = aiohttp.ClientTimeout(total=seconds)
    with reached(path) as way:
        async with (
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(way), timeout=timeout) as session,
            session.get(f"http://agent{what}", allow_redirects=False) as answer,
        ):
            if answer.status != 200:
                return answer.status, {}
            body = bytearray()
            async for chunk in answer.content.iter_any():
                body += chunk
                if len(body) > _MOST:
                    raise ValueError(f"it is larger than {_MOST >> 20} MiB")
    found = decode(bytes(body))
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")
    return 200, found
