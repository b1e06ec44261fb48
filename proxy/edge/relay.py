"""Sockets that relay TCP connections and UDP conversations to an endpoint that the caller chooses.

Upstream: proxysocket.go of Kubernetes 1.25's pkg/proxy/userspace.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from nodelib.accepting import next_connection
from nodelib.errors import Temporary
from nodelib.firewall.objects import Family
from nodelib.tasks import cancel_and_wait

log = logging.getLogger(__name__)

# Upstream's timeouts, one for each attempt.
DIAL_TIMEOUTS = (0.25, 0.5, 1.0, 2.0)  # seconds
UDP_IDLE = 30.0  # seconds without a packet after which a UDP conversation ends
_BUFFER = 1 << 16
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER with no time: close sends a reset

# Of one Service port: whoever reaches it chooses how many ports, and with UDP also addresses, it sends from, and each
# costs a descriptor or two of the proxy, which all other Services need. Upstream has no limit.
MOST_CONNECTIONS = 8192
MOST_TALKS = 4096
# Of all Services of a namespace: one of them may have thousands of ports. Where some take all of it, each other port
# still has what it would have if all had the same: whoever may reach one of them must not take that of others.
MOST_CONNECTIONS_OF_NAMESPACE = 16_384
MOST_TALKS_OF_NAMESPACE = 8192
_MOST_WAITING = 16  # packets of a client until its conversation has begun

_BACKLOG = 1024
_AT_ONCE = 64  # packets read before the event loop serves others
# Level, socket option and message type of packet info: linux/in.h (IP_PKTINFO), RFC 3542 (IPV6_PKTINFO).
_PKTINFO = {
    socket.AF_INET: (socket.IPPROTO_IP, 8, 8),
    socket.AF_INET6: (socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, socket.IPV6_PKTINFO),
}

Address = tuple[str, int]
Choose = Callable[[str, bool], Address | None]  # client, reset_affinity


class Client(NamedTuple):
    """A client (`peer`) and the kernel's packet info: the address and interface that its packet arrived at."""

    peer: Any
    info: bytes

    @property
    def source(self) -> bytes:
        """Packet info for the answer: it leaves from that address, by any interface."""
        if len(self.info) == 12:  # struct in_pktinfo: interface, address of the route, destination
            return bytes(4) + self.info[4:8] + bytes(4)
        return self.info[:16] + bytes(4)


@dataclass(slots=True)
class Open:
    """What the relays of a namespace have open, and how many of them listen."""

    connections: int = 0
    talks: int = 0
    tcp_relays: int = 0
    udp_relays: int = 0


class Relays:
    """Makes the relays of both families."""

    def __init__(self) -> None:
        self._open: dict[str, Open] = {}

    async def listen(self, namespace: str, protocol: str, family: Family, choose: Choose) -> TcpRelay | UdpRelay:
        """For a Service of that namespace. Raises Temporary."""
        return await listen(protocol, family, choose, self._open.setdefault(namespace, Open()))


async def listen(
    protocol: str, family: Family, choose: Choose, of_namespace: Open | None = None
) -> TcpRelay | UdpRelay:
    """Listen on a free port of every local address. Raises Temporary."""
    try:
        if protocol == "UDP":
            return await UdpRelay.start(family, choose, of_namespace or Open())
        return await TcpRelay.start(family, choose, of_namespace or Open())
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
    """Relays TCP. Open connections survive `close`; when one direction ends, the other stays open."""

    def __init__(self, choose: Choose, port: int, of_namespace: Open) -> None:
        self.port = port
        self._choose, self._of_namespace = choose, of_namespace
        self._accepting: asyncio.Task[None] | None = None
        self._open = 0

    @classmethod
    async def start(cls, family: Family, choose: Choose, of_namespace: Open) -> TcpRelay:
        sock = _bound(family, socket.SOCK_STREAM)
        relay = cls(choose, sock.getsockname()[1], of_namespace)
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
                    await loop.connect_accepted_socket(self._protocol, accepted)
                except OSError as error:
                    log.debug("a connection ended at once: %s", error)

    def _protocol(self) -> asyncio.StreamReaderProtocol:
        loop = asyncio.get_running_loop()
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(_BUFFER, loop), self._serve, loop)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = str(writer.get_extra_info("peername")[0])
        self._open += 1
        self._of_namespace.connections += 1
        try:
            far = await self._dial(client) if self._has_room else None
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

    async def _dial(self, client: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        for number, timeout in enumerate(DIAL_TIMEOUTS):
            address = self._choose(client, number > 0)
            if address is None:
                return None
            try:
                async with asyncio.timeout(timeout):
                    return await asyncio.open_connection(*address, limit=_BUFFER)
            except (OSError, TimeoutError) as error:
                log.debug("endpoint %s:%d does not answer: %s", *address, error or "timeout")
        return None


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_BUFFER):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


