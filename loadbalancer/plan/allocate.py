"""Which Service has which address. Pure.

An address stays with its Services as long as they want it and it is in the pool. The table that the leader wrote comes
first, then what a Service's status says (the table may be lost), then what it requests, then what is free; among equals
the older Service. Two Services share an address only when both ask for it and can.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from loadbalancer.model import IPS, SHARE, Address, Problem, Service
from loadbalancer.plan.pool import Pool

# The table is one object in the API, and whoever may write Services in one namespace must not fill it alone.
MOST_ADDRESSES = 1000  # that are taken at once
MOST_SHARING = 64  # Services with one address
MOST_GIVEN = 3000  # addresses of all Services, shared ones counted for each
_SHARE = 2  # the part of both that the Services of one namespace may take: the half. What they had before they keep
_MOST_TRIED = 32  # shared addresses that a Service is compared with, before it gets one of its own

_TOO_MANY = Problem(
    "TooManyServices",
    f"Services have {MOST_GIVEN} addresses together, which is the most. Delete one of type LoadBalancer: this one is"
    " given an address as soon as there is room.",
)

_TOO_MANY_HERE = Problem(
    "TooManyServices",
    f"The Services of one namespace take at most {MOST_ADDRESSES // _SHARE} addresses, and are given at most"
    f" {MOST_GIVEN // _SHARE} together. Delete one of type LoadBalancer, or make this one in another namespace.",
)


@dataclass(frozen=True, slots=True)
class Allocation:
    """`owners`: the Services of each address. `problems`: by the UID of a Service that lacks something. `held`: each
    address by UID and family.
    """

    owners: Mapping[Address, tuple[Service, ...]]
    problems: Mapping[str, Problem]
    held: Mapping[tuple[str, int], Address] = field(default_factory=dict)

    def of(self, service: Service) -> tuple[Address, ...]:
        """A Service's addresses, in the order of its families."""
        return tuple(one for family in service.families if (one := self.held.get((service.uid, family))) is not None)


def allocate(services: Iterable[Service], before: Mapping[Address, tuple[str, ...]], pool: Pool) -> Allocation:
    """`before`: the UIDs of each address in the table."""
    there = {one.uid: one for one in services if one.ours and one.uid}
    ordered = sorted(there.values(), key=lambda one: (one.created, one.uid))
    work = _Work(pool)
    for address, uids in before.items():
        for uid in uids:
            if uid in there:
                work.keep(there[uid], address)
    for one in ordered:
        for address in one.current:
            work.keep(one, address)
    for one in sorted(ordered, key=lambda one: not one.requested):
        work.settle(one)
    return Allocation(
        {address: tuple(owners) for address, owners in sorted(work.owners.items(), key=_by_value)},
        work.problems,
        work.held,
    )


def _by_value(item: tuple[Address, list[Service]]) -> tuple[int, int]:
    return item[0].version, int(item[0])


