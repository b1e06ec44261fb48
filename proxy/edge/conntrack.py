"""UDP entries of the kernel's connection tracking, listed and deleted over netlink. Blocking: for a thread."""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Iterable

from nodelib.firewall.objects import Family
from proxy.model import Flow

_FAMILY = {Family.IPV4: socket.AF_INET, Family.IPV6: socket.AF_INET6}


class Conntrack:
    """One family."""

    def __init__(self, family: Family) -> None:
        self._family = _FAMILY[family]
        self._version = "V4" if family is Family.IPV4 else "V6"

    def list_udp(self) -> list[Flow]:
        """Raises OSError."""
        # Imported late: 11 MB that a node without UDP Services does not need.
        from pyroute2.netlink.nfnetlink.nfctsocket import NFCTAttrTuple, NFCTSocket

        # It logs every message it reads, at a level of its own that it sets when it is imported.
        logging.getLogger("pyroute2").setLevel(logging.WARNING)
        flows = []
        with NFCTSocket(nfgen_family=self._family) as channel:
            only_udp = NFCTAttrTuple(family=self._family, proto=socket.IPPROTO_UDP)
            for entry in channel.dump(tuple_orig=only_udp):
                original, reply = entry.get_attr("CTA_TUPLE_ORIG"), entry.get_attr("CTA_TUPLE_REPLY")
                if original is None or reply is None:
                    continue
                sent, answered = self._addresses(original), self._addresses(reply)
                if sent[4] == socket.IPPROTO_UDP:
                    flows.append(Flow(sent[0], sent[2], sent[1], sent[3], answered[0], answered[2]))
        return flows

    def delete(self, flows: Iterable[Flow]) -> int:
        """How many were still there. Raises OSError on anything but their absence."""
        from pyroute2.netlink.exceptions import NetlinkError
        from pyroute2.netlink.nfnetlink.nfctsocket import NFCTAttrTuple, NFCTSocket

        count = 0
        with NFCTSocket(nfgen_family=self._family) as channel:
            for flow in flows:
                original = NFCTAttrTuple(
                    family=self._family,
                    saddr=flow.source,
                    daddr=flow.destination,
                    proto=socket.IPPROTO_UDP,
                    sport=flow.source_port,
                    dport=flow.destination_port,
                )
                try:
                    channel.entry("del", tuple_orig=original)
                    count += 1
                except NetlinkError as error:
                    if error.code != errno.ENOENT:
                        raise OSError(error.code, f"conntrack: cannot delete {flow}: {error}") from error
        return count

    def _addresses(self, tuple_: object) -> tuple[str, str, int, int, int]:
        ip = tuple_.get_attr("CTA_TUPLE_IP")  # type: ignore[attr-defined]
        protocol = tuple_.get_attr("CTA_TUPLE_PROTO")  # type: ignore[attr-defined]
        return (
            ip.get_attr(f"CTA_IP_{self._version}_SRC"),
            ip.get_attr(f"CTA_IP_{self._version}_DST"),
            protocol.get_attr("CTA_PROTO_SRC_PORT") or 0,
            protocol.get_attr("CTA_PROTO_DST_PORT") or 0,
            protocol.get_attr("CTA_PROTO_NUM") or 0,
        )
