"""Path MTU to other nodes, found by packets that may not be fragmented (RFC 1191, RFC 8201). Decides nothing."""

from __future__ import annotations

import errno
import select
import socket
import time
from collections.abc import Collection
from contextlib import ExitStack, suppress

from cni.model import Address

# linux/in.h, linux/in6.h: (level, option to set, "do not fragment", option to read the MTU, header of IP and UDP)
_IPV4 = (socket.IPPROTO_IP, 10, 2, 14, 28)
_IPV6 = (socket.IPPROTO_IPV6, 23, 2, 24, 48)
_WAIT_SECONDS = 0.15  # for a router's answer; one that comes later is known to the kernel at the next measurement


def measure(remotes: Collection[Address], port: int, size: int) -> dict[Address, int]:
    """For each address that takes less than `size` bytes at once: how many.

    Sends one UDP packet of `size` bytes to `port` of each, where a VXLAN device drops it unseen (its flags are zero).
    The routers' answers stay in the kernel's route cache, so a path that grew is noticed after ten minutes
    (net.ipv4.route.mtu_expires). An address that cannot be reached at all is left out: that is no fact about a path.
    """
    with ExitStack() as stack:
        probes: dict[Address, socket.socket] = {}
        for remote in remotes:
            probe = socket.socket(_family(remote), socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            stack.enter_context(probe)
            if _send(probe, remote, port, size):
                probes[remote] = probe
        # Nothing tells that no answer will come, so the whole time is waited unless every path has answered.
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


def _family(remote: Address) -> int:
    return int(socket.AF_INET if remote.version == 4 else socket.AF_INET6)


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
