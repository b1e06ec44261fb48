"""The kernel's route for a packet, as a value. Pure.

The kernel looks up the route once for an incoming packet (after nat PREROUTING, where it also checks the source, see
rp_filter in https://www.kernel.org/doc/html/latest/networking/ip-sysctl.html), and twice for a packet that the node
itself sends: before nat OUTPUT, and again if a rule there changed its destination.
"""

from __future__ import annotations

from dataclasses import dataclass

UNREACHABLE, DISCARDED = "UNREACHABLE", "DISCARDED"  # the sender gets an ICMP error or an errno; nobody notices

_ENDS = {
    "unreachable": (UNREACHABLE, "an unreachable route (`ip route`, `ip rule`) ends it, or the node does not forward"),
    "none": (UNREACHABLE, "there is no route to it"),
    "prohibit": (UNREACHABLE, "a prohibit route ends it"),
    "blackhole": (DISCARDED, "a blackhole route, or an address that may not come in there, ends it"),
    "filtered": (DISCARDED, "rp_filter: the way back to its source does not lead out of the link it came in by"),
}


@dataclass(frozen=True, slots=True)
class Route:
    """`kind`: unicast, local, or a kind that ends a packet, such as blackhole.

    `via`: the gateway, "" if the address is on the link `dev`; `neighbour`: the state of the next hop's neighbour entry
    (REACHABLE, FAILED, ...), "" if there is none.
    """

    kind: str
    dev: str = ""
    via: str = ""
    neighbour: str = ""

    @property
    def refusal(self) -> str:
        """UNREACHABLE or DISCARDED where the look-up itself ends the packet, "" if it continues."""
        return _ENDS[self.kind][0] if self.kind in _ENDS else ""

    @property
    def verdict(self) -> str:
        """The same of a packet that has met all rules and goes this way: whether the next hop answers counts too."""
        if self.kind == "unicast" and (self.dev == "lo" or self.neighbour == "FAILED"):
            return DISCARDED if self.dev == "lo" else UNREACHABLE
        return self.refusal

    def describe(self, destination: str) -> str:
        """The route as a sentence."""
        if self.kind == "local":
            return "it is an address of this node: delivered here"
        if self.kind in _ENDS:
            return f"to {destination}: {_ENDS[self.kind][1]}"
        if self.dev == "lo":
            return f"to {destination}: its route ends on lo, nothing takes it there"
        way = f"by {self.dev} to {self.via}" if self.via else f"by {self.dev}, where {destination} is on the link"
        return f"{way}: nobody answers there (neighbour FAILED)" if self.neighbour == "FAILED" else way
