"""The table of what pods may send each other and their node below IP, where no other rule sees it. Pure.

Between two pods of a node only plain IP packets meet the hooks of IP (br_netfilter). A frame with a VLAN tag does not,
and one whose tag has the number 0 is received as if it had none (802.1p): whoever may open a packet socket, which
containers may by default, would reach every pod of the node by it, under any address. So between pods only IP and ARP
pass. Frames to the node itself lose such a tag first, and meet the rules as any other packet does.

Nor does a pod answer for the addresses of others. Who says by ARP or neighbour discovery that an address of another
pod, or of the node, is at his own hardware address gets what is sent there. A pod that is known says so of its own
addresses only, to pods and to the node. Link-local ones are let be: pods choose them.

The pod network gives its pods hardware addresses that begin with the same two bytes, and its bridge drops frames with
any other (`cni/edge/netlink.py`): bridges of others are left alone. nft writes this table; what a pod that starts adds
to it is sent to the kernel without nft, which takes 5 to 30 ms of the pod's start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address

from nodelib.nft.wire import Element, plain
from policy.model import Address

TABLE = "nodewright-policy"
PLAIN = ("ip", "ip6", "arp")
_OF_PODS = "ether saddr & ff:ff:00:00:00:00 == 0a:58:00:00:00:00"
# Fields by their places: by their names nft would ask the frame for its type, which is that of the tag if it has one.
_ARP_SENDER, _IP6_SOURCE, _ICMP_TYPE, _ND_TARGET = "@nh,112,32", "@nh,64,128", "@th,0,8", "@th,64,128"
_ND, _SOLICITATION, _ADVERTISEMENT = "meta protocol ip6 meta l4proto 58", 135, 136
_LINK_LOCAL = 0x3FA  # the first ten bits
_SETS = {
    "pods": "ether saddr",
    "pods4": f"ether saddr . {_ARP_SENDER}",
    "pods6": f"ether saddr . {_ND_TARGET}",
}
_CLAIMS = (
    "meta protocol ip accept",  # nearly all frames
    "meta protocol ip6 meta l4proto != 58 accept",
    "ether saddr != @pods accept",
    "meta protocol { 8021q, 8021ad } counter drop",  # a second tag, behind which there may be anything
    f"meta protocol arp {_ARP_SENDER} != 0 ether saddr . {_ARP_SENDER} != @pods4 counter drop",
    f"{_ND} {_ICMP_TYPE} {_ADVERTISEMENT} @th,64,10 != {_LINK_LOCAL} ether saddr . {_ND_TARGET} != @pods6 counter drop",
    # Who asks says where he is; from no address he says nothing.
    f"{_ND} {_ICMP_TYPE} {_SOLICITATION} {_IP6_SOURCE} != 0 @nh,64,10 != {_LINK_LOCAL}"
    f" ether saddr . {_IP6_SOURCE} != @pods6 counter drop",
)


def transaction(pods: Mapping[str, Sequence[Address]]) -> str:
    """Input for `nft -f -` that replaces the table. `pods`: the addresses behind each hardware address."""
    pairs = [(mac, one) for mac, addresses in pods.items() for one in addresses]
    elements = {
        "pods": sorted(pods),
        "pods4": sorted(f"{mac} . {int(one):#x}" for mac, one in pairs if isinstance(one, IPv4Address)),
        "pods6": sorted(f"{mac} . {int(one):#x}" for mac, one in pairs if not isinstance(one, IPv4Address)),
    }
    lines: list[str] = []
    for name, kind in _SETS.items():
        lines += [f"  set {name} {{", f"    typeof {kind}", *_elements(elements[name]), "  }"]
    lines += _chain("claims", "prerouting priority -250", _CLAIMS)
    rule = f"{_OF_PODS} ether type != {{ {', '.join(PLAIN)} }} counter drop"
    lines += _chain("forward", "forward priority filter", (rule,))
    return f"{removal()}table bridge {TABLE} {{\n" + "\n".join(lines) + "\n}\n"


def elements(pods: Mapping[str, Sequence[Address]]) -> list[Element]:
    """The elements of these pods, as `transaction` has them."""
    found: list[Element] = []
    for mac, addresses in pods.items():
        sender = bytes.fromhex(mac.replace(":", ""))
        found.append(Element("pods", plain(sender)))
        for one in addresses:
            name = "pods4" if isinstance(one, IPv4Address) else "pods6"
            found.append(Element(name, plain(_padded(sender) + one.packed)))
    return found


def _padded(key: bytes) -> bytes:
    return key + bytes(-len(key) % 4)


def removal() -> str:
    """Input for `nft -f -` that removes it, whether it is there or not."""
    return f"add table bridge {TABLE}\ndelete table bridge {TABLE}\n"


def _elements(found: Sequence[str]) -> list[str]:
    return [f"    elements = {{ {', '.join(found)} }}"] if found else []


def _chain(name: str, hook: str, rules: Sequence[str]) -> list[str]:
    body = [f"type filter hook {hook}; policy accept;", *rules]
    return [f"  chain {name} {{", *(f"    {line}" for line in body), "  }"]
