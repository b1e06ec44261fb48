"""The whole content of our table in one family, from pods and policies. Pure, but for the caches of `Planner`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from nodelib.addresses import hardware_address
from nodelib.firewall.objects import Family
from nodelib.nft import wire
from nodelib.nft.objects import SetShape
from nodelib.nft.rules import NftRule
from policy.model import Address, Direction, Name, NamedPort, Pod, Policy, Selection
from policy.plan import layout
from policy.plan.compile import Blocks, Compiled, Meaning, NamedPorts, Ports, compiled
from policy.plan.index import Index

# What the policies of one namespace may cost a node (policy.plan.compile): some four seconds of the kernel's time. Who
# may write policies in one namespace does not hold up the rules, and with them the new pods, of all others.
MOST = 100_000
# Jumps from pods' chains to policies' chains, of one namespace: pods times policies, at worst.
_MOST_JUMPS = 20_000


@dataclass(frozen=True, slots=True)
class Program:
    """Chains with their rules and sets with their elements.

    `groups`: the policies that isolate the pods of a group. `left_out`: those that allow nothing, because those of
    their namespace are too many or too large.
    """

    family: Family
    chains: dict[str, tuple[NftRule, ...]] = field(default_factory=dict)
    sets: dict[str, SetShape] = field(default_factory=dict)
    elements: dict[str, frozenset[bytes]] = field(default_factory=dict)
    groups: dict[str, tuple[Name, ...]] = field(default_factory=dict)
    left_out: tuple[Name, ...] = ()


class Planner:
    """Plans one family for one node. What has not changed since the last plan is not made again."""

    def __init__(self, family: Family, node: str, *, report: bool) -> None:
        self.family = family
        self._node = node
        self._report = report
        self._compiled: dict[Name, Compiled] = {}
        self._elements: dict[str, frozenset[bytes]] = {}
        self._fixed = layout.base_chains(family)

    def plan(self, index: Index, changed: set[Selection | NamedPort]) -> tuple[Program, set[Selection | NamedPort]]:
        """The program, and the selections and named ports that it depends on."""
        used: set[Selection | NamedPort] = set()
        policies = self._policies(index)
        isolating: dict[Direction, dict[Name, list[Compiled]]] = {one: {} for one in Direction}
        for policy in policies:
            used.add(policy.policy.selection)
            for name in index.members(policy.policy.selection):
                if index.pods[name].node == self._node:
                    for direction in policy.names:
                        isolating[direction].setdefault(name, []).append(policy)
        left_out = {one.policy.name for one in policies if one.closed}
        program = Program(self.family, dict(self._fixed))
        meanings = self._write_groups(program, isolating, index, left_out)
        for meaning in meanings.values():
            used.update(_watched(meaning))
        self._write_sets(program, meanings, index, changed)
        return replace(program, left_out=tuple(sorted(left_out))), used

    def _policies(self, index: Index) -> list[Compiled]:
        """Every policy, in the order of the names."""
        found: dict[Name, Compiled] = {}
        spent: dict[str, int] = {}
        for name in sorted(index.policies):
            policy: Policy = index.policies[name]
            known, room = self._compiled.get(name), MOST - spent.get(name.namespace, 0)
            if known is None or known.policy is not policy or known.closed is not (known.cost > room):
                known = compiled(policy, self.family, room)
            found[name] = known
            if not known.closed:
                spent[name.namespace] = spent.get(name.namespace, 0) + known.cost
        self._compiled = found
        return list(found.values())

    def _write_groups(
        self,
        program: Program,
        isolating: dict[Direction, dict[Name, list[Compiled]]],
        index: Index,
        left_out: set[Name],
    ) -> dict[str, Meaning]:
        """Lead each isolated pod to the chain of its group, and those to the policies' chains."""
        meanings: dict[str, Meaning] = {}
        own: set[bytes] = set()
        jumps: dict[str, int] = {}
        isolates = any(isolating.values())
        for direction, by_pod in isolating.items():
            lead: dict[bytes, str] = {}
            names: dict[tuple[str, ...], str] = {}
            for pod, policies in sorted(by_pod.items()):
                address = index.pods[pod].address(self.family)
                # Of two pods with one address (a status may be late, or wrong) one is enough: the kernel refuses both.
                if address is None or address.packed in lead:
                    continue
                chains = tuple([one.names[direction] for one in policies])
                if chains not in names:
                    jumps[pod.namespace] = jumps.get(pod.namespace, 0) + len(chains)
                    if jumps[pod.namespace] > _MOST_JUMPS:
                        left_out.update(one.policy.name for one in policies)
                        policies = []
                    names[chains] = self._group(program, policies, direction, meanings)
                lead[address.packed] = names[chains]
                own.add(wire.plain(address.packed + address.packed))
            elements = frozenset(wire.verdict(packed, group) for packed, group in lead.items())
            self._put(program, layout.MAPS[direction], layout.MAP_SHAPE, elements)
        self._put(program, layout.SELF, layout.SELF_SHAPE, frozenset(own))
        if self.family is Family.IPV6:
            for name, elements in layout.icmp_elements().items():
                self._put(program, name, layout.ICMP_SHAPE, elements)
        self._write_senders(program, index)
        program.chains[layout.STRAY] = layout.stray_chain(self.family, isolating=isolates)
        return meanings

    def _write_senders(self, program: Program, index: Index) -> None:
        """The pod network gives each pod the hardware address that follows from its first address."""
        known: set[bytes] = set()
        addresses: set[bytes] = set()
        for given in index.runtimes.values():
            sender = layout.sender_part(hardware_address(given[0])) if given else b""
            known |= {wire.plain(sender)} if sender else set()
            addresses |= {
                wire.plain(sender + one.packed) for one in given if (one.version == 4) is (self.family is Family.IPV4)
            }
        self._put(program, layout.SENDERS, layout.SENDERS_SHAPE, frozenset(known))
        self._put(program, layout.SENDERS_ADDRESSES, layout.SENDERS_ADDRESSES_SHAPE, frozenset(addresses))

    def _group(
        self, program: Program, policies: list[Compiled], direction: Direction, meanings: dict[str, Meaning]
    ) -> str:
        """The name of the chain of all pods that these isolate, which drops everything if there are none."""
        chains = tuple([one.names[direction] for one in policies])
        group = layout.group_name(chains, direction)
        for one in policies:
            name = one.names[direction]
            program.chains[name] = one.chains[name]
            meanings |= one.sets
        names_of = program.groups[group] = tuple([one.policy.name for one in policies])
        program.chains[group] = layout.group_chain(chains, group, names_of, report=self._report)
        return group

    def _write_sets(
        self, program: Program, meanings: dict[str, Meaning], index: Index, changed: set[Selection | NamedPort]
    ) -> None:
        kept: dict[str, frozenset[bytes]] = {}
        for name, meaning in meanings.items():
            # Asked for in any case: from the first time on the index keeps it up to date.
            members = _members(meaning, index)
            found = self._elements.get(name)
            if found is None or not changed.isdisjoint(_watched(meaning)):
                found = self._encoded(meaning, members)
            kept[name] = found
            self._put(program, name, _shape(meaning), found)
        self._elements = kept

    def _encoded(self, meaning: Meaning, members: list[Pod]) -> frozenset[bytes]:
        match meaning:
            case Selection():
                return frozenset(wire.plain(address.packed) for address in self._addresses(members))
            case NamedPorts(ports):
                return frozenset(raw for one in ports for raw in _named_elements(one, members, self.family))
            case Blocks(ranges):
                return _block_elements(ranges, self.family)
            case Ports(ranges):
                return frozenset(_port_element(*one) for one in ranges)

    def _addresses(self, pods: list[Pod]) -> list[Address]:
        return [address for pod in pods if (address := pod.address(self.family)) is not None]

    @staticmethod
    def _put(program: Program, name: str, shape: SetShape, elements: frozenset[bytes]) -> None:
        program.sets[name] = shape
        program.elements[name] = elements


