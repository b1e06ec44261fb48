"""The generation of the kernel's nft ruleset: a number that grows with every transaction, whoever makes it.

One netlink message shows whether anything changed, while listing the rules of a large table takes a second
(NFT_MSG_GETGEN, linux/netfilter/nf_tables.h).
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

from nodelib.netlink import netfilter
from nodelib.netlink.framing import attributes, messages

_NFT_MSG_GETGEN = (10 << 8) | 16  # NFNL_SUBSYS_NFTABLES, NFT_MSG_GETGEN
_NFTA_GEN_ID = 1
_TIMEOUT = 1.0  # seconds
_NUMBERS = 1 << 31


class GenerationReader:
    """Reads it again and again, in the network namespace of the thread that asks first.

    The socket stays open: closing one waits until the kernel has freed what the last transaction has removed, and that
    takes 10 to 20 ms (nft_rcv_nl_event in net/netfilter/nf_tables_api.c).
    """

    def __init__(self, connect: Callable[[float], socket.socket] = netfilter.connect) -> None:
        self._connect = connect
        self._channel: socket.socket | None = None
        self._number = 0
        self._lock = threading.Lock()

    def __call__(self) -> int | None:
        """None where the kernel has no nf_tables or does not let us ask."""
        with self._lock:
            try:
                return self._read()
            except OSError:
                # A late answer shall not be taken for that to the next request.
                self.close()
                return None

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _read(self) -> int | None:
        if self._channel is None:
            self._channel = self._connect(_TIMEOUT)
        self._number = (self._number + 1) % _NUMBERS
        self._channel.send(netfilter.message(_NFT_MSG_GETGEN, 0, self._number))
        while True:
            for kind, _, number, payload in messages(self._channel.recv(8192)):
                if number != self._number:
                    continue
                if kind == netfilter.ERROR:
                    netfilter.check(payload)
                    return None
                found = dict(attributes(payload, netfilter.GENMSG)).get(_NFTA_GEN_ID)
                return int.from_bytes(found, "big") if found is not None else None
