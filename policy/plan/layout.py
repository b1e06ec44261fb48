"""The layout of our table: its chains, its sets, and their names. Pure.

Every packet that this node forwards is judged, answers and established flows too, by what its connection is: who
started it (`ct original saddr`, the address before any masquerade) and which address and port answer it (`ct reply
saddr` and `proto-src`, the pod behind a Service). Both directions of a flow therefore get the same verdict, and a flow
that is no longer allowed stops with the transaction that says so; nothing has to be deleted from conntrack. A mark
spares packets the look at rules that have let an earlier one of their connection pass (`marks.py`). Packets from and to
the node itself are not forwarded, so probes and the node's own clients always pass, as upstream has it.

- Chains `ingress` and `egress` (hook forward) look up the pod in the maps of the same name; a pod that no policy
  isolates in that direction is in neither.
- A map leads to a *group*: the chain of all pods of this node that the same policies select. It jumps to each of
  their chains, and drops what none of them has accepted.
- A policy has one chain for each direction, whose rules use sets that all policies share: the pods of one selector
  (`peer-…`), the addresses of an entry's ipBlocks (`block-…`), its ports (`ports-…`), the pods that have a port of one
  of its names (`named-…`). Their names are hashes of what they stand for.
- ClusterNetworkPolicies come before and after them: `cluster_layout.py`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from nodelib.firewall.objects import Family
from nodelib.nft import objects
from nodelib.nft.actions import Counter, Log, Verdict, VerdictOf
from nodelib.nft.keys import Field
from nodelib.nft.matches import Connection, From, InSet, Limit, To, ToBroadcast
from nodelib.nft.objects import SetShape
from nodelib.nft.rules import NftRule, Statement, rule
from nodelib.nft.wire import Message, new_chain, new_rule, plain
from policy.model import Direction, DomainNames, Name, NamedPort, NodeSelection, Selection, Selector
from policy.plan import marks

TABLE = "nodewright-policy"
PROBE = "nodewright-policy-probe"
# After the DNAT of Services and hostPorts, and after the proxy's chains, which refuse what has no endpoint.
PRIORITY = 10
REPORTS = 4021  # the NFLOG group of dropped packets
REPORTED = Limit(10, 20)  # of each group's packets: the kernel reports no flood, and counts all of it
REPORTS_STATEMENTS = (REPORTED, Log(REPORTS, "probe"))

SELF = "self"
NAMES = "names-"
NEIGHBOURS = "neighbour-discovery"
ROUTERS = "of-routers"
STRAY = "stray"
SENDERS, SENDERS_ADDRESSES = "senders", "senders-addresses"
MAPS = {Direction.INGRESS: "ingress", Direction.EGRESS: "egress"}
MAP_SHAPE = SetShape(("addr",), verdicts=True)
SELF_SHAPE = SetShape(("addr", "addr"))
PEER_SHAPE = SetShape(("addr",))
BLOCK_SHAPE = SetShape(("addr", "proto"), ranges=True)
PORTS_SHAPE = SetShape(("proto", "service"), ranges=True)
NAMED_SHAPE = SetShape(("addr", "proto", "service"))
SENDERS_SHAPE = SetShape(("ether",))
SENDERS_ADDRESSES_SHAPE = SetShape(("ether", "addr"))
# What a pod has been given for names: its address, and one of those in the answer. `domains/` puts elements in.
DOMAINS_SHAPE = SetShape(("addr", "addr"), most=1 << 17)
ICMP_SHAPE = SetShape(("proto", "icmp_type"))
PROTOCOLS = {"TCP": 6, "UDP": 17, "SCTP": 132}
_ICMPV6 = 58
_DISCOVERY = (135, 136)  # neighbour solicitation and advertisement
_OF_ROUTERS = (134, 137)  # router advertisement and redirect

SENDER = Field("sender")
CLIENT, SERVER = Field("original-saddr"), Field("reply-saddr")
PROTOCOL, PORT = Field("original-protocol"), Field("reply-sport")
_ACCEPT = Verdict("accept")
_LONGEST_COMMENT = 120


# Chains with a hook, and their priorities: what one accepts goes on to the next.
HOOKS = {MAPS[Direction.INGRESS]: PRIORITY, MAPS[Direction.EGRESS]: PRIORITY + 1}


def base_chains(family: Family, *, marked: bool = False) -> dict[str, tuple[NftRule, ...]]:
    """The rules of the chains with a hook. `marked`: connections have marks."""
    known = (rule(Verdict("jump", marks.KNOWN)),) if marked else ()
    passed = (rule(Verdict("jump", marks.PASSED)),) if marked else ()
    stray = rule(Verdict("jump", STRAY), comment="not from or to a pod's own address")
    return {
        STRAY: stray_chain(family, isolating=False),
        MAPS[Direction.INGRESS]: (
            *discovery(family),
            stray,
            *known,
            *_base(MAPS[Direction.INGRESS], SERVER, Field("daddr")),
        ),
        MAPS[Direction.EGRESS]: (
            *discovery(family),
            *passed,
            *_base(MAPS[Direction.EGRESS], CLIENT, Field("saddr")),
        ),
    }


def discovery(family: Family) -> tuple[NftRule, ...]:
    """By what pods find the hardware addresses of each other and of their node."""
    if family is Family.IPV4:
        return ()
    key = (Field("protocol"), Field("icmp-type"))
    verdicts = ((NEIGHBOURS, _ACCEPT), (ROUTERS, Verdict("drop")))
    return tuple(rule(Connection("state", "untracked"), InSet(key, name), one) for name, one in verdicts)


def icmp_elements() -> dict[str, frozenset[bytes]]:
    """Kinds of messages between pods of one bridge that pass the forward hook, and that conntrack does not track.

    No pod is a router: by an advertisement it would give others addresses that no policy knows.
    """
    part = protocol_part(_ICMPV6)
    kinds = {NEIGHBOURS: _DISCOVERY, ROUTERS: _OF_ROUTERS}
    return {name: frozenset(plain(part + bytes((one, 0, 0, 0))) for one in found) for name, found in kinds.items()}


def stray_chain(family: Family, *, isolating: bool) -> tuple[NftRule, ...]:
    """What comes from or to pods of this node with another address than their own.

    Of a pod that the runtime has named, nothing passes that has somebody else's source address (the bridge sees to its
    hardware address): policies judge by addresses. What is for all, for a group or of the link reaches pods that only
    the bridge knows, so nothing of it passes as long as one pod of this node is isolated.
    """
    drop, note = (Counter(), Verdict("drop")), "not the address of one pod, and a pod of this node is isolated"
    link = (rule(From("fe80::/10"), Verdict("return")),) if family is Family.IPV6 and not isolating else ()
    forged = forged_rule()
    if not isolating:
        return *link, forged
    if family is Family.IPV4:
        of_many: tuple[Statement, ...] = (To("224.0.0.0/4"), ToBroadcast())
    else:
        of_many = (To("ff00::/8"), To("fe80::/10"), From("fe80::/10"))
    return (*(rule(one, *drop, comment=note) for one in of_many), forged)


def forged_rule() -> NftRule:
    """Drops what a pod sends by an address that is not its own."""
    own = InSet((SENDER, Field("saddr")), SENDERS_ADDRESSES, negated=True)
    note = "a pod sends by its own addresses only"
    return rule(InSet((SENDER,), SENDERS), own, Counter(), Verdict("drop"), comment=note)


def probe(*statements: Statement) -> list[Message]:
    """Makes a table with such a rule, and removes it again: refused where the kernel cannot."""
    body = rule(*statements).body(PROBE, "probe", Family.IPV4)
    made = [*objects.replaced_table(PROBE), new_chain(PROBE, "probe"), new_rule(body)]
    return [*made, *objects.removed_table(PROBE)[1:]]


def group_chain(
    chains: Iterable[str], name: str, policies: Iterable[Name], *, refusing: Refusing
) -> tuple[NftRule, ...]:
    """The rules of a group: each policy's chain may accept; the rest is dropped."""
    note = comment(f"isolated by {' '.join(map(str, policies))}")
    jumps = [rule(Verdict("jump", chain)) for chain in chains]
    return (*jumps, *refusing.report(name), refusing.drop(note))


