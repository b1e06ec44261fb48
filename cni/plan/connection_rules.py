"""The table that bounds new connections, which a node has only while its table of connections is crowded. Pure.

Its chains come right after the kernel has looked for the connection of a packet, so that what is dropped there never
gets an entry, and before anything translates its source. Between two pods of one bridge they see packets too, as the
Services' rules do (br_netfilter).

A family that no pod has gets no table. Nobody may have asked for the connections of that family before, and the kernel
walks through the whole table at the first such rule: under a flood that took seconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address

from cni.model import Holder
from nodelib.firewall.objects import Family
from nodelib.nft import objects
from nodelib.nft.actions import Counter, Verdict
from nodelib.nft.keys import Field
from nodelib.nft.matches import Connection, FromInterface, InSet, Limit, OverLimit
from nodelib.nft.objects import SetShape
from nodelib.nft.rules import NftRule, rule
from nodelib.nft.wire import Element, Message, new_chain, new_rule, plain

TABLE = "nodewright-connections"
EACH, BOUNDED, STRANGERS = 500, 20, 100  # new connections in a second: of a pod, of a bounded one, of all unknown ones
PODS, SENDERS, RECEIVERS = "pods", "senders", "receivers"
CHAINS = ("begin", "strangers", "receive")
VERSIONS = {Family.IPV4: 4, Family.IPV6: 6}
_PRIORITY = -190  # NF_IP_PRI_CONNTRACK is -200
_MOST = 4096  # addresses whose rates are known at once
# Not "ct state new", which every packet of a connection has until somebody answers: UDP that nobody ever does.
_NEW = Connection("status", "confirmed", negated=True)
_SOURCE, _DESTINATION = (Field("saddr"),), (Field("daddr"),)
_DROP = (Counter(), Verdict("drop"))
_SETS = {
    PODS: SetShape(("addr",)),
    SENDERS: SetShape(("addr",)),
    RECEIVERS: SetShape(("addr",)),
    "rates": SetShape(("addr",), most=_MOST),
    "low-rates": SetShape(("addr",), most=_MOST),
    "received": SetShape(("addr",), most=_MOST),
}


def table(family: Family, bridge: str) -> list[Message]:
    """The messages that make the family's table, without elements, where there is none."""
    made = [objects.new_table(TABLE)]
    made += [
        objects.new_set(TABLE, name, shape, family, number) for number, (name, shape) in enumerate(_SETS.items(), 1)
    ]
    made.append(new_chain(TABLE, "strangers"))
    made.append(objects.hooked_chain(TABLE, "begin", "prerouting", _PRIORITY))
    made.append(objects.hooked_chain(TABLE, "receive", "forward", _PRIORITY))
    for chain, rules in _rules(bridge).items():
        made += [new_rule(one.body(TABLE, chain, family)) for one in rules]
    return made


def removal() -> list[Message]:
    """The messages that remove it, whether it is there or not."""
    return objects.removed_table(TABLE)


def elements(family: Family, pods: Iterable[str], bounded: Iterable[Holder] = ()) -> set[Element]:
    """The elements of the family's sets for these pods and bounds."""
    every = [(PODS, one) for one in pods]
    every += [(RECEIVERS if one.received else SENDERS, one.address) for one in bounded]
    parsed = ((name, ip_address(text)) for name, text in every)
    return {Element(name, plain(one.packed)) for name, one in parsed if one.version == VERSIONS[family]}


def _rules(bridge: str) -> dict[str, tuple[NftRule, ...]]:
    others = InSet(_SOURCE, PODS, negated=True)
    return {
        "begin": (
            rule(_NEW, InSet(_SOURCE, SENDERS), OverLimit(_SOURCE, "low-rates", BOUNDED, BOUNDED), *_DROP),
            rule(_NEW, InSet(_SOURCE, PODS), OverLimit(_SOURCE, "rates", EACH, EACH), *_DROP),
            # A pod that sends by the address of somebody else: the policy daemon forbids it, but is not everywhere.
            rule(FromInterface(bridge), _NEW, others, Verdict("goto", "strangers")),
        ),
        "strangers": (rule(Limit(STRANGERS, STRANGERS), Verdict("accept")), rule(*_DROP)),
        # From outside: the destination is the pod's own address again, whatever Service was meant.
        "receive": (
            rule(
                _NEW,
                InSet(_DESTINATION, RECEIVERS),
                others,
                OverLimit(_DESTINATION, "received", BOUNDED, BOUNDED),
                *_DROP,
            ),
        ),
    }