@dataclass(slots=True)
class _Work:
    pool: Pool
    owners: dict[Address, list[Service]] = field(default_factory=dict)
    problems: dict[str, Problem] = field(default_factory=dict)
    held: dict[tuple[str, int], Address] = field(default_factory=dict)  # by UID and family
    ports: dict[Address, set[tuple[str, int]]] = field(default_factory=dict)  # of all owners, who have none in common
    shared: dict[tuple[str, str, int], dict[Address, None]] = field(default_factory=dict)  # by _group()
    given: Counter[str] = field(default_factory=Counter)  # addresses by namespace, shared ones counted for each Service
    taken: Counter[str] = field(default_factory=Counter)  # by namespace
    rest: dict[int, Iterator[Address]] = field(default_factory=dict)  # of the pool, by family, not looked at yet

    def keep(self, service: Service, address: Address) -> None:
        """Leave an address with the Service that had it, if nothing speaks against it."""
        family = address.version
        if family not in service.families or (service.uid, family) in self.held:
            return
        if address in self.pool and len(self.held) < MOST_GIVEN and self._is_free_for(service, address):
            self._give(service, address)

    def settle(self, service: Service) -> None:
        """Find what the Service still lacks."""
        problems = [service.problem] if service.problem else []
        for family in service.families:
            requested = next((one for one in service.requested if one.version == family), None)
            kept = self.held.get((service.uid, family))
            if service.problem or (kept is not None and requested in (None, kept)):
                continue
            problem = self._requested(service, requested) if requested is not None else self._any(service, family)
            if problem is not None:
                problems.append(problem)
        has = [family for family in service.families if (service.uid, family) in self.held]
        if service.all_families and len(has) < len(service.families):  # RequireDualStack: both or none
            for family in has:
                self._leave(service, family)
        elif has and not service.all_families and not service.requested:
            problems = []  # PreferDualStack: one of the two will do
        if problems:
            self.problems[service.uid] = problems[0]

    def _requested(self, service: Service, address: Address) -> Problem | None:
        """Until it can have the address the Service keeps what it has."""
        if address not in self.pool:
            return Problem(
                "AddressOutsidePool",
                f"{address} is requested and is not in the pool {self.pool}. Request another one ({IPS} or"
                " spec.loadBalancerIP), or none.",
            )
        if why := self._taken(service, address):
            return Problem("AddressInUse", f"{address} is requested and cannot be given: {why}")
        if len(self.held) >= MOST_GIVEN and (service.uid, address.version) not in self.held:
            return _TOO_MANY
        if self._has_its_share(service, address.version, another=address not in self.owners):
            return _TOO_MANY_HERE
        self._leave(service, address.version)
        self._give(service, address)
        return None

    def _any(self, service: Service, family: int) -> Problem | None:
        if family not in self.pool.families:
            return Problem(
                "NoPool",
                f"The pool {self.pool} has no IPv{family} addresses. Leave this family out of ipFamilies, or add a"
                " range of it to the pool.",
            )
        if len(self.held) >= MOST_GIVEN:
            return _TOO_MANY
        if self._has_its_share(service, family, another=False):
            return _TOO_MANY_HERE
        shared = self.shared.get(_group(service, family), {}) if service.share else {}
        tried = islice(reversed(shared), _MOST_TRIED)  # the newest are the least likely to be full
        address = next((one for one in tried if self._is_free_for(service, one)), None)
        if address is None and self._has_its_share(service, family, another=True):
            return _TOO_MANY_HERE
        if address is None and len(self.owners) < MOST_ADDRESSES:
            address = self._free(family)
        if address is None:
            return Problem("PoolExhausted", self._full(family))
        self._give(service, address)
        return None

    def _has_its_share(self, service: Service, family: int, *, another: bool) -> bool:
        """Whether the namespace has all that it may. `another`: an address that no Service has yet."""
        name, held = service.name.namespace, self.held.get((service.uid, family))
        is_freed = held is not None and len(self.owners[held]) == 1  # it gives one back, which no other Service has
        too_many = another and not is_freed and self.taken[name] >= MOST_ADDRESSES // _SHARE
        return too_many or (held is None and self.given[name] >= MOST_GIVEN // _SHARE)

    def _free(self, family: int) -> Address | None:
        """The next one. What is given back meanwhile is found when everything is planned the next time."""
        rest = self.rest.setdefault(family, self.pool.addresses(family))
        return next((address for address in rest if address not in self.owners), None)

    def _full(self, family: int) -> str:
        size = self.pool.size(family)
        return (
            f"All {min(size, MOST_ADDRESSES)} IPv{family} addresses of the pool are taken ({self.pool.of(family)})."
            f" Delete a Service of type LoadBalancer, let Services share one ({SHARE}), or make the pool larger."
            " It is given an address as soon as one is free."
        )

    def _is_free_for(self, service: Service, address: Address) -> bool:
        owners = self.owners.get(address)
        if not owners:
            return True
        # What is alike of one owner is alike of all; their ports are compared together, as each may have a thousand.
        return (
            len(owners) < MOST_SHARING and _alike(service, owners[0]) and service.ports.isdisjoint(self.ports[address])
        )

    def _taken(self, service: Service, address: Address) -> str:
        """Why the Service cannot have the address beside those that have it, "" if it can."""
        owners = self.owners.get(address, [])
        if len(owners) >= MOST_SHARING:
            return f"{MOST_SHARING} Services share it, and no more can."
        if self._is_free_for(service, address):
            return ""
        common = service.ports & self.ports[address] if _alike(service, owners[0]) else frozenset()
        return clash(service, next((one for one in owners if not common.isdisjoint(one.ports)), owners[0]))

    def _give(self, service: Service, address: Address) -> None:
        self.given[service.name.namespace] += 1
        self.taken[service.name.namespace] += address not in self.owners
        self.owners.setdefault(address, []).append(service)
        self.ports.setdefault(address, set()).update(service.ports)
        self.held[service.uid, address.version] = address
        if service.share:
            self.shared.setdefault(_group(service, address.version), {})[address] = None

    def _leave(self, service: Service, family: int) -> None:
        address = self.held.pop((service.uid, family), None)
        if address is not None:
            self.given[service.name.namespace] -= 1
            self.owners[address].remove(service)
            self.ports[address] -= service.ports
            if not self.owners[address]:
                self.taken[service.name.namespace] -= 1
                del self.owners[address], self.ports[address]
                self.shared.get(_group(service, family), {}).pop(address, None)


def can_share(one: Service, other: Service) -> bool:
    """Whether two Services can have one address."""
    return _alike(one, other) and one.ports.isdisjoint(other.ports)


def _alike(one: Service, other: Service) -> bool:
    """Whether they can but for their ports."""
    return (
        bool(one.share)
        and one.share == other.share
        and one.name.namespace == other.name.namespace
        and one.local == other.local
        and (not one.local or one.selector == other.selector)
    )


def clash(one: Service, other: Service) -> str:
    """Why two Services cannot share an address, "" if they can."""
    if can_share(one, other):
        return ""
    if not one.share or one.share != other.share or one.name.namespace != other.name.namespace:
        return (
            f"it is the address of {other.name}. Services of one namespace share an address if all have the annotation"
            f" {SHARE} with the same text."
        )
    if common := one.ports & other.ports:
        protocol, number = min(common)
        return f"it is shared with {other.name}, and both have port {number}/{protocol}. Change one of the two."
    return (
        f"it is shared with {other.name}, and with externalTrafficPolicy Local both need that policy and the same"
        " selector: one node announces the address for both."
    )


def _group(service: Service, family: int) -> tuple[str, str, int]:
    """Those that may share an address."""
    return service.name.namespace, service.share, family