class UdpRelay:
    """Relays UDP. A client's packets go to one endpoint until it is gone, or until both are silent for UDP_IDLE.

    An answer must leave from the address that the request was sent to (after a redirect, that of the interface, or
    127.0.0.1 for the node itself), or conntrack would not recognize it. So packets are read and sent with IP_PKTINFO.
    """

    def __init__(self, choose: Choose, sock: socket.socket, of_namespace: Open) -> None:
        self.port = sock.getsockname()[1]
        self._choose, self._of_namespace = choose, of_namespace
        self._sock = sock
        self._talks: dict[Client, _Conversation] = {}
        self._waiting: dict[Client, list[bytes]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    async def start(cls, family: Family, choose: Choose, of_namespace: Open) -> UdpRelay:
        sock = _bound(family, socket.SOCK_DGRAM)
        level, option, _ = _PKTINFO[sock.family]
        sock.setsockopt(level, option, 1)
        relay = cls(choose, sock, of_namespace)
        asyncio.get_running_loop().add_reader(sock, relay._readable)
        of_namespace.udp_relays += 1
        return relay

    def drop_except(self, addresses: frozenset[Address]) -> None:
        """End the conversations with all other endpoints: their next packet goes to a new one."""
        for client, talk in list(self._talks.items()):
            if talk.address not in addresses:
                self._end(client)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._of_namespace.udp_relays -= 1
        self._of_namespace.talks -= len(self._waiting)
        self._waiting.clear()
        for client in list(self._talks):
            self._end(client)
        asyncio.get_running_loop().remove_reader(self._sock)
        self._sock.close()

    def _readable(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                data, more, _, peer = self._sock.recvmsg(_BUFFER, 256)
            except OSError:
                return  # no packet left, or an error that an earlier answer caused
            info = next((value for _, kind, value in more if kind == _PKTINFO[self._sock.family][2]), b"")
            self._received(data, Client(peer, info))

    def _received(self, data: bytes, client: Client) -> None:
        talk = self._talks.get(client)
        if talk is not None:
            self._talks[client] = self._talks.pop(client)  # in the order of their last packets
            talk.send(data)
        elif client in self._waiting:
            if len(self._waiting[client]) < _MOST_WAITING:
                self._waiting[client].append(data)
        elif self._talks or len(self._waiting) < self._most:
            self._waiting[client] = [data]
            self._of_namespace.talks += 1
            if self._talks and len(self._talks) + len(self._waiting) > self._most:
                self._end(next(iter(self._talks)))  # the one that has been silent longest
            task = asyncio.create_task(self._begin(client), name="udp conversation")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    @property
    def _most(self) -> int:
        """How many clients may have a conversation here, or wait for one."""
        own = len(self._talks) + len(self._waiting)
        left = MOST_TALKS_OF_NAMESPACE - self._of_namespace.talks
        return min(MOST_TALKS, max(own + left, MOST_TALKS_OF_NAMESPACE // max(1, self._of_namespace.udp_relays)))

    def answer(self, data: bytes, client: Client) -> None:
        level, _, kind = _PKTINFO[self._sock.family]
        try:
            self._sock.sendmsg([data], [(level, kind, client.source)] if client.info else [], 0, client.peer)
        except OSError as error:
            log.debug("an answer to %s was not sent: %s", client.peer, error)

    def ended(self, client: Client) -> None:
        self._end(client)

    async def _begin(self, client: Client) -> None:
        address, began = self._choose(str(client.peer[0]), False), False
        try:
            if address is not None:
                talk = _Conversation(self, client, address)
                await asyncio.get_running_loop().create_datagram_endpoint(lambda: talk, remote_addr=address)
                self._talks[client], began = talk, True
                for data in self._waiting[client]:
                    talk.send(data)
        except OSError as error:
            log.debug("endpoint %s cannot be reached: %s", address, error)
        finally:
            if self._waiting.pop(client, None) is not None and not began:
                self._of_namespace.talks -= 1

    def _end(self, client: Client) -> None:
        talk = self._talks.pop(client, None)
        if talk is not None:
            self._of_namespace.talks -= 1
            talk.close()


class _Conversation(asyncio.DatagramProtocol):
    """One client's packets to one endpoint, over a socket of its own, so that answers reach the right client."""

    def __init__(self, relay: UdpRelay, client: Client, address: Address) -> None:
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
