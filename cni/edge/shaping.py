"""rtnetlink for bandwidth limits: token buckets, and an IFB link as the queue of outgoing packets. Decides nothing.

Linux has no queue for packets that a link receives: those from the pod's veth are redirected to an IFB link and queue
there, as in the bandwidth plugin of containernetworking (https://wiki.linuxfoundation.org/networking/ifb).
"""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Any

from cni.edge.channel import Channel
from cni.edge.messages import (
    ACK,
    CREATE,
    DELQDISC,
    DUMP,
    EXCL,
    GETQDISC,
    NEWLINK,
    NEWQDISC,
    NEWTFILTER,
    REPLACE,
    REQUEST,
    link_message,
    tcmsg,
)
from cni.model import Bucket
from nodelib.errors import NotFound
from nodelib.netlink.framing import attribute, attributes, nested

# linux/pkt_sched.h, linux/pkt_cls.h, linux/tc_act/tc_mirred.h
_ROOT, _INGRESS, _INGRESS_HANDLE, _HANDLE = 0xFFFFFFFF, 0xFFFFFFF1, 0xFFFF0000, 0x00010000
_EVERY_PROTOCOL = 1 << 16 | 0x0300  # priority 1; htons(ETH_P_ALL)
_TBF_PARMS, _TBF_RATE64, _TBF_BURST = 1, 4, 6
_U32_SEL, _U32_ACT, _U32_TERMINAL = 5, 7, 1
_ACT_KIND, _ACT_OPTIONS, _MIRRED_PARMS, _STOLEN, _EGRESS_REDIR = 1, 2, 2, 4, 1
_ETHERNET = 1  # TC_LINKLAYER_ETHERNET
_RATE_SPEC = struct.Struct("=BBHhHI")  # tc_ratespec


class ShapingCalls(Channel):
    """Requests for bandwidth limits."""

    def add_ifb(self, name: str, mtu: int) -> None:
        """Add the link and bring it up. Raises Conflict when a link with that name exists."""
        kind = ["IFLA_LINKINFO", {"attrs": [["IFLA_INFO_KIND", "ifb"]]}]
        message = link_message(NEWLINK, CREATE | EXCL, name=name, up=True, attrs=[["IFLA_MTU", mtu], kind])
        self.call([message], step="add IFB link", obj=name)

    def set_bucket(self, index: int, bucket: Bucket) -> None:
        """Replace the root queue of a link by a token bucket."""
        rate = _RATE_SPEC.pack(0, _ETHERNET, 0, 0, 0, min(bucket.rate, 0xFFFFFFFF))
        params = rate + bytes(_RATE_SPEC.size) + struct.pack("=III", bucket.limit, 0, 0)
        options = attribute(_TBF_PARMS, params) + attribute(_TBF_BURST, struct.pack("=I", bucket.burst))
        options += attribute(_TBF_RATE64, struct.pack("=Q", bucket.rate))
        message = _message(NEWQDISC, CREATE | REPLACE, index, _ROOT, _HANDLE, "tbf", options)
        self.call([message], step="set bandwidth limit", obj=f"link {index}")

    def redirect(self, index: int, to: int) -> None:
        """Redirect everything that a link receives to the link `to`, replacing an earlier redirection."""
        ingress = _message(NEWQDISC, CREATE | EXCL, index, _INGRESS, _INGRESS_HANDLE, "ingress", b"")
        with suppress(NotFound):
            self.call([_message(DELQDISC, 0, index, _INGRESS, _INGRESS_HANDLE, "", b"")], "remove queue", str(index))
        self.call([ingress], step="add ingress queue", obj=f"link {index}")
        every = struct.pack("=BBBxHHhhI", _U32_TERMINAL, 0, 1, 0, 0, 0, 0, 0) + struct.pack("=IIii", 0, 0, 0, 0)
        mirred = attribute(_MIRRED_PARMS, struct.pack("=IIiiiiI", 0, 0, _STOLEN, 0, 0, _EGRESS_REDIR, to))
        action = attribute(_ACT_KIND, b"mirred\0") + nested(_ACT_OPTIONS, mirred)
        options = attribute(_U32_SEL, every) + nested(_U32_ACT, nested(1, action))
        rule = _message(NEWTFILTER, CREATE | EXCL, index, _INGRESS_HANDLE, 0, "u32", options, _EVERY_PROTOCOL)
        self.call([rule], step="redirect to IFB link", obj=f"link {index}")

    def buckets(self) -> list[tuple[int, int]]:
        """(link index, bytes per second) of every token bucket that is a link's root queue."""
        found = []
        for item in self.dump(_message(GETQDISC, 0, 0, 0, 0, "", b"", flags=REQUEST | DUMP)):
            if item.get_attr("TCA_KIND") == "tbf" and item["parent"] == _ROOT:
                options = dict(attributes(item.get_attr("TCA_OPTIONS")))
                rate = _RATE_SPEC.unpack_from(options[_TBF_PARMS])[-1]
                if _TBF_RATE64 in options:
                    (rate,) = struct.unpack_from("=Q", options[_TBF_RATE64])
                found.append((int(item["index"]), int(rate)))
        return found


def _message(
    kind: int,
    extra: int,
    index: int,
    parent: int,
    handle: int,
    name: str,
    options: bytes,
    info: int = 0,
    *,
    flags: int = REQUEST | ACK,
) -> Any:
    message = tcmsg()
    message["header"] = {"type": kind, "flags": flags | extra}
    message["index"], message["parent"], message["handle"], message["info"] = index, parent, handle, info
    message["attrs"] = [["TCA_KIND", name]] if name else []
    if options:
        message["attrs"].append(["TCA_OPTIONS", options])
    return message
