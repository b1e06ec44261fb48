"""Leads TCP ports of this machine to nodes: `python -S -m controlplane.machine.edge.forward PLACE=PLACE,PLACE ...`.

Standard library only. Each connection goes to the next of the places behind its port that accepts it within a second;
each of its two directions ends by itself, so that a client may finish what it sends and still read the answer. Every
user of the machine may connect: where there is no room for more, silent connections give way.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sys

from nodelib.connection_slots import ConnectionSlots, Slot

_DIAL = 1.0  # seconds for a place to accept a connection
_PIECE = 1 << 16
Place = tuple[str, int]


class Forward:
    """One port, and the places behind it, which take turns."""

    def __init__(self, behind: list[Place], slots: ConnectionSlots | None = None) -> None:
        self._behind = behind
        self._turn = itertools.cycle(range(len(behind)))
        self._slots = slots or ConnectionSlots()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until both of its directions have ended."""
        async with self._slots.slot(writer) as slot:
            found = await self._dial() if slot is not None else None
            if slot is None or found is None:
                writer.transport.abort()
                return
            there, back = found
            slot.leads_to(back)
            try:
                await asyncio.gather(_pass(reader, back, slot), _pass(there, writer, slot))
            finally:
                for side in (writer, back):
                    side.close()

    async def _dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        first = next(self._turn)
        for host, port in self._behind[first:] + self._behind[:first]:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(_DIAL):
                    return await asyncio.open_connection(host, port)
        return None


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, slot: Slot) -> None:
    try:
        while piece := await reader.read(_PIECE):
            slot.heard()
            writer.write(piece)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.transport.abort()  # one side was reset: so is the other


def place(text: str) -> Place:
    """HOST:PORT, an IPv6 address in brackets."""
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


async def run(words: list[str]) -> None:
    """Serve until cancelled. Raises OSError when a port is taken."""
    async with contextlib.AsyncExitStack() as stack:
        servers, slots = [], ConnectionSlots()
        for word in words:
            listen, _, behind = word.partition("=")
            host, port = place(listen)
            forward = Forward([place(one) for one in behind.split(",")], slots)
            servers.append(await stack.enter_async_context(await asyncio.start_server(forward.serve, host, port)))
        await asyncio.gather(*(server.serve_forever() for server in servers))


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1:]))
