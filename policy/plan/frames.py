"""The table that keeps frames from other pods which the kernel's bridge would not show to the rules. Pure.

Between two pods of a node only plain IP packets meet the hooks of IP (br_netfilter). A frame with a VLAN tag does not,
and one whose tag has the number 0 is received as if it had none (802.1p): whoever may open a packet socket, which
containers may by default, would reach every pod of the node by it, under any address. So between pods only IP and ARP
pass. Frames to the node itself lose such a tag first, and meet the rules as any other packet does.

The pod network gives its pods hardware addresses that begin with the same two bytes, and its bridge drops frames with
any other (`cni/edge/netlink.py`): bridges of others are left alone. nft writes this table, because it seldom changes.
"""

from __future__ import annotations

TABLE = "nodewright-policy"
PLAIN = ("ip", "ip6", "arp")
_OF_PODS = "ether saddr & ff:ff:00:00:00:00 == 0a:58:00:00:00:00"


def transaction() -> str:
    """Input for `nft -f -` that replaces the table."""
    hook = "type filter hook forward priority filter; policy accept;"
    rule = f"{_OF_PODS} ether type != {{ {', '.join(PLAIN)} }} counter drop"
    return f"{removal()}table bridge {TABLE} {{\n  chain forward {{\n    {hook}\n    {rule}\n  }}\n}}\n"


def removal() -> str:
    """Input for `nft -f -` that removes it, whether it is there or not."""
    return f"add table bridge {TABLE}\ndelete table bridge {TABLE}\n"
