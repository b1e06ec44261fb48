"""rtnetlink for the overlay: the VXLAN link, its forwarding and neighbour entries. Decides nothing."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

from cni.edge.channel import Channel
from cni.edge.messages import (
    ACK,
    AF_BRIDGE,
    CREATE,
    DELNEIGH,
    DUMP,
    EXCL,
    GETNEIGH,
    NEWLINK,
    NEWNEIGH,
    NUD_PERMANENT,
    REPLACE,
    REQUEST,
    link_message,
    neighbour_message,
)
from cni.edge.rtnl import ndmsg
from cni.model import Forward, Neighbour, OverlayPlan
from nodelib.errors import NotFound

# linux/neighbour.h
_NUD_NOARP, _NTF_SELF = 0x40, 0x02


class TunnelCalls(Channel):
    """Requests for the node's end of the overlay."""

    def add_tunnel(self, plan: OverlayPlan) -> None:
        """Add the link, up and without learning from packets. Raises Conflict when a link with that name exists."""
        local = "IFLA_VXLAN_LOCAL" if plan.tunnel.local.version == 4 else "IFLA_VXLAN_LOCAL6"
        data = [
            ["IFLA_VXLAN_ID", plan.tunnel.vni],
            [local, str(plan.tunnel.local)],
            ["IFLA_VXLAN_PORT", plan.tunnel.port],
            ["IFLA_VXLAN_LEARNING", 0],
        ]
        kind = ["IFLA_LINKINFO", {"attrs": [["IFLA_INFO_KIND", "vxlan"], ["IFLA_INFO_DATA", {"attrs": data}]]}]
        attrs: list[list[Any]] = [["IFLA_ADDRESS", plan.mac], ["IFLA_MTU", plan.mtu], kind]
        message = link_message(NEWLINK, CREATE | EXCL, name=plan.name, up=True, attrs=attrs)
        self.call([message], step="add VXLAN link", obj=plan.name)

    def forwards(self, index: int) -> list[Forward]:
        """Permanent forwarding entries of a VXLAN link."""
        return [
            Forward(str(item.get_attr("NDA_LLADDR")), ip_address(item.get_attr("NDA_DST")))
            for item in self._neighbour_dump(AF_BRIDGE)
            if item["ifindex"] == index and item.get_attr("NDA_DST") and item["state"] & NUD_PERMANENT
        ]

    def neighbours(self, index: int) -> list[Neighbour]:
        """Permanent neighbour entries of a link, both families."""
        return [
            Neighbour(ip_address(item.get_attr("NDA_DST")), str(item.get_attr("NDA_LLADDR")))
            for item in self._neighbour_dump(0)
            if item["ifindex"] == index and item["state"] & NUD_PERMANENT and item.get_attr("NDA_LLADDR")
        ]

    def replace_forward(self, index: int, entry: Forward) -> None:
        self._entry(NEWNEIGH, CREATE | REPLACE, index, entry)

    def delete_forward(self, index: int, entry: Forward) -> bool:
        """False when it was gone already."""
        return self._delete(index, entry)

    def replace_neighbour(self, index: int, entry: Neighbour) -> None:
        self._entry(NEWNEIGH, CREATE | REPLACE, index, entry)

    def delete_neighbour(self, index: int, entry: Neighbour) -> bool:
        """False when it was gone already."""
        return self._delete(index, entry)

    def _delete(self, index: int, entry: Forward | Neighbour) -> bool:
        try:
            self._entry(DELNEIGH, 0, index, entry)
        except NotFound:
            return False
        return True

    def _entry(self, kind: int, extra: int, index: int, entry: Forward | Neighbour) -> None:
        if isinstance(entry, Neighbour):
            message = neighbour_message(kind, extra, index, entry)
            self.call([message], step="neighbour entry", obj=f"{entry.address} at {entry.mac}")
            return
        message = ndmsg()
        message["header"] = {"type": kind, "flags": REQUEST | ACK | extra}
        message["ifindex"], message["family"], message["flags"] = index, AF_BRIDGE, _NTF_SELF
        message["state"] = NUD_PERMANENT | _NUD_NOARP
        message["attrs"] = [["NDA_DST", str(entry.remote)], ["NDA_LLADDR", entry.mac]]
        self.call([message], step="VXLAN entry", obj=f"{entry.remote} at {entry.mac}")

    def _neighbour_dump(self, kind: int) -> list[Any]:
        message = ndmsg()
        message["header"] = {"type": GETNEIGH, "flags": REQUEST | DUMP}
        message["family"] = kind
        found = self.dump(message)
        # Family 0 also brings AF_BRIDGE ones on some kernels.
        return [item for item in found if (item["family"] == AF_BRIDGE) == (kind == AF_BRIDGE)]
