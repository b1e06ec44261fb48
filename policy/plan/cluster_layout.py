"""The layout of ClusterNetworkPolicies in our table: their chains and the names of these. Pure.

A pod that one of them selects is in the map of its direction, as one that NetworkPolicies isolate is (`layout.py`). Its
group asks the tiers in their order: the Admin policies, then the NetworkPolicies if any isolates the pod, else the
Baseline policies. What nobody has decided passes.

- A tier of a group is a chain of its own (`tier-admin-…`, `tier-baseline-…`), shared by all pods that the same policies
  of the tier select. It jumps to each policy's rules in the order of their priorities.
- A policy's rules are chains (`cluster-…`) that all tiers share. Pass ends the tier, which a shared chain cannot do for
  its caller: rules that pass are written into the tier's chain, with the policy's other rules around them.
- A rule that denies leads to a chain of its own (`deny-…`), which counts, reports and drops.
- What a pod sends to its own node is not forwarded: a chain with the hook `input` judges it, for pods whose policies
  have rules for nodes or networks, and is there only if a pod needs it. NetworkPolicies do not apply to such packets.
- DNS answers to pods whose policies have rules with domain names are held until the daemon has read them: a chain with
  the hook `postrouting`, which sees the node's own answers, too, and is there only if a pod needs it. It goes by what
  the pod has asked: a server's address and port before any translation.
- `self-after-admin` has the pods that the Admin tier and NetworkPolicies select: upstream has what a pod sends to
  itself through a Service decided by the tiers, while no NetworkPolicy cuts a pod off from itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from nodelib.firewall.objects import Family
from nodelib.nft.actions import Counter, Queue, Verdict, VerdictOf
from nodelib.nft.keys import Field
from nodelib.nft.matches import Connection, InSet, OverLimit, ReplyDirection
from nodelib.nft.objects import SetShape
from nodelib.nft.rules import NftRule, rule
from nodelib.nft.wire import plain
from policy.cluster_model import ClusterPolicy, Tier
from policy.model import VERSION, Direction, Resolvers
from policy.plan import layout, marks
from policy.plan.layout import Refusing

TO_NODE = "to-node"
ANSWERS = "answers"
# Chains with a hook that are not always there, with their priorities.
HOOKS = {TO_NODE: ("input", layout.PRIORITY), ANSWERS: ("postrouting", 0), marks.JUDGED: ("forward", marks.PRIORITY)}
ASKING, SERVERS, OFTEN = "asking", "dns-servers", "asking-often"
OFTEN_SHAPE = SetShape(("addr",), most=1 << 12)
# Answers to one pod that are read in a second, and at once: the kernel holds 1,024 of all pods, and lets the others go.
READ, READ_AT_ONCE = 1000, 2000
SERVERS_SHAPE = SetShape(("addr", "proto", "service"))
QUEUE = 4021  # where answers are held
DNS = 53
_ASKED = (Field("original-daddr"), layout.PROTOCOL, Field("original-dport"))
OWN = "self-after-admin"


def base_chain(family: Family) -> tuple[NftRule, ...]:
    """The rules of the chain for what pods send to their own node, by their own addresses only."""
    return (
        *layout.discovery(family),
        layout.forged_rule(),
        rule(VerdictOf((layout.CLIENT,), TO_NODE)),
        rule(Connection("state", "invalid"), VerdictOf((Field("saddr"),), TO_NODE)),
    )


def answers_chain(resolvers: Resolvers, *, limited: bool) -> tuple[NftRule, ...]:
    """The rules that hold the answers of these servers to pods that need them read. `limited`: the kernel can count.

    Those of a pod that asks without end go on unread, so that it is not the answers of others that find no room.
    """
    of_one = (ReplyDirection(), InSet(_ASKED, SERVERS), InSet((layout.CLIENT,), ASKING))
    flood = (*of_one, OverLimit((layout.CLIENT,), OFTEN, READ, READ_AT_ONCE), Verdict("accept"))
    held = rule(*of_one, Queue(QUEUE, resolvers.extension), comment="for rules with domain names")
    return (rule(*flood, comment="it asks too often"), held) if limited else (held,)


def servers(resolvers: Resolvers, family: Family) -> frozenset[bytes]:
    """The elements of the set of these servers."""
    rest = layout.protocol_part(layout.PROTOCOLS["UDP"]) + layout.port_part(DNS)
    return frozenset(plain(one.packed + rest) for one in resolvers.servers if one.version == VERSION[family])


def denial(name: str, note: str, *, refusing: Refusing) -> tuple[NftRule, ...]:
    """The rules of a chain that refuses what comes to it."""
    return (*refusing.report(name), refusing.drop(note))


def closing(*, refusing: Refusing, name: str) -> tuple[NftRule, ...]:
    """The last rules of a group that denies something: what belongs to no connection might be just that."""
    note = "it belongs to no connection"
    found: list[NftRule] = []
    for state in ("invalid", "untracked"):
        alone = Connection("state", state)
        found += [rule(alone, *one.statements) for one in refusing.report(name)]
        found.append(rule(alone, Counter(), Verdict("drop"), comment=note))
    return tuple(found)


def label(policy: ClusterPolicy, direction: Direction, number: int, name: str) -> str:
    """The comment of a rule. The policy's name comes late, because long ones are cut."""
    return layout.comment(f"{policy.tier} {direction.lower()}[{number}] of {policy.name} {name}".rstrip())


def segment_name(policy: str, direction: Direction, number: int) -> str:
    return f"cluster-{layout.MAPS[direction]}-{layout.hashed(policy)}-{number}"


def denial_name(policy: str, direction: Direction, number: int) -> str:
    return f"deny-{layout.MAPS[direction]}-{layout.hashed(policy)}-{number}"


def tier_name(tier: Tier, direction: Direction, policies: Iterable[str]) -> str:
    return f"tier-{tier.lower()}-{layout.MAPS[direction]}-{layout.hashed(' '.join(policies))}"


def closed_name(tier: Tier, direction: Direction) -> str:
    """Of the chain in the place of tiers that have no room: it refuses everything."""
    return f"deny-{layout.MAPS[direction]}-all-{tier.lower()}"


def to_node_name(chains: Iterable[str]) -> str:
    return f"group-to-node-{layout.hashed(' '.join(chains))}"
