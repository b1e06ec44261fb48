"""UDP entries of connection tracking, listed and deleted over netlink. Blocking: for a thread. Decides nothing."""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Iterable
from typing import Any

from nodelib.errors import Permanent
from nodelib.firewall.objects import Family
from nodelib.flows import UdpFlow

_FAMILY = {Family.IPV4: socket.AF_INET, Family.IPV6: socket.AF_INET6}


class Conntrack:
    """One family, in the network namespace of the calling thread. Every call raises Permanent."""

    def __init__(self, family: Family) -> None:
        self._family = _FAMILY[family]
        self._version = "V4" if family is Family.IPV4 else "V6"

    def list_udp(self) -> list[UdpFlow]:
        # Imported late: 11 MB that a node without UDP Services and hostPorts does not need.
        from pyroute2.netlink.exceptions import NetlinkError
        from pyroute2.netlink.nfnetlink.nfctsocket import NFCTAttrTuple, NFCTSocket

        # It logs every message it reads, at a level of its own that it sets when it is imported.
        logging.getLogger("pyroute2").setLevel(logging.WARNING)
        flows = []
        try:
            with NFCTSocket(nfgen_family=self._family) as channel:
                only_udp = NFCTAttrTuple(family=self._family, proto=socket.IPPROTO_UDP)
                for entry in channel.dump(tuple_orig=only_udp):
                    original, reply = entry.get_attr("CTA_TUPLE_ORIG"), entry.get_attr("CTA_TUPLE_REPLY")
                    # Old kernels ignore the filter.
                    if original is not None and reply is not None and _protocol(original) == socket.IPPROTO_UDP:
                        flows.append(UdpFlow(*self._ends(original), *self._ends(reply)[:2]))
        except (OSError, NetlinkError) as error:
            raise _refused("list UDP flows", error) from error
        return flows

    def delete(self, flows: Iterable[UdpFlow]) -> int:
        """How many were still there."""
        from pyroute2.netlink.exceptions import NetlinkError
        from pyroute2.netlink.nfnetlink.nfctsocket import NFCTSocket

        count = 0
        try:
            with NFCTSocket(nfgen_family=self._family) as channel:
                for flow in flows:
                    try:
                        channel.entry("del", tuple_orig=self._original(flow))
                        count += 1
                    except NetlinkError as error:
                        if error.code != errno.ENOENT:
                            raise _refused(f"delete {flow}", error) from error
        except OSError as error:
            raise _refused("delete UDP flows", error) from error
        return count

    def _original(self, flow: UdpFlow) -> Any:
        from pyroute2.netlink.nfnetlink.nfctsocket import NFCTAttrTuple

        return NFCTAttrTuple(
            family=self._family,
            saddr=flow.source,
            daddr=flow.destination,
            proto=socket.IPPROTO_UDP,
            sport=flow.source_port,
            dport=flow.destination_port,
        )

    def _ends(self, item: Any) -> tuple[str, int, str, int]:
        ip, ports = item.get_attr("CTA_TUPLE_IP"), item.get_attr("CTA_TUPLE_PROTO")
        return (
            str(ip.get_attr(f"CTA_IP_{self._version}_SRC")),
            int(ports.get_attr("CTA_PROTO_SRC_PORT") or 0),
            str(ip.get_attr(f"CTA_IP_{self._version}_DST")),
            int(ports.get_attr("CTA_PROTO_DST_PORT") or 0),
        )


def _protocol(item: Any) -> int:
    return int(item.get_attr("CTA_TUPLE_PROTO").get_attr("CTA_PROTO_NUM") or 0)


def _refused(step: str, error: Exception) -> Permanent:
    return Permanent(str(error), obj="connection tracking", step=step, action="The node needs CAP_NET_ADMIN.")
