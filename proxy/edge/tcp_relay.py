"""A socket that relays TCP connections to an endpoint that the caller chooses."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from functools import partial

from nodelib.accepting import next_connection
from nodelib.firewall.objects import Family
from nodelib.tasks import cancel_and_wait
from proxy.edge import hops
from proxy.edge.relay_share import MOST_CONNECTIONS_OF_NAMESPACE, Address, Choose, Open, bound_socket

log = logging.getLogger(__name__)

DIAL_TIMEOUTS = (0.25, 0.5, 1.0, 2.0)  # seconds, one for each attempt: upstream's
# Of one Service port: whoever reaches it chooses how many ports it connects from, and each connection costs two
# descriptors of the proxy, which all other Services need. Upstream has no limit.
MOST_CONNECTIONS = 8192
_BACKLOG = 1024
_BUFFER = 1 << 16
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER with no time: close sends a reset


class TcpRelay:
    """Relays TCP. Open connections survive `close`; when one direction ends, the other stays open."""

    def __init__(self, choose: Choose, port: int, of_namespace: Open) -> None:
        self.port = port
        self._choose, self._of_namespace = choose, of_namespace
        self._accepting: asyncio.Task[None] | None = None
        self._open = 0

    @classmethod
    async def start(cls, family: Family, choose: Choose, of_namespace: Open) -> TcpRelay:
        sock = bound_socket(family, socket.SOCK_STREAM)
        relay = cls(choose, sock.getsockname()[1], of_namespace)
        hops.tell_of_connections(sock)
        sock.listen(_BACKLOG)
        of_namespace.tcp_relays += 1
        relay._accepting = asyncio.create_task(relay._accept(sock), name="accept")
        return relay

    def drop_except(self, addresses: frozenset[Address]) -> None:
        """Nothing to do: an established connection lives as long as its two ends, as in every mode."""

    async def close(self) -> None:
        if self._accepting is not None:
            accepting, self._accepting = self._accepting, None
            self._of_namespace.tcp_relays -= 1
            await cancel_and_wait(accepting)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with listener:
            while True:
                accepted = await next_connection(listener)
                try:
                    ttl = hops.left(hops.of_connection(accepted))
                    await loop.connect_accepted_socket(partial(self._protocol, ttl), accepted)
                except OSError as error:
                    log.debug("a connection ended at once: %s", error)

    def _protocol(self, ttl: int) -> asyncio.StreamReaderProtocol:
        loop = asyncio.get_running_loop()
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(_BUFFER, loop), partial(self._serve, ttl), loop)

    async def _serve(self, ttl: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = str(writer.get_extra_info("peername")[0])
        self._open += 1
        self._of_namespace.connections += 1
        try:
            far = await self._dial(client, ttl) if self._has_room and ttl else None
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
            self._open -= 1
            self._of_namespace.connections -= 1
            writer.close()

    @property
    def _has_room(self) -> bool:
        if self._of_namespace.connections <= MOST_CONNECTIONS_OF_NAMESPACE:
            return self._open <= MOST_CONNECTIONS
        return self._open <= MOST_CONNECTIONS_OF_NAMESPACE // max(1, self._of_namespace.tcp_relays)

    async def _dial(self, client: str, ttl: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        for number, timeout in enumerate(DIAL_TIMEOUTS):
            address = self._choose(client, number > 0)
            if address is None:
                return None
            try:
                async with asyncio.timeout(timeout):
                    return await _connected(address, ttl)
            except (OSError, TimeoutError) as error:
                log.debug("endpoint %s:%d does not answer: %s", *address, error or "timeout")
        return None


async def _connected(address: Address, ttl: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to an endpoint. Raises OSError."""
    sock = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        hops.send_with(sock, ttl)
        await asyncio.get_running_loop().sock_connect(sock, address)
        return await asyncio.open_connection(sock=sock, limit=_BUFFER)
    except BaseException:
        sock.close()
        raise


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_BUFFER):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
