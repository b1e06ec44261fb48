"""A unix socket that answers questions: one line of JSON each way for each connection."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress

from nodelib.errors import Temporary
from nodelib.json_values import Json, compact, decode, object_or_empty

log = logging.getLogger(__name__)

_LARGEST = 1 << 16
_SECONDS = 2.0  # for a client to send its question, and to read the answer


async def serve(path: str, answer: Callable[[Json], Awaitable[Json]]) -> None:
    """Until cancelled. The socket is for root only. Raises Temporary if it cannot be opened."""
    draft = f"{path}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        with suppress(FileNotFoundError):
            os.unlink(draft)
        server = await asyncio.start_unix_server(_client(answer), draft, limit=_LARGEST, backlog=512)
        os.chmod(draft, 0o600)
        # Renamed, so that the socket never has a wider mode, and that of a killed process is replaced.
        os.rename(draft, path)
    except OSError as error:
        raise Temporary(str(error), obj=path, step="listen", action="Check that folder.") from error
    async with server:
        await server.serve_forever()


def _client(
    answer: Callable[[Json], Awaitable[Json]],
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_SECONDS):
                question = decode(await reader.readline())
            writer.write(compact(await answer(object_or_empty(question))).encode() + b"\n")
            async with asyncio.timeout(_SECONDS):
                await writer.drain()
        except (OSError, ValueError, TimeoutError, asyncio.LimitOverrunError) as error:
            log.warning("a client asked nothing that can be answered: %s", error)
        finally:
            writer.close()

    return serve_one
