"""One address in front of several API servers: TCP connections go to the next server that accepts them.

`python -S -m controlplane.kubeadm.balancer LISTEN:PORT BACKEND:PORT...`. Standard library only. A backend that refuses
or does not answer within a second is skipped. When a backend dies, its connections end and clients dial again. A
backend that hangs (stopped, cut off) may still accept and keep connections, so each one is asked for /livez, and when
it stops answering its connections are closed too. Everybody who reaches the address may connect: where there is no room
for more, silent connections give way.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import ssl
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from nodelib.connection_slots import ConnectionSlots, Slot
from nodelib.tasks import cancel_and_wait

_DIAL = 1.0  # seconds for a backend to accept a connection
_PIECE = 1 << 16
_EVERY = 1.0  # seconds between two checks
_ANSWER = 1.5  # seconds for an answer
_MISSED = 2  # unanswered checks in a row after which a backend counts as silent
Check = Callable[[str, int], Awaitable[bool]]


@dataclass(slots=True)
class _Backend:
    """An API server, and the connections to it that go through this process."""

    host: str
    port: int
    silent: bool = False
    sessions: set[asyncio.Task[None]] = field(default_factory=set)


class Balancer:
    """Round robin over `backends`, as (host, port)."""

    def __init__(self, backends: list[tuple[str, int]], slots: ConnectionSlots | None = None) -> None:
        self._backends = [_Backend(host, port) for host, port in backends]
        self._turn = itertools.cycle(range(len(backends)))
        self._slots = slots or ConnectionSlots()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client's connection until it ends."""
        async with self._slots.slot(writer) as slot:
            found = await self._dial() if slot is not None else None
            if slot is None or found is None:
                writer.close()
                return
            backend, there, back = found
            slot.leads_to(back)
            ways = (asyncio.create_task(_pass(reader, back, slot)), asyncio.create_task(_pass(there, writer, slot)))
            backend.sessions.update(ways)
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            await cancel_and_wait(*ways)
            backend.sessions.difference_update(ways)
            for side in (writer, back):
                side.transport.abort() if backend.silent else side.close()

    async def watch(self, answers: Check) -> None:
        """Until cancelled: close the sessions of a backend that has stopped answering, and prefer the others."""
        async with asyncio.TaskGroup() as group:
            for backend in self._backends:
                group.create_task(self._watch_one(backend, answers), name=f"check {backend.host}")

    async def _watch_one(self, backend: _Backend, answers: Check) -> None:
        missed = 0
        while True:
            missed = 0 if await answers(backend.host, backend.port) else missed + 1
            backend.silent = missed >= _MISSED
            if backend.silent:
                for way in list(backend.sessions):
                    way.cancel()
            await asyncio.sleep(_EVERY)

    async def _dial(self) -> tuple[_Backend, asyncio.StreamReader, asyncio.StreamWriter] | None:
        first = next(self._turn)
        order = self._backends[first:] + self._backends[:first]
        # Silent backends come last, but they are tried: on an overloaded machine all may be silent for a moment.
        for backend in sorted(order, key=lambda one: one.silent):
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(_DIAL):
                    return backend, *await asyncio.open_connection(backend.host, backend.port)
        return None


async def answers_livez(host: str, port: int) -> bool:
    """Whether anything answers GET /livez over TLS. The certificate is not verified: no secret is sent."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    writer = None
    try:
        async with asyncio.timeout(_ANSWER):
            reader, writer = await asyncio.open_connection(host, port, ssl=context)
            writer.write(f"GET /livez HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            return (await reader.readline()).startswith(b"HTTP/")
    except (OSError, TimeoutError):
        return False
    finally:
        if writer is not None:
            writer.transport.abort()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, slot: Slot) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(_PIECE):
            slot.heard()
            writer.write(piece)
            await writer.drain()


def _place(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


async def run(listen: str, backends: list[str]) -> None:
    """Serve until cancelled. Raises OSError when it cannot listen."""
    balancer = Balancer([_place(text) for text in backends])
    host, port = _place(listen)
    async with await asyncio.start_server(balancer.serve, host, port) as server, asyncio.TaskGroup() as group:
        group.create_task(balancer.watch(answers_livez), name="check the backends")
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], sys.argv[2:]))
