"""From what is desired and what stands in the kernel to the difference between the two. Pure.

The `Ledger` is what our own writes have left in the kernel; it is never read back on the hot path. A change of one
Service looks at that Service alone. Planning changes nothing: the ledger takes a `Delta` when it is in the kernel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from nodelib.nft.wire import Element
from proxy.model import Desired, Problem, ServicePortName
from proxy.plan.context import Context
from proxy.plan.nftables import layout
from proxy.plan.nftables.ports import Front, PortElements, port_elements

Kernel = Mapping[str, set[bytes]]


@dataclass(slots=True)
class Ledger:
    """`owner`: whose elements stand for a front; `waiting`: other ports that want the same one."""

    ports: dict[ServicePortName, PortElements] = field(default_factory=dict)
    owner: dict[Front, ServicePortName] = field(default_factory=dict)
    waiting: dict[Front, set[ServicePortName]] = field(default_factory=dict)
    shared: Counter[Element] = field(default_factory=Counter)
    chains: set[str] = field(default_factory=set)
    no_local_internal: int = 0
    no_local_external: int = 0

    def take(self, delta: Delta) -> None:
        """The kernel has `delta` now."""
        for name, elements in delta.ports.items():
            self._count(self.ports.pop(name, None), -1)
            self._count(elements, 1)
            if elements is not None:
                self.ports[name] = elements
        for front, owner in delta.owner.items():
            if owner is None:
                self.owner.pop(front, None)
            else:
                self.owner[front] = owner
        for front, names in delta.waiting.items():
            if names:
                self.waiting[front] = names
            else:
                self.waiting.pop(front, None)
        for element, count in delta.shared.items():
            if count:
                self.shared[element] = count
            else:
                self.shared.pop(element, None)
        self.chains.update(delta.chains)

    def _count(self, port: PortElements | None, step: int) -> None:
        if port is not None:
            self.no_local_internal += step * port.no_local_internal
            self.no_local_external += step * port.no_local_external

    def expected(self) -> dict[str, set[bytes]]:
        """Every element that should stand, by set."""
        found: dict[str, set[bytes]] = {name: set() for name in layout.FILLED}
        for name, elements in self.ports.items():
            for front, mine in elements.fronts.items():
                if self.owner.get(front) == name:
                    for one in mine:
                        found[one.set].add(one.raw)
        for one in self.shared:
            found[one.set].add(one.raw)
        return found


@dataclass(slots=True)
class Delta:
    """What to write, in its order (`chains` first), and what the ledger takes after it."""

    chains: tuple[str, ...] = ()
    delete: list[Element] = field(default_factory=list)
    add: list[Element] = field(default_factory=list)
    ports: dict[ServicePortName, PortElements | None] = field(default_factory=dict)
    owner: dict[Front, ServicePortName | None] = field(default_factory=dict)
    waiting: dict[Front, set[ServicePortName]] = field(default_factory=dict)
    shared: dict[Element, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def plan(desired: Desired, changed: Collection[ServicePortName] | None, ctx: Context, ledger: Ledger) -> Delta:
    """For the ports in `changed`, None: all. With two ports at one front the one that is there first keeps it."""
    delta = Delta()
    names = set(ledger.ports) | set(desired.ports) if changed is None else set(changed)
    # Who waits for a front of a port that changes may get it now.
    for name in tuple(names):
        old = ledger.ports.get(name)
        if old is not None and ledger.waiting:
            for front in old.fronts:
                names.update(ledger.waiting.get(front, ()))
    before: dict[tuple[str, bytes], bytes] = {}
    for name in names:
        _release(name, ledger, delta, before)
    after: dict[tuple[str, bytes], bytes] = {}
    # A front stays with its owner; of others the first by name gets it.
    for name in sorted(names, key=lambda name: (not _owns_all(name, ledger), name)):
        port = desired.ports.get(name)
        if port is None:
            delta.ports[name] = None
        else:
            _claim(name, port_elements(port, desired.endpoints.get(name, ()), ctx), ledger, delta, after)
    _shared(delta, ledger, before, after)
    chains = {chain for one in delta.ports.values() if one for chain in one.chains} - ledger.chains
    delta.chains = _ordered(chains, ledger.chains)
    for key, raw in before.items():
        if after.get(key) != raw:
            delta.delete.append(Element(key[0], raw))
    for key, raw in after.items():
        if before.get(key) != raw:
            delta.add.append(Element(key[0], raw))
    return delta


def difference(ledger: Ledger, kernel: Kernel) -> tuple[list[Element], list[Element]]:
    """(to delete, to add) so that the kernel has what the ledger says."""
    delete: list[Element] = []
    add: list[Element] = []
    for name, wanted in ledger.expected().items():
        stands = kernel.get(name, set())
        delete += [Element(name, raw) for raw in stands - wanted]
        add += [Element(name, raw) for raw in wanted - stands]
    return delete, add


def _owns_all(name: ServicePortName, ledger: Ledger) -> bool:
    known = ledger.ports.get(name)
    return known is not None and all(ledger.owner.get(front) == name for front in known.fronts)


def _release(name: ServicePortName, ledger: Ledger, delta: Delta, before: dict[tuple[str, bytes], bytes]) -> None:
    old = ledger.ports.get(name)
    if old is None:
        return
    for front, elements in old.fronts.items():
        if ledger.owner.get(front) == name:
            delta.owner[front] = None
            for one in elements:
                before[one.set, one.key] = one.raw
        else:
            _waiting(front, ledger, delta).discard(name)
    for one in old.shared:
        delta.shared[one] = delta.shared.get(one, ledger.shared[one]) - 1


def _claim(
    name: ServicePortName,
    elements: PortElements,
    ledger: Ledger,
    delta: Delta,
    after: dict[tuple[str, bytes], bytes],
) -> None:
    delta.ports[name] = elements
    for front, mine in elements.fronts.items():
        owner = delta.owner[front] if front in delta.owner else ledger.owner.get(front)
        if owner is not None:
            _waiting(front, ledger, delta).add(name)
            delta.problems.append(
                Problem(f"Service {name}", f"{front} is already served by Service {owner}: it waits for that to end")
            )
            continue
        delta.owner[front] = name
        for one in mine:
            after[one.set, one.key] = one.raw
    for one in elements.shared:
        delta.shared[one] = delta.shared.get(one, ledger.shared[one]) + 1


def _waiting(front: Front, ledger: Ledger, delta: Delta) -> set[ServicePortName]:
    if front not in delta.waiting:
        delta.waiting[front] = set(ledger.waiting.get(front, ()))
    return delta.waiting[front]


def _shared(
    delta: Delta, ledger: Ledger, before: dict[tuple[str, bytes], bytes], after: dict[tuple[str, bytes], bytes]
) -> None:
    for one, count in delta.shared.items():
        if ledger.shared[one]:
            before[one.set, one.key] = one.raw
        if count:
            after[one.set, one.key] = one.raw


def _ordered(chains: Iterable[str], known: Collection[str]) -> tuple[str, ...]:
    """With the chains they go to, those first."""
    found: dict[str, None] = {}
    for name in sorted(chains):
        for one in layout.needed_chains(name):
            if one not in known:
                found[one] = None
    return tuple(found)
