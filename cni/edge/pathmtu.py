"""Path MTU to other nodes, measured with packets that must not be fragmented (RFC 1191, RFC 8201). Decides nothing."""

from __future__ import annotations

import errno
import select
import socket
import time
from collections.abc import Collection
from contextlib import ExitStack, suppress

from cni.edge.messages import family
from cni.model import Address

# linux/in.h, linux/in6.h: (level, option to set, "do not fragment", option to read the MTU, header of IP and UDP)
_IPV4 = (socket.IPPROTO_IP, 10, 2, 14, 28)
_IPV6 = (socket.IPPROTO_IPV6, 23, 2, 24, 48)
_WAIT_SECONDS = 0.15  # for a router's answer; the next measurement finds a later one in the kernel


def measure(remotes: Collection[Address], port: int, size: int) -> dict[Address, int]:
    """The path MTU in bytes to each address for which it is below `size`.

    Sends one UDP packet of `size` bytes to `port` of each address, where a VXLAN device drops it (its flags are zero).
    Routers' answers stay in the kernel's route cache, so a larger path MTU is noticed only after ten minutes
    (net.ipv4.route.mtu_expires). An address that cannot be reached at all is left out.
    """
    with ExitStack() as stack:
        probes: dict[Address, socket.socket] = {}
        for remote in remotes:
            probe = socket.socket(family(remote), socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            stack.enter_context(probe)
            if _send(probe, remote, port, size):
                probes[remote] = probe
        # There is no sign that no answer will come, so wait for the whole time unless every path has answered.
        poll, open_paths = select.poll(), {probe.fileno() for probe in probes.values()}
        for number in open_paths:
            poll.register(number, select.POLLERR)
        deadline = time.monotonic() + _WAIT_SECONDS
        while open_paths and (left := deadline - time.monotonic()) > 0:
            for number, _ in poll.poll(left * 1000):
                poll.unregister(number)
                open_paths.discard(number)
        found = {remote: _mtu(remote, probe) for remote, probe in probes.items()}
    return {remote: mtu for remote, mtu in found.items() if 0 < mtu < size}


def _send(probe: socket.socket, remote: Address, port: int, size: int) -> bool:
    level, discover, never_fragment, _, header = _IPV4 if remote.version == 4 else _IPV6
    try:
        probe.setblocking(False)
        probe.setsockopt(level, discover, never_fragment)
        probe.connect((str(remote), port))
        probe.send(bytes(size - header))
    except OSError as error:
        return error.errno == errno.EMSGSIZE  # known from an earlier answer
    return True


def _mtu(remote: Address, probe: socket.socket) -> int:
    level, _, _, read, _ = _IPV4 if remote.version == 4 else _IPV6
    with suppress(OSError):
        return int(probe.getsockopt(level, read))
    return 0
