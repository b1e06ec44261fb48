"""A kernel that takes the messages of the policy table, refuses what the real one refuses, and judges packets.

It keeps each rule as the bytes it was sent; `judge` needs the rules as values and takes them from a Program.
"""

from __future__ import annotations

import copy
import errno
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network

from nodelib.firewall.objects import Family
from nodelib.netlink.framing import attributes
from nodelib.nft import wire
from nodelib.nft.actions import Counter, Log, MarkConnection, UpdateSet, Verdict, VerdictOf
from nodelib.nft.edge import NftError
from nodelib.nft.keys import Field
from nodelib.nft.matches import Connection, ConnectionMarked, From, InSet, Limit, To, ToBroadcast
from nodelib.nft.rules import NftRule
from nodelib.nft.wire import Message
from policy.plan import cluster_layout, layout
from policy.plan.program import Program


def _nothing() -> None:
    pass


@dataclass
class Content:
    """What one table holds."""

    chains: dict[str, list[bytes]] = field(default_factory=dict)
    sets: dict[str, set[bytes]] = field(default_factory=dict)


class FakePolicyTable:
    """One family's table; None: it does not exist. `refuse`: the next transactions fail. `reads`: how often audits and
    others have read it. `after_commit` is called once, after the next commit.
    """

    def __init__(self, family: Family = Family.IPV4) -> None:
        self.family = family
        self.content: Content | None = None
        self.refuse = 0
        self.commits: list[int] = []
        self.reads = 0
        self.after_commit: Callable[[], None] = _nothing

    async def commit(self, batch: list[Message]) -> None:
        if self.refuse:
            self.refuse -= 1
            raise NftError("no memory", family=self.family, code=errno.ENOMEM)
        draft = copy.deepcopy(self.content)
        for message in batch:
            draft = self._take(draft, message)
        self.content = draft
        self.commits.append(len(batch))
        then, self.after_commit = self.after_commit, _nothing
        then()

    async def elements(self, sets: Iterable[str]) -> dict[str, set[bytes]] | None:
        self.reads += 1
        if self.content is None:
            return None
        return {name: set(self.content.sets[name]) for name in sets}

    async def digests(self, chains: Collection[str] | None = None) -> dict[str, str]:
        self.reads += 1
        there = {} if self.content is None else self.content.chains
        return {name: str(rules) for name, rules in there.items() if rules and (chains is None or name in chains)}

    def _take(self, now: Content | None, message: Message) -> Content | None:
        parts = dict(attributes(message.body))

        def text(kind: int) -> str:
            return parts[kind].rstrip(b"\0").decode()

        if message.kind == 0:
            return now or Content()
        if message.kind == 2:
            return None
        assert now is not None, "no such table"
        match message.kind:
            case 3:
                now.chains.setdefault(text(3), [])
            case 5:
                assert not now.chains.pop(text(3)), "the chain has rules"
                assert text(3).encode() + b"\0" not in b"".join(self._everything(now)), "something leads to the chain"
            case wire.NEW_RULE:
                for name in _names(parts[4]):
                    assert name in now.sets or name in now.chains, f"the rule needs {name}"
                now.chains[text(2)].append(message.body)
            case wire.DELETE_RULE:
                now.chains[text(2)].clear()
            case 9:
                assert text(2) not in now.sets, "the set is there"
                now.sets[text(2)] = set()
            case 11:
                del now.sets[text(2)]
                assert text(2).encode() + b"\0" not in b"".join(self._everything(now)), "a rule uses the set"
            case wire.NEW_ELEMENTS | wire.DELETE_ELEMENTS:
                self._elements(now, message.kind, text(2), [raw for _, raw in attributes(parts[3])])
            case other:
                raise AssertionError(f"a message of kind {other}")
        return now

    @staticmethod
    def _elements(now: Content, kind: int, name: str, raws: list[bytes]) -> None:
        found = now.sets[name]
        if kind == wire.DELETE_ELEMENTS:
            for raw in raws:
                found.remove(raw)
            return
        keys = {wire.element_key(one) for one in found}
        for raw in raws:
            assert wire.element_key(raw) not in keys, f"{name} has this key already"
            keys.add(wire.element_key(raw))
            leads = wire.element_data(raw)
            if isinstance(leads, str):
                assert leads.removeprefix("goto ") in now.chains, f"{leads}: no such chain"
            found.add(raw)

    @staticmethod
    def _everything(now: Content) -> list[bytes]:
        rules = [body for bodies in now.chains.values() for body in bodies]
        return rules + [raw + b"\0" for raws in now.sets.values() for raw in raws]


