"""The socket to which the kernel sends packets: a peer takes the kernel's place."""

from __future__ import annotations

import asyncio
import errno
import os
import socket

import pytest

from nodelib.netlink import netfilter, nflog
from nodelib.netlink.listener import Listener, datagrams, readable
from tests.fakes.clock import FakeClock
from tests.waiting import until

ACKNOWLEDGED = netfilter.message(netfilter.ERROR, 0, 1)
REQUESTS = nflog.binding(5, copied=128, gathered=1, hundredths=1)


class Kernel:
    """Gives a socket out at the second attempt, with the answers to all requests in it."""

    def __init__(self) -> None:
        self.peers: list[socket.socket] = []
        self.refuses = True

    def connect(self) -> socket.socket:
        if self.refuses:
            self.refuses = False
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        own, peer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for _ in REQUESTS:
            peer.send(ACKNOWLEDGED)
        self.peers.append(peer)
        return own


async def test_it_listens_again_when_the_other_program_has_left(caplog: pytest.LogCaptureFixture) -> None:
    kernel, clock, found = Kernel(), FakeClock(), list[bytes]()
    listener = Listener("NFLOG group 5", REQUESTS, 1 << 16, clock, kernel.connect)

    async def read(channel: socket.socket) -> None:
        while True:
            await readable(channel)
            found.extend(datagrams(channel, 2))

    task = asyncio.create_task(listener.run(read, "packets are not reported"))
    await until(lambda: "another program" in listener.problem)
    assert "packets are not reported: another program of this node listens to NFLOG group 5 already" in caplog.text
    await clock.advance(30)
    await until(lambda: not listener.problem)
    (peer,) = kernel.peers
    for data in (b"a", b"b", b"c"):
        peer.send(data)
    await until(lambda: found == [b"a", b"b", b"c"])
    assert [peer.recv(1 << 16) for _ in REQUESTS] == REQUESTS
    task.cancel()
    await asyncio.wait({task})
    assert listener.problem == "the daemon is about to listen again" and peer.recv(1) == b""
    peer.close()


class Overrun(socket.socket):
    """Threw something away before its second datagram."""

    def recv(self, size: int, flags: int = 0) -> bytes:
        self.turns = getattr(self, "turns", 0) + 1
        if self.turns == 2:
            raise OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS))
        if self.turns > 3:
            raise BlockingIOError
        return b"x"


@pytest.mark.parametrize(("most", "wanted"), [(2, [b"x", b""]), (9, [b"x", b"", b"x"])])
def test_a_turn_is_bounded_and_goes_on_where_datagrams_were_thrown_away(most: int, wanted: list[bytes]) -> None:
    with Overrun(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        assert list(datagrams(channel, most)) == wanted
