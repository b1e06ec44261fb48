"""Plans which elements to add and delete, so that the kernel gets from its state to the desired one. Pure.

Upstream's counterpart is syncProxyRules in pkg/proxy/nftables/proxier.go. `AppliedState` is what our own writes have
left in the kernel, so a partial sync reads nothing back and plans only the Services that changed. Planning changes
nothing: a `Delta` is committed to the applied state once the kernel has it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from nodelib.nft.wire import Element
from proxy.model import Desired, Problem, ServicePortName
from proxy.plan.context import Context
from proxy.plan.nftables import layout
from proxy.plan.nftables.ports import Frontend, PortElements, port_elements

Kernel = Mapping[str, set[bytes]]
Elements = dict[tuple[str, bytes], bytes]  # (set, key): the encoded element


@dataclass(slots=True)
class AppliedState:
    """What our writes have left in the kernel, by port.

    `owner`: the port whose elements serve a frontend; `waiting`: other ports that want the same frontend; `shared`: how
    many ports have an element in common.
    """

    ports: dict[ServicePortName, PortElements] = field(default_factory=dict)
    owner: dict[Frontend, ServicePortName] = field(default_factory=dict)
    waiting: dict[Frontend, set[ServicePortName]] = field(default_factory=dict)
    shared: Counter[Element] = field(default_factory=Counter)
    chains: set[str] = field(default_factory=set)
    no_local_internal: int = 0
    no_local_external: int = 0

    def commit(self, delta: Delta) -> None:
        """Record that the kernel has `delta` now."""
        for name, elements in delta.ports.items():
            self._count(self.ports.pop(name, None), -1)
            self._count(elements, 1)
            if elements is not None:
                self.ports[name] = elements
        for frontend, owner in delta.owner.items():
            if owner is None:
                self.owner.pop(frontend, None)
            else:
                self.owner[frontend] = owner
        for frontend, names in delta.waiting.items():
            if names:
                self.waiting[frontend] = names
            else:
                self.waiting.pop(frontend, None)
        for element, count in delta.shared.items():
            if count:
                self.shared[element] = count
            else:
                self.shared.pop(element, None)
        self.chains.update(delta.chains)

    def copy(self) -> AppliedState:
        """What expected() looks at, for another thread."""
        return AppliedState(ports=dict(self.ports), owner=dict(self.owner), shared=Counter(self.shared))

    def _count(self, port: PortElements | None, step: int) -> None:
        if port is not None:
            self.no_local_internal += step * port.no_local_internal
            self.no_local_external += step * port.no_local_external

    def size(self, names: Iterable[ServicePortName]) -> int:
        """How many elements these ports have, and how many others wait for their frontends."""
        known = [port for name in names if (port := self.ports.get(name)) is not None]
        waiting = self.waiting
        return sum(len(mine) + len(waiting.get(one, ())) for port in known for one, mine in port.frontends.items())

    def needed_chains(self) -> set[str]:
        """The on-demand chains that any port uses; the kernel may have more, which earlier ones used."""
        used = {chain for port in self.ports.values() for chain in port.chains}
        return {name for chain in used for name in layout.needed_chains(chain)}

    def expected(self) -> dict[str, set[bytes]]:
        """Every element that the kernel should have, by set."""
        found: dict[str, set[bytes]] = {name: set() for name in layout.FILLED}
        for name, elements in self.ports.items():
            for frontend, mine in elements.frontends.items():
                if self.owner.get(frontend) == name:
                    for one in mine:
                        found[one.set].add(one.raw)
        for one in self.shared:
            found[one.set].add(one.raw)
        return found


@dataclass(slots=True)
class Delta:
    """What to write (`chains`, then `delete`, then `add`), and what changes in the applied state after that."""

    chains: tuple[str, ...] = ()
    delete: list[Element] = field(default_factory=list)
    add: list[Element] = field(default_factory=list)
    ports: dict[ServicePortName, PortElements | None] = field(default_factory=dict)
    owner: dict[Frontend, ServicePortName | None] = field(default_factory=dict)
    waiting: dict[Frontend, set[ServicePortName]] = field(default_factory=dict)
    shared: dict[Element, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def plan(desired: Desired, changed: Collection[ServicePortName] | None, ctx: Context, applied: AppliedState) -> Delta:
    """The delta for the ports in `changed`, None: for all. A frontend that two ports want stays with its owner."""
    delta = Delta()
    names = set(applied.ports) | set(desired.ports) if changed is None else set(changed)
    before: Elements = {}
    for name in names:
        _release(name, applied, delta, before)
    after: Elements = {}
    # A frontend stays with its owner; a free one goes to the first port by name.
    for name in names:
        port = desired.ports.get(name)
        elements = port_elements(port, desired.endpoints.get(name, ()), ctx) if port is not None else None
        delta.ports[name] = elements
        for frontend in elements.frontends if elements else ():
            if applied.owner.get(frontend) == name:
                delta.owner[frontend] = name
    for name in sorted(names):
        if (elements := delta.ports[name]) is not None:
            _claim(name, elements, applied, delta, after)
    # A port that waits for a frontend of a changed port may get it now. Nothing else of it is planned again: thousands
    # of ports may wait for the same ones.
    for frontend in [frontend for frontend, owner in delta.owner.items() if owner is None]:
        _inherit(frontend, applied, delta, after)
    _shared(delta, applied, before, after)
    chains = {chain for one in delta.ports.values() if one for chain in one.chains} - applied.chains
    delta.chains = _ordered(chains, applied.chains)
    for key, raw in before.items():
        if after.get(key) != raw:
            delta.delete.append(Element(key[0], raw))
    for key, raw in after.items():
        if before.get(key) != raw:
            delta.add.append(Element(key[0], raw))
    return delta


def difference(applied: AppliedState, kernel: Kernel) -> tuple[list[Element], list[Element]]:
    """(to delete, to add) so that the kernel has exactly the elements of the applied state."""
    delete: list[Element] = []
    add: list[Element] = []
    for name, wanted in applied.expected().items():
        present = kernel.get(name, set())
        delete += [Element(name, raw) for raw in present - wanted]
        add += [Element(name, raw) for raw in wanted - present]
    return delete, add


def _release(name: ServicePortName, applied: AppliedState, delta: Delta, before: Elements) -> None:
    old = applied.ports.get(name)
    if old is None:
        return
    for frontend, elements in old.frontends.items():
        if applied.owner.get(frontend) == name:
            delta.owner[frontend] = None
            for one in elements:
                before[one.set, one.key] = one.raw
        else:
            _waiting(frontend, applied, delta).discard(name)
    for one in old.shared:
        delta.shared[one] = delta.shared.get(one, applied.shared[one]) - 1


def _claim(
    name: ServicePortName,
    elements: PortElements,
    applied: AppliedState,
    delta: Delta,
    after: Elements,
) -> None:
    for frontend, mine in elements.frontends.items():
        owner = delta.owner[frontend] if frontend in delta.owner else applied.owner.get(frontend)
        if owner is None:
            owner = _inherit(frontend, applied, delta, after, before=name)
        if owner is not None and owner != name:
            _waiting(frontend, applied, delta).add(name)
            delta.problems.append(
                Problem(
                    f"Service {name}",
                    f"{frontend} is served by Service {owner} already: waiting until that one is gone",
                )
            )
            continue
        delta.owner[frontend] = name
        for one in mine:
            after[one.set, one.key] = one.raw
    for one in elements.shared:
        delta.shared[one] = delta.shared.get(one, applied.shared[one]) + 1


def _inherit(
    frontend: Frontend,
    applied: AppliedState,
    delta: Delta,
    after: Elements,
    before: ServicePortName | None = None,
) -> ServicePortName | None:
    """Give a free frontend to the first of those that wait for it, if that one comes `before` another; None: nobody."""
    if not (delta.waiting[frontend] if frontend in delta.waiting else applied.waiting.get(frontend)):
        return None
    waiting = _waiting(frontend, applied, delta)
    heir = min(waiting)
    if before is not None and before < heir:
        return None
    waiting.discard(heir)
    delta.owner[frontend] = heir
    known = delta.ports[heir] if heir in delta.ports else applied.ports.get(heir)
    for one in known.frontends[frontend] if known is not None else ():
        after[one.set, one.key] = one.raw
    return heir


def _waiting(frontend: Frontend, applied: AppliedState, delta: Delta) -> set[ServicePortName]:
    if frontend not in delta.waiting:
        delta.waiting[frontend] = set(applied.waiting.get(frontend, ()))
    return delta.waiting[frontend]


def _shared(delta: Delta, applied: AppliedState, before: Elements, after: Elements) -> None:
    for one, count in delta.shared.items():
        if applied.shared[one]:
            before[one.set, one.key] = one.raw
        if count:
            after[one.set, one.key] = one.raw


def _ordered(chains: Iterable[str], known: Collection[str]) -> tuple[str, ...]:
    """The chains and those that they lead to, targets first, without the known ones."""
    found: dict[str, None] = {}
    for name in sorted(chains):
        for one in layout.needed_chains(name):
            if one not in known:
                found[one] = None
    return tuple(found)
