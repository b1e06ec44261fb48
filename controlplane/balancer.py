"""One address in front of several API servers: TCP passed on to the next one that takes the connection.

`python -S -m controlplane.balancer LISTEN:PORT BACKEND:PORT...`. Standard library only. A backend that refuses or does
not answer within a second is passed over; connections through one that dies end, and clients dial anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sys

_DIAL = 1.0  # seconds for a backend to take a connection
_PIECE = 1 << 16


class Balancer:
    """Round robin over `backends`, as (host, port)."""

    def __init__(self, backends: list[tuple[str, int]]) -> None:
        self._backends = backends
        self._turn = itertools.cycle(range(len(backends)))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client's connection, to its end."""
        found = await self._dial()
        if found is None:
            writer.close()
            return
        there, back = found
        ways = (asyncio.create_task(_pass(reader, back)), asyncio.create_task(_pass(there, writer)))
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        for side in (writer, back):
            side.close()

    async def _dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        for _ in self._backends:
            host, port = self._backends[next(self._turn)]
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(_DIAL):
                    return await asyncio.open_connection(host, port)
        return None


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(_PIECE):
            writer.write(piece)
            await writer.drain()


def _place(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


async def run(listen: str, backends: list[str]) -> None:
    """Until cancelled. Raises OSError when it cannot listen."""
    balancer = Balancer([_place(text) for text in backends])
    host, port = _place(listen)
    async with await asyncio.start_server(balancer.serve, host, port) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], sys.argv[2:]))
