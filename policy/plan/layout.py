"""The layout of our table: its chains, its sets, and their names. Pure.

Every packet that this node forwards is judged, answers and established flows too, by what its connection is: who
started it (`ct original saddr`, the address before any masquerade) and which address and port answer it (`ct reply
saddr` and `proto-src`, the pod behind a Service). Both directions of a flow therefore get the same verdict, and a flow
that is no longer allowed stops with the transaction that says so; nothing has to be deleted from conntrack. Packets
from and to the node itself are not forwarded, so probes and the node's own clients always pass, as upstream has it.

- Chains `ingress` and `egress` (hook forward) look up the pod in the maps of the same name; a pod that no policy
  isolates in that direction is in neither.
- A map leads to a *group*: the chain of all pods of this node that the same policies select. It jumps to each of
  their chains, and drops what none of them has accepted.
- A policy has one chain for each direction, whose rules use sets that all policies share: the pods of one selector
  (`peer-…`), the addresses of one ipBlock (`block-…`), one list of ports (`ports-…`), the pods that have a port of one
  name (`named-…`). Their names are hashes of what they stand for.
- ClusterNetworkPolicies come before and after them: `cluster_layout.py`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

from nodelib.firewall.objects import Family
from nodelib.nft import objects
from nodelib.nft.objects import SetShape
from nodelib.nft.rules import AtMost, Connection, Count, Field, InSet, NftRule, Report, To, Verdict, VerdictOf, rule
from nodelib.nft.wire import Message, new_chain, new_rule, plain
from policy.model import Block, Direction, Name, NamedPort, Networks, NodeSelection, PortRange, Selection, Selector

TABLE = "nodewright-policy"
PROBE = "nodewright-policy-probe"
# After the DNAT of Services and hostPorts, and after the proxy's chains, which refuse what has no endpoint.
PRIORITY = 10
REPORTS = 4021  # the NFLOG group of dropped packets
REPORTED = AtMost(10, 20)  # of each group's packets: the kernel reports no flood, and counts all of it

SELF = "self"
NEIGHBOURS = "neighbour-discovery"
MAPS = {Direction.INGRESS: "ingress", Direction.EGRESS: "egress"}
MAP_SHAPE = SetShape(("addr",), verdicts=True)
SELF_SHAPE = SetShape(("addr", "addr"))
PEER_SHAPE = SetShape(("addr",))
BLOCK_SHAPE = SetShape(("addr", "proto"), ranges=True)
PORTS_SHAPE = SetShape(("proto", "service"), ranges=True)
NAMED_SHAPE = SetShape(("addr", "proto", "service"))
NEIGHBOURS_SHAPE = SetShape(("proto", "icmp_type"))
PROTOCOLS = {"TCP": 6, "UDP": 17, "SCTP": 132}
_LINK_LOCAL = "fe80::/10"
_ICMPV6, _DISCOVERY = 58, range(133, 138)

CLIENT, SERVER = Field("original-saddr"), Field("reply-saddr")
PROTOCOL, PORT = Field("original-protocol"), Field("reply-sport")
_ACCEPT = Verdict("accept")
_LONGEST_COMMENT = 120


# Chains with a hook, and their priorities: what one accepts goes on to the next.
HOOKS = {MAPS[Direction.INGRESS]: PRIORITY, MAPS[Direction.EGRESS]: PRIORITY + 1}


def base_chains(family: Family, *, guarded: bool = False) -> dict[str, tuple[NftRule, ...]]:
    """The rules of the chains with a hook. `guarded`: some pod has a policy, so none may use a link-local address.

    Pods of one node could reach each other by them, and they say of no pod which one it is.
    """
    note = "a link-local address says of no pod which one it is"
    guard = (rule(To(_LINK_LOCAL), Count(), Verdict("drop"), comment=note),)
    return {
        MAPS[Direction.INGRESS]: _base(
            MAPS[Direction.INGRESS],
            SERVER,
            Field("daddr"),
            family,
            guard if guarded and family is Family.IPV6 else (),
        ),
        MAPS[Direction.EGRESS]: _base(MAPS[Direction.EGRESS], CLIENT, Field("saddr"), family),
    }


def neighbour_elements() -> frozenset[bytes]:
    """Neighbour discovery between pods of one bridge passes the forward hook, and conntrack does not track it."""
    return frozenset(plain(protocol_part(_ICMPV6) + bytes((kind, 0, 0, 0))) for kind in _DISCOVERY)


def report_probe() -> list[Message]:
    """Makes a table with a rule that reports packets, and removes it again: refused where the kernel cannot."""
    body = rule(REPORTED, Report(REPORTS, "probe")).body(PROBE, "probe", Family.IPV4)
    made = [*objects.replaced_table(PROBE), new_chain(PROBE, "probe"), new_rule(body)]
    return [*made, *objects.removed_table(PROBE)[1:]]


def group_chain(chains: Iterable[str], name: str, policies: Iterable[Name], *, report: bool) -> tuple[NftRule, ...]:
    """The rules of a group: each policy's chain may accept; the rest is dropped."""
    note = comment(f"isolated by {' '.join(map(str, policies))}")
    jumps = [rule(Verdict("jump", chain)) for chain in chains]
    return (*jumps, *told(name, report=report), rule(Count(), Verdict("drop"), comment=note))


