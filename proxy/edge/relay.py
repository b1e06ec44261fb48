"""Sockets that pass on what they get: TCP connections and UDP conversations. Chooses nothing itself."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import Callable
from typing import Any

from nodelib.errors import Temporary
from nodelib.firewall.objects import Family

log = logging.getLogger(__name__)

# As upstream: the time for each try, and as many tries.
DIAL_TIMEOUTS = (0.25, 0.5, 1.0, 2.0)  # seconds
UDP_IDLE = 30.0  # seconds without a packet after which a UDP conversation is forgotten
_BUFFER = 1 << 16
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER with no time: close sends a reset

Address = tuple[str, int]
Choose = Callable[[str, bool], Address | None]  # client, afresh


async def listen(protocol: str, family: Family, choose: Choose) -> TcpRelay | UdpRelay:
    """On a free port of every address. Raises Temporary."""
    try:
        if protocol == "UDP":
            return await UdpRelay.start(family, choose)
        return await TcpRelay.start(family, choose)
    except OSError as error:
        raise Temporary(
            str(error),
            obj=f"{protocol} socket",
            step="listen",
            action="The userspace mode needs a socket for each Service port: raise the limit of open files, or "
            "choose another mode.",
        ) from error


def _bound(family: Family, kind: int) -> socket.socket:
    own = socket.AF_INET if family is Family.IPV4 else socket.AF_INET6
    sock = socket.socket(own, kind | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        if own == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(("", 0))
    except OSError:
        sock.close()
        raise
    return sock


class TcpRelay:
    """Connections that live go on after `close`; the end of one direction ends only that one."""

    def __init__(self, choose: Choose, port: int) -> None:
        self.port = port
        self._choose = choose
        self._server: asyncio.Server | None = None

    @classmethod
    async def start(cls, family: Family, choose: Choose) -> TcpRelay:
        sock = _bound(family, socket.SOCK_STREAM)
        relay = cls(choose, sock.getsockname()[1])
        relay._server = await asyncio.start_server(relay._serve, sock=sock, backlog=1024)
        return relay

    def drop_except(self, addresses: frozenset[Address]) -> None:
        """An established connection lives as long as its two ends, as in every mode."""

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = str(writer.get_extra_info("peername")[0])
        try:
            far = await self._dial(client)
            if far is None:
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                return
            try:
                await asyncio.gather(_copy(reader, far[1]), _copy(far[0], writer))
            finally:
                far[1].close()
        except OSError as error:
            log.debug("a connection of %s ended: %s", client, error)
        finally:
            writer.close()

    async def _dial(self, client: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        for number, timeout in enumerate(DIAL_TIMEOUTS):
            address = self._choose(client, number > 0)
            if address is None:
                return None
            try:
                return await asyncio.wait_for(asyncio.open_connection(*address, limit=_BUFFER), timeout)
            except (OSError, TimeoutError) as error:
                log.debug("endpoint %s:%d does not answer: %s", *address, error or "no time left")
        return None


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_BUFFER):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


class UdpRelay(asyncio.DatagramProtocol):
    """A client's packets go to one endpoint until it is gone or silent for UDP_IDLE."""

    def __init__(self, choose: Choose) -> None:
        self.port = 0
        self._choose = choose
        self._transport: asyncio.DatagramTransport | None = None
        self._talks: dict[Any, _Conversation] = {}
        self._waiting: dict[Any, list[bytes]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    async def start(cls, family: Family, choose: Choose) -> UdpRelay:
        sock = _bound(family, socket.SOCK_DGRAM)
        relay = cls(choose)
        relay.port = sock.getsockname()[1]
        relay._transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(lambda: relay, sock=sock)
        return relay

    def drop_except(self, addresses: frozenset[Address]) -> None:
        """Conversations with endpoints that are gone end: the next packet finds another one."""
        for client, talk in list(self._talks.items()):
            if talk.address not in addresses:
                self._end(client)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        for client in list(self._talks):
            self._end(client)
        if self._transport is not None:
            self._transport.close()

    def datagram_received(self, data: bytes, addr: Any) -> None:
        talk = self._talks.get(addr)
        if talk is not None:
            talk.send(data)
        elif addr in self._waiting:
            self._waiting[addr].append(data)
        else:
            self._waiting[addr] = [data]
            task = asyncio.create_task(self._begin(addr), name="udp conversation")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def answer(self, data: bytes, client: Any) -> None:
        if self._transport is not None:
            self._transport.sendto(data, client)

    def ended(self, client: Any) -> None:
        self._end(client)

    async def _begin(self, client: Any) -> None:
        address = self._choose(str(client[0]), False)
        try:
            if address is not None:
                talk = _Conversation(self, client, address)
                await asyncio.get_running_loop().create_datagram_endpoint(lambda: talk, remote_addr=address)
                self._talks[client] = talk
                for data in self._waiting[client]:
                    talk.send(data)
        except OSError as error:
            log.debug("endpoint %s cannot be reached: %s", address, error)
        finally:
            self._waiting.pop(client, None)

    def _end(self, client: Any) -> None:
        talk = self._talks.pop(client, None)
        if talk is not None:
            talk.close()


class _Conversation(asyncio.DatagramProtocol):
    """One client with one endpoint, by a socket of its own, so that answers find their way."""

    def __init__(self, relay: UdpRelay, client: Any, address: Address) -> None:
        self.address = address
        self._relay = relay
        self._client = client
        self._transport: asyncio.DatagramTransport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._touch()

    def send(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.sendto(data)
            self._touch()

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self._relay.answer(data, self._client)
        self._touch()

    def error_received(self, exc: Exception) -> None:
        log.debug("endpoint %s:%d: %s", *self.address, exc)
        self._relay.ended(self._client)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.close()

    def _touch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(UDP_IDLE, self._relay.ended, self._client)
