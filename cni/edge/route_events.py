"""Hears from the kernel that somebody removed a route, an address or a link (rtnetlink(7)). Decides nothing."""

from __future__ import annotations

import logging
import socket
import struct
import sys
from collections.abc import Callable, Iterator

from cni.edge.messages import DELADDR, DELLINK, DELROUTE, NEWLINK
from cni.model import Loss
from nodelib.netlink.framing import attributes, messages
from nodelib.netlink.listener import datagrams, readable

log = logging.getLogger(__name__)

_LINKS, _IPV4_ADDRESSES, _IPV4_ROUTES, _IPV6_ADDRESSES, _IPV6_ROUTES = 0x1, 0x10, 0x40, 0x100, 0x400  # RTMGRP_
_GROUPS = _LINKS | _IPV4_ADDRESSES | _IPV4_ROUTES | _IPV6_ADDRESSES | _IPV6_ROUTES
# linux/rtnetlink.h, if_addr.h, if_link.h: rtmsg's protocol, ifaddrmsg's index, ifinfomsg's flags
_ROUTE, _ADDRESS, _LINK = struct.Struct("=5xB6x"), struct.Struct("=4xI"), struct.Struct("=8xI4x")
_RTA_OIF, _IFLA_IFNAME, _IFF_UP = 4, 3, 0x1
_AT_ONCE = 64  # datagrams, before others have their turn


async def watch(lost: Callable[[Loss | None], None]) -> None:
    """Until cancelled, call `lost` for each loss; with None when the kernel had more to say than we read in time."""
    try:
        channel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
    except OSError as error:
        log.warning("lost routes are only noticed once a minute: %s", error)
        return
    with channel:
        channel.setblocking(False)
        channel.bind((0, _GROUPS))
        while True:
            await readable(channel)
            for data in datagrams(channel, _AT_ONCE):
                if not data:
                    lost(None)
                for one in _losses(data):
                    lost(one)


def _losses(data: bytes) -> Iterator[Loss]:
    """Every pod that comes and goes makes dozens of messages: only what is asked for is read, not pyroute2's all."""
    for kind, _, _, payload in messages(data):
        if kind == DELROUTE and len(payload) >= _ROUTE.size:
            link = _attribute(payload, _ROUTE.size, _RTA_OIF)
            yield Loss(_name(int.from_bytes(link, sys.byteorder)), _ROUTE.unpack_from(payload)[0])
        elif kind == DELADDR and len(payload) >= _ADDRESS.size:
            yield Loss(_name(_ADDRESS.unpack_from(payload)[0]))
        elif kind in (DELLINK, NEWLINK) and len(payload) >= _LINK.size:
            is_up = kind == NEWLINK and _LINK.unpack_from(payload)[0] & _IFF_UP
            name = b"" if is_up else _attribute(payload, _LINK.size, _IFLA_IFNAME)
            if name:
                yield Loss(name.rstrip(b"\0").decode(errors="replace"))


def _attribute(payload: bytes, offset: int, wanted: int) -> bytes:
    return next((value for kind, value in attributes(payload, offset) if kind == wanted), b"")


def _name(index: int) -> str:
    """That of a link, "" if it is gone."""
    try:
        return socket.if_indextoname(index)
    except OSError:
        return ""