def _names(expressions: bytes) -> list[str]:
    """Sets and chains that a rule's expressions name."""
    found = []
    for _, body in attributes(expressions):
        parts = dict(attributes(body))
        name, data = parts[1].rstrip(b"\0"), dict(attributes(parts.get(2, b"")))
        if name == b"lookup":
            found.append(data[1].rstrip(b"\0").decode())
        if name == b"immediate":
            verdict = dict(attributes(dict(attributes(data[2]))[2]))
            if 2 in verdict:
                found.append(verdict[2].rstrip(b"\0").decode())
    return found


@dataclass(frozen=True)
class Flow:
    """A connection: who began it, and the pod or host and port that answers. `sender`: its hardware address.

    `state`: invalid or untracked for a packet of no connection; its header has client and server then; or
    "established,related" for a later packet of one.
    """

    client: str
    server: str
    protocol: int = 6
    port: int = 80
    sender: str = "02:00:00:00:00:01"
    state: str = "new"


def allowed(program: Program, flow: Flow) -> bool:
    """Whether the program lets a packet of the flow pass."""
    return all(_judge(program, name, flow) != "drop" for name in layout.HOOKS)


def allowed_to_node(program: Program, flow: Flow) -> bool:
    """Whether it lets a packet pass that a pod sends to its own node."""
    return cluster_layout.TO_NODE not in program.chains or _judge(program, cluster_layout.TO_NODE, flow) != "drop"


def _judge(program: Program, chain: str, flow: Flow) -> str:
    for one in program.chains[chain]:
        verdict = _rule(program, one, flow)
        if verdict:
            return "" if verdict == "return" else verdict
    return ""


def _rule(program: Program, one: NftRule, flow: Flow) -> str:
    """accept or drop, return if the chain ends here, or "" if the packet goes on behind the rule."""
    for statement in one.statements:
        match statement:
            case InSet(key, name, negated):
                if _needs_connection(key, flow) or _inside(program.elements[name], _key(key, flow)) is negated:
                    return ""
            case VerdictOf(key, name):
                if _needs_connection(key, flow):
                    return ""
                wanted = b"".join(_key(key, flow))
                for raw in program.elements[name]:
                    if wire.element_key(raw) == wanted:
                        return _judge(program, str(wire.element_data(raw)).removeprefix("goto "), flow) or "accept"
                return ""
            case ToBroadcast():
                return ""  # every flow of the tests is to one address
            case From(cidr) | To(cidr):
                address = flow.client if isinstance(statement, From) else flow.server
                if ip_address(address) not in ip_network(cidr):
                    return ""
            case Connection("state", state):
                if state != flow.state:
                    return ""
            case Verdict("jump", chain):
                return _judge(program, chain, flow)
            case Verdict("goto", chain):
                return _judge(program, chain, flow) or "return"
            case Verdict(word):
                return word
            case ConnectionMarked():
                return ""  # nothing was judged before
            case Limit():
                return ""  # a flood is under way: no rule may need what is behind this to drop it
            case Counter() | Log() | UpdateSet() | MarkConnection():
                pass
            case other:
                raise AssertionError(other)
    return ""


def _needs_connection(key: tuple[Field, ...], flow: Flow) -> bool:
    return flow.state in ("invalid", "untracked") and any(one.name.startswith(("original-", "reply-")) for one in key)


def _key(key: tuple[Field, ...], flow: Flow) -> list[bytes]:
    values: Mapping[str, bytes] = {
        "sender": layout.sender_part(flow.sender),
        "saddr": ip_address(flow.client).packed,
        "original-saddr": ip_address(flow.client).packed,
        "reply-saddr": ip_address(flow.server).packed,
        "original-protocol": layout.protocol_part(flow.protocol),
        "reply-sport": layout.port_part(flow.port),
        "daddr": ip_address(flow.server).packed,
    }
    return [values[one.name] for one in key]


def _inside(elements: frozenset[bytes], parts: list[bytes]) -> bool:
    """Each part lies between those of a range's ends; without ranges it is equal."""
    for raw in elements:
        key = wire.element_key(raw)
        whole = b"".join(parts)
        if key == whole:
            return True
        if len(key) == 2 * len(whole):
            at, hit = 0, True
            for part in parts:
                first, last = key[at : at + len(part)], key[len(whole) + at : len(whole) + at + len(part)]
                hit = hit and first <= part <= last
                at += len(part)
            if hit:
                return True
    return False
