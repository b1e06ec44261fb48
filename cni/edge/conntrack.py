"""UDP entries of connection tracking, listed and deleted over netlink. Blocking. Decides nothing."""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Any

from cni.model import UdpFlow
from nodelib.errors import Permanent


def list_udp() -> list[UdpFlow]:
    """IPv4 entries of this thread's namespace. Raises Permanent."""
    # Imported late: 11 MB that a node without UDP hostPorts does not need.
    from pyroute2.netlink.nfnetlink.nfctsocket import NFCTAttrTuple, NFCTSocket

    # It logs every message it reads, at a level of its own that it sets when it is imported.
    logging.getLogger("pyroute2").setLevel(logging.WARNING)
    flows = []
    try:
        with NFCTSocket(nfgen_family=socket.AF_INET) as channel:
            only_udp = NFCTAttrTuple(family=socket.AF_INET, proto=socket.IPPROTO_UDP)
            for entry in channel.dump(tuple_orig=only_udp):
                sent, answered = entry.get_attr("CTA_TUPLE_ORIG"), entry.get_attr("CTA_TUPLE_REPLY")
                if sent is not None and answered is not None and _protocol(sent) == socket.IPPROTO_UDP:
                    flows.append(UdpFlow(*_ends(sent), *_ends(answered)[:2]))
    except OSError as error:
        raise _refused(error) from error
    return flows


def delete(flows: Iterable[UdpFlow]) -> int:
    """How many were still there. Raises Permanent."""
    from pyroute2.netlink.exceptions import NetlinkError
    from pyroute2.netlink.nfnetlink.nfctsocket import NFCTAttrTuple, NFCTSocket

    count = 0
    with NFCTSocket(nfgen_family=socket.AF_INET) as channel:
        for flow in flows:
            sent = NFCTAttrTuple(
                family=socket.AF_INET,
                saddr=str(flow.source),
                daddr=str(flow.destination),
                proto=socket.IPPROTO_UDP,
                sport=flow.source_port,
                dport=flow.destination_port,
            )
            try:
                channel.entry("del", tuple_orig=sent)
                count += 1
            except NetlinkError as error:
                if error.code != errno.ENOENT:
                    raise _refused(error) from error
    return count


def _refused(error: Exception) -> Permanent:
    return Permanent(
        str(error), obj="connection tracking", step="UDP flows of hostPorts", action="The node needs CAP_NET_ADMIN."
    )


def _protocol(item: Any) -> int:
    return int(item.get_attr("CTA_TUPLE_PROTO").get_attr("CTA_PROTO_NUM") or 0)


def _ends(item: Any) -> tuple[Any, int, Any, int]:
    ip, ports = item.get_attr("CTA_TUPLE_IP"), item.get_attr("CTA_TUPLE_PROTO")
    return (
        ip_address(ip.get_attr("CTA_IP_V4_SRC")),
        int(ports.get_attr("CTA_PROTO_SRC_PORT") or 0),
        ip_address(ip.get_attr("CTA_IP_V4_DST")),
        int(ports.get_attr("CTA_PROTO_DST_PORT") or 0),
    )
