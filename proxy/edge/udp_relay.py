"""A socket that relays UDP conversations to an endpoint that the caller chooses."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any, NamedTuple

from nodelib.firewall.objects import Family
from proxy.edge import hops
from proxy.edge.relay_share import MOST_TALKS_OF_NAMESPACE, Address, Choose, Open, bound_socket

log = logging.getLogger(__name__)

UDP_IDLE = 30.0  # seconds without a packet after which a conversation ends: upstream's
# Of one Service port: whoever reaches it chooses the addresses and ports that it sends from, and each conversation
# costs a descriptor of the proxy, which all other Services need. Upstream has no limit.
MOST_TALKS = 4096
_MOST_WAITING = 16  # packets of a client until its conversation has begun
_AT_ONCE = 64  # packets read before the event loop serves others
_BUFFER = 1 << 16
# Level, socket option and message type of packet info: linux/in.h (IP_PKTINFO), RFC 3542 (IPV6_PKTINFO).
_PKTINFO = {
    socket.AF_INET: (socket.IPPROTO_IP, 8, 8),
    socket.AF_INET6: (socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, socket.IPV6_PKTINFO),
}


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
        sock = bound_socket(family, socket.SOCK_DGRAM)
        level, option, _ = _PKTINFO[sock.family]
        sock.setsockopt(level, option, 1)
        hops.tell_of_packets(sock)
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
            self._received(data, Client(peer, info), hops.left(hops.of_packet(more)))

    def _received(self, data: bytes, client: Client, ttl: int) -> None:
        if not ttl:
            return
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
            task = asyncio.create_task(self._begin(client, ttl), name="udp conversation")
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

    async def _begin(self, client: Client, ttl: int) -> None:
        address, began = self._choose(str(client.peer[0]), False), False
        try:
            if address is not None:
                talk = _Conversation(self, client, address, ttl)
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

    def __init__(self, relay: UdpRelay, client: Client, address: Address, ttl: int) -> None:
        self.address = address
        self._ttl = ttl
        self._relay = relay
        self._client = client
        self._transport: asyncio.DatagramTransport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        hops.send_with(transport.get_extra_info("socket"), self._ttl)
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