@dataclass(frozen=True, slots=True)
class Refusing:
    """How packets are refused. `reports`: the kernel can report them; `marked`: connections have marks (`marks.py`)."""

    reports: bool
    marked: bool

    def report(self, name: str) -> tuple[NftRule, ...]:
        """Reports packets by that name. A rule of its own: one packet too many is dropped all the same."""
        return (rule(REPORTED, Log(REPORTS, name)),) if self.reports else ()

    def drop(self, note: str) -> NftRule:
        """Counts and drops packets, and has their connection judged again."""
        return rule(Counter(), *((marks.FORGOTTEN,) if self.marked else ()), Verdict("drop"), comment=note)


def policy_chain_name(name: Name, direction: Direction) -> str:
    return f"policy-{MAPS[direction]}-{hashed(str(name))}"


def group_name(chains: Iterable[str], direction: Direction) -> str:
    return f"group-{MAPS[direction]}-{hashed(' '.join(chains))}"


def nodes_name(selection: NodeSelection) -> str:
    return f"nodes-{hashed(json.dumps(_words(selection.nodes)))}"


def names_name(names: DomainNames) -> str:
    """Of the set with the addresses to which a pod may begin connections."""
    return f"{NAMES}{hashed(' '.join(names.names))}"


def known_name(names: str) -> str:
    """Of the set beside that one: the addresses to which connections go on."""
    return f"known-{names.removeprefix(NAMES)}"


def peer_name(selection: Selection) -> str:
    namespaces = None if selection.namespaces is None else _words(selection.namespaces)
    return f"peer-{hashed(json.dumps([selection.namespace, namespaces, _words(selection.pods)]))}"


def block_name(ranges: Iterable[tuple[int, int]]) -> str:
    return f"block-{hashed(' '.join(f'{first}-{last}' for first, last in ranges))}"


def ports_name(ranges: Iterable[tuple[str, int, int]]) -> str:
    return f"ports-{hashed(' '.join(f'{protocol}:{first}-{last}' for protocol, first, last in ranges))}"


def named_name(ports: Iterable[NamedPort]) -> str:
    return f"named-{hashed(' '.join(f'{one.protocol}:{one.name}' for one in ports))}"


def comment(text: str) -> str:
    """Names as the comment of a rule: what could end a quoted text, or takes more bytes than one, is left out."""
    kept = (one for one in text if one.isascii() and (one.isalnum() or one in "-./[] _"))
    return "".join(islice(kept, _LONGEST_COMMENT))


def sender_part(address: str) -> bytes:
    """A hardware address as a part of a key."""
    return bytes.fromhex(address.replace(":", "")) + b"\0\0"


def protocol_part(number: int) -> bytes:
    """A protocol as a part of a key."""
    return bytes((number, 0, 0, 0))


def port_part(number: int) -> bytes:
    """A port as a part of a key."""
    return number.to_bytes(2, "big") + b"\0\0"


def _base(name: str, party: Field, header: Field) -> tuple[NftRule, ...]:
    return (
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