def _watched(meaning: Meaning) -> tuple[Selection | NamedPort, ...]:
    """What of the index its elements depend on."""
    if isinstance(meaning, NamedPorts):
        return meaning.ports
    return (meaning,) if isinstance(meaning, Selection) else ()


def _members(meaning: Meaning, index: Index) -> list[Pod]:
    if isinstance(meaning, Selection):
        return [index.pods[name] for name in index.members(meaning)]
    if isinstance(meaning, NamedPorts):
        return [index.pods[name] for name in set().union(*map(index.having, meaning.ports))]
    return []


def _shape(meaning: Meaning) -> SetShape:
    match meaning:
        case Selection():
            return layout.PEER_SHAPE
        case NamedPorts():
            return layout.NAMED_SHAPE
        case Blocks():
            return layout.BLOCK_SHAPE
        case Ports():
            return layout.PORTS_SHAPE


def _port_element(protocol: str, first: int, last: int) -> bytes:
    part = layout.protocol_part(layout.PROTOCOLS[protocol])
    return wire.ranged(part + layout.port_part(first), part + layout.port_part(last))


def _named_elements(port: NamedPort, pods: list[Pod], family: Family) -> frozenset[bytes]:
    found = set()
    part = layout.protocol_part(layout.PROTOCOLS[port.protocol])
    for pod in pods:
        address = pod.address(family)
        if address is not None:
            found |= {wire.plain(address.packed + part + layout.port_part(one)) for one in pod.ports.get(port, ())}
    return frozenset(found)


def _block_elements(ranges: Iterable[tuple[int, int]], family: Family) -> frozenset[bytes]:
    """The protocol is part of the key, because the kernel's ranges need a key of two parts: all of them."""
    size = 4 if family is Family.IPV4 else 16
    low, high = layout.protocol_part(0), layout.protocol_part(255)
    return frozenset(
        wire.ranged(first.to_bytes(size, "big") + low, last.to_bytes(size, "big") + high) for first, last in ranges
    )