def told(name: str, *, report: bool) -> tuple[NftRule, ...]:
    """What reports packets by that name. A rule of its own: one packet too many is dropped all the same."""
    return (rule(REPORTED, Report(REPORTS, name)),) if report else ()


def policy_chain_name(name: Name, direction: Direction) -> str:
    return f"policy-{MAPS[direction]}-{hashed(str(name))}"


def group_name(chains: Iterable[str], direction: Direction) -> str:
    return f"group-{MAPS[direction]}-{hashed(' '.join(chains))}"


def peer_name(selection: Selection | NodeSelection) -> str:
    if isinstance(selection, NodeSelection):
        return f"nodes-{hashed(json.dumps(_words(selection.nodes)))}"
    namespaces = None if selection.namespaces is None else _words(selection.namespaces)
    return f"peer-{hashed(json.dumps([selection.namespace, namespaces, _words(selection.pods)]))}"


def addresses_name(block: Block | Networks) -> str:
    if isinstance(block, Networks):
        return f"networks-{hashed(json.dumps(sorted(map(str, block.cidrs))))}"
    return f"block-{hashed(json.dumps([str(block.cidr), sorted(map(str, block.excepted))]))}"


def ports_name(ports: Iterable[PortRange]) -> str:
    return f"ports-{hashed(' '.join(f'{one.protocol}:{one.first}-{one.last}' for one in sorted(set(ports))))}"


def named_name(port: NamedPort) -> str:
    return f"named-{hashed(f'{port.protocol}:{port.name}')}"


def comment(text: str) -> str:
    """Names as the comment of a rule: what could end a quoted text, or takes more bytes than one, is left out."""
    kept = [one for one in text if one.isascii() and (one.isalnum() or one in "-./[] _")]
    return "".join(kept)[:_LONGEST_COMMENT]


def protocol_part(number: int) -> bytes:
    """A protocol as a part of a key."""
    return bytes((number, 0, 0, 0))


def port_part(number: int) -> bytes:
    """A port as a part of a key."""
    return number.to_bytes(2, "big") + b"\0\0"


def _base(
    name: str, party: Field, header: Field, family: Family, guard: tuple[NftRule, ...] = ()
) -> tuple[NftRule, ...]:
    discovery = (
        (rule(Connection("state", "untracked"), InSet((Field("protocol"), Field("icmp-type")), NEIGHBOURS), _ACCEPT),)
        if family is Family.IPV6
        else ()
    )
    return (
        *discovery,
        *guard,
        rule(InSet((CLIENT, SERVER), SELF), _ACCEPT, comment="no policy cuts a pod off from itself"),
        rule(VerdictOf((party,), name)),
        # Without a connection only its header says where a packet belongs, and no rule can allow it.
        rule(Connection("state", "invalid"), VerdictOf((header,), name)),
        rule(Connection("state", "untracked"), VerdictOf((header,), name)),
    )


def _words(selector: Selector) -> list[list[object]]:
    return [[one.key, one.operator, sorted(one.values)] for one in selector.requirements]


def hashed(text: str) -> str:
    """What stands for a text in the name of a set or chain, which has 128 characters at most."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
