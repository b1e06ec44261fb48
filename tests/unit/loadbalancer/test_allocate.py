"""Which Service has which address."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadbalancer.model import Address, Service
from loadbalancer.plan.allocate import MOST_ADDRESSES, MOST_GIVEN, MOST_SHARING, Allocation, allocate, clash
from loadbalancer.plan.pool import parse
from loadbalancer.plan.table import LARGEST, table, to_text
from tests.builders.balanced import service

POOL = parse(["192.0.2.1-192.0.2.3"])
DUAL = parse(["192.0.2.1-192.0.2.3", "fd00::1-fd00::3"])
_BOTH = ["IPv4", "IPv6"]


@dataclass(frozen=True)
class Case:
    """`has`: name of a Service -> its addresses; `lacks`: name -> reason. `table`: address -> names before."""

    name: str
    services: tuple[Service, ...]
    has: dict[str, list[str]]
    lacks: dict[str, str] = field(default_factory=dict)
    table: dict[str, tuple[str, ...]] = field(default_factory=dict)
    pool: str = "192.0.2.1-192.0.2.3"


CASES = [
    Case("one", (service("x"),), {"x": ["192.0.2.1"]}),
    Case("oldest first", (service("y", created=2), service("x", created=1)), {"x": ["192.0.2.1"], "y": ["192.0.2.2"]}),
    Case("sticky by the table", (service("x"),), {"x": ["192.0.2.3"]}, table={"192.0.2.3": ("x",)}),
    Case("sticky by the status where the table is lost", (service("x", given=("192.0.2.2",)),), {"x": ["192.0.2.2"]}),
    Case(
        "two claim one address by their status",
        (service("x", created=2, given=("192.0.2.2",)), service("y", created=1, given=("192.0.2.2",))),
        {"y": ["192.0.2.2"], "x": ["192.0.2.1"]},
    ),
    Case(
        "the table is stronger than an older Service's status",
        (service("x", created=2), service("y", created=1, given=("192.0.2.2",))),
        {"x": ["192.0.2.2"], "y": ["192.0.2.1"]},
        table={"192.0.2.2": ("x",)},
    ),
    Case("an address outside of the pool is not kept", (service("x", given=("9.9.9.9",)),), {"x": ["192.0.2.1"]}),
    Case(
        "a full pool",
        tuple(service(f"x{number}", created=number) for number in range(4)),
        {"x0": ["192.0.2.1"], "x1": ["192.0.2.2"], "x2": ["192.0.2.3"]},
        {"x3": "PoolExhausted"},
    ),
    Case("a request", (service("x", ips="192.0.2.3"),), {"x": ["192.0.2.3"]}),
    Case(
        "a request comes before what is taken at random",
        (service("x", created=1), service("y", created=2, ips="192.0.2.1")),
        {"y": ["192.0.2.1"], "x": ["192.0.2.2"]},
    ),
    Case("a request outside of the pool", (service("x", ips="9.9.9.9"),), {}, {"x": "AddressOutsidePool"}),
    Case(
        "a request that is taken",
        (service("x", created=1), service("y", created=2, ips="192.0.2.1")),
        {"x": ["192.0.2.1"]},
        {"y": "AddressInUse"},
        {"192.0.2.1": ("x",)},
    ),
    Case(
        "a new request that is taken leaves the old address",
        (service("x", created=1), service("y", created=2, ips="192.0.2.1")),
        {"x": ["192.0.2.1"], "y": ["192.0.2.2"]},
        {"y": "AddressInUse"},
        {"192.0.2.1": ("x",), "192.0.2.2": ("y",)},
    ),
    Case(
        "a new request that is free moves the Service",
        (service("y", ips="192.0.2.3"),),
        {"y": ["192.0.2.3"]},
        table={"192.0.2.2": ("y",)},
    ),
    Case("a request that cannot be read", (service("x", ips="?"),), {}, {"x": "NoAddress"}),
    Case(
        "shared as asked",
        (service("x", share="k"), service("y", share="k", ports=(81,))),
        {"x": ["192.0.2.1"], "y": ["192.0.2.1"]},
    ),
    Case(
        "not shared where ports collide",
        (service("x", share="k"), service("y", share="k")),
        {"x": ["192.0.2.1"], "y": ["192.0.2.2"]},
    ),
    Case(
        "not shared across namespaces",
        (service("x", share="k"), service("y", share="k", ports=(81,), namespace="b")),
        {"x": ["192.0.2.1"], "y": ["192.0.2.2"]},
    ),
    Case(
        "one that comes to collide leaves the shared address",
        (service("x", share="k"), service("y", share="k")),
        {"x": ["192.0.2.1"], "y": ["192.0.2.2"]},
        table={"192.0.2.1": ("x", "y")},
    ),
    Case("another class", (service("x", loadBalancerClass="other"),), {}),
    Case(
        "both families",
        (service("x", ipFamilies=_BOTH, ipFamilyPolicy="RequireDualStack"),),
        {"x": ["192.0.2.1", "fd00::1"]},
        pool="192.0.2.1,fd00::1",
    ),
    Case(
        "IPv6 first",
        (service("x", ipFamilies=_BOTH[::-1], ipFamilyPolicy="RequireDualStack"),),
        {"x": ["fd00::1", "192.0.2.1"]},
        pool="192.0.2.1,fd00::1",
    ),
    Case(
        "both or none",
        (service("x", ipFamilies=_BOTH, ipFamilyPolicy="RequireDualStack"),),
        {},
        {"x": "NoPool"},
    ),
    Case(
        "one of two will do",
        (service("x", ipFamilies=_BOTH, ipFamilyPolicy="PreferDualStack"),),
        {"x": ["192.0.2.1"]},
    ),
    Case("no pool of this family", (service("x", ipFamilies=["IPv6"]),), {}, {"x": "NoPool"}),
]


def allocated(services: Iterable[Service], table: dict[str, tuple[str, ...]], pool: str) -> Allocation:
    before = {ip_address(one): tuple(f"uid-a-{name}" for name in names) for one, names in table.items()}
    return allocate(services, before, parse([pool]))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_addresses(case: Case) -> None:
    found = allocated(case.services, case.table, case.pool)
    has = {one.name.name: list(map(str, found.of(one))) for one in case.services if found.of(one)}
    assert has == case.has
    lacks = {one.name.name: found.problems[one.uid].reason for one in case.services if one.uid in found.problems}
    assert lacks == case.lacks
    assert all(len(problem.note) < 700 for problem in found.problems.values())


def test_a_policy_that_differs_or_another_selector_under_local_is_not_shared() -> None:
    local = service("x", share="k", externalTrafficPolicy="Local")
    assert "externalTrafficPolicy Local" in clash(local, service("y", share="k", ports=(81,)))
    other = service("y", share="k", ports=(81,), externalTrafficPolicy="Local")
    assert "same selector" in clash(local, other).replace("the same", "same")
    same = service("y", share="k", ports=(81,), externalTrafficPolicy="Local", selector={"app": "x"})
    assert clash(local, same) == ""


def test_the_number_of_addresses_is_bounded() -> None:
    services = [service(f"x{number}", namespace="abc"[number % 3]) for number in range(MOST_ADDRESSES + 1)]
    found = allocate(services, {}, parse(["fd00::/64", "10.0.0.0/16"]))
    assert len(found.owners) == MOST_ADDRESSES and len(found.problems) == 1


_NAMES = st.sampled_from("abcdef")
_WISHES = st.sampled_from(["", "", "192.0.2.1", "192.0.2.2", "9.9.9.9", "?"])
_KINDS = st.builds(
    lambda name, ips, share, port, policy, created: service(
        name, ips=ips, share=share, ports=(port,), externalTrafficPolicy=policy, created=created
    ),
    _NAMES,
    _WISHES,
    st.sampled_from(["", "k", "l"]),
    st.integers(80, 82),
    st.sampled_from(["Cluster", "Local"]),
    st.integers(0, 9),
)
_TABLES = st.dictionaries(
    st.sampled_from(["192.0.2.1", "192.0.2.2", "9.9.9.9"]), st.lists(_NAMES, max_size=3).map(tuple)
)


@settings(deadline=None)
@given(st.lists(_KINDS, max_size=6, unique_by=lambda one: one.uid), _TABLES)
def test_no_address_has_two_owners_that_cannot_share_it_and_what_is_given_stays(
    services: list[Service], table: dict[str, tuple[str, ...]]
) -> None:
    found = allocated(services, table, "192.0.2.1-192.0.2.3")
    for address, owners in found.owners.items():
        assert address in POOL
        for one in owners:
            assert all(clash(one, other) == "" for other in owners if other is not one)
            requested = next(iter(one.requested), None)
            assert requested in (None, address) or one.uid in found.problems
    for one in services:
        assert len(found.of(one)) <= 1
        assert found.of(one) or one.uid in found.problems
    rows = {address: tuple(one.uid for one in owners) for address, owners in found.owners.items()}
    for _ in range(3):  # what is given back in one round may be given to another one in the next
        again = allocate(services, rows, POOL)
        rows = {address: tuple(one.uid for one in owners) for address, owners in again.owners.items()}
    final = allocate(services, rows, POOL)
    assert {a: {o.uid for o in w} for a, w in final.owners.items()} == {a: set(uids) for a, uids in rows.items()}
    newcomer = service("z", created=0)
    with_one = allocate([*services, newcomer], rows, POOL)
    for one in services:
        assert final.of(one) == with_one.of(one), "a newcomer takes nobody's address"


MANY = parse(["10.0.0.1-10.0.3.232"])


def test_services_that_share_do_not_fill_the_table() -> None:
    """Whoever may write Services in one namespace must not make the table too large to be written, which all need."""
    many = [service(f"x{one}", namespace="abc"[one % 3], share="k", ports=(one + 1,)) for one in range(4000)]
    found = allocate(many, {}, MANY)
    assert max(map(len, found.owners.values())) <= MOST_SHARING
    assert sum(map(len, found.owners.values())) == MOST_GIVEN
    assert {one.reason for one in found.problems.values()} == {"TooManyServices"} and len(found.problems) == 1000
    nodes = dict.fromkeys(found.owners, "a-node-with-a-name-of-sixty-three-characters-as-clouds-have-them")
    # A UID has 36 characters, and the longest addresses are those of IPv6.
    longer = (36 - 4) * MOST_GIVEN + 20 * len(found.owners)
    assert len(to_text(table(found.owners, nodes))) + longer <= LARGEST
    again = allocate([one for owners in found.owners.values() for one in owners], _table(found), MANY)
    assert again.owners.keys() == found.owners.keys(), "those that have one keep it"


@pytest.mark.parametrize(("share", "most"), [("", MOST_ADDRESSES // 2), ("k", MOST_GIVEN // 2)])
def test_a_namespace_has_half_of_what_can_be_given(share: str, most: int) -> None:
    """It had all, and no Service of another namespace got an address."""
    many = [service(f"x{one}", share=share, ports=(one + 1,), created=1) for one in range(most + 10)]
    asks = service("z", ips="10.0.3.9", created=2)
    other = service("y", namespace="other", share=share, created=3)
    found = allocate([*many, asks, other], {}, MANY)
    assert sum(len(found.of(one)) for one in many) == most - 1 and found.of(asks) and found.of(other)
    assert {one.reason for one in found.problems.values()} == {"TooManyServices"}
    more = service("w", share=share, ports=(5000,), created=4)
    before = {**_table(found), ip_address("10.0.3.200"): (more.uid,)}
    again = allocate([*many, asks, other, more], before, MANY)
    assert [again.of(one) for one in many] == [found.of(one) for one in many] and again.of(more), "it keeps what it has"
    moved = replace(more, requested=(ip_address("10.0.3.201"),))
    assert allocate([*many, asks, other, moved], before, MANY).of(moved) == (ip_address("10.0.3.201"),)


def test_services_that_share_do_not_each_move_to_an_address_of_their_own() -> None:
    """So a namespace could have had three times its half."""
    many = [service(f"x{one}", share="k", ports=(one + 1,)) for one in range(MOST_GIVEN // 2)]
    found = allocate(many, {}, MANY)
    asking = [replace(one, requested=(ip_address("10.0.1.0") + at,)) for at, one in enumerate(many[:600])]
    again = allocate([*asking, *many[600:]], _table(found), MANY)
    assert len(again.owners) <= MOST_ADDRESSES // 2 and all(again.of(one) for one in many), "they keep what they have"
    assert {one.reason for one in again.problems.values()} == {"TooManyServices"}


def test_many_ports_and_many_addresses_are_soon_compared() -> None:
    """A thousand Services with a thousand ports each: compared with one another they took ten minutes."""
    ports = tuple(range(1, 1001))
    services = [service(f"x{one}", share="k", ports=ports) for one in range(400)]
    began = time.process_time()
    found = allocate(services, {}, parse(["10.0.0.1-10.0.0.200"]))
    assert time.process_time() - began < 5
    assert len(found.owners) == 200 and len(found.problems) == 200


def test_a_service_is_not_compared_with_each_owner_of_an_address() -> None:
    """With a thousand ports each, 500 Services took the loop of the leader four seconds with every change."""
    own = [tuple(range(1 + 100 * one, 100 + 100 * one)) for one in range(MOST_SHARING - 1)]
    sharing = [
        service(f"x{number}", share="k", created=number % 60, ports=(*ports, 65000) if ports is own[-1] else ports)
        for number, ports in enumerate(own * 4)
    ]
    others = [service(f"y{number}", share="k", ports=(*range(64000, 64099), 65000)) for number in range(700)]
    rows = {
        ip_address(f"192.0.2.{1 + at}"): tuple(one.uid for one in sharing[at * len(own) : (at + 1) * len(own)])
        for at in range(4)
    }
    compared: list[object] = []

    class Ports(frozenset[tuple[str, int]]):
        def isdisjoint(self, other: Iterable[Any], /) -> bool:
            compared.append(other)
            return super().isdisjoint(other)

    every = [replace(one, ports=Ports(one.ports)) for one in (*sharing, *others)]
    found = allocate(every, rows, parse(["192.0.2.1-192.0.2.4"]))
    assert [len(owners) for owners in found.owners.values()] == [len(own)] * 4
    assert len(found.problems) == len(others)
    assert len(compared) <= len(sharing) + 4 * len(others)


def test_a_requested_address_says_which_of_its_services_is_in_the_way() -> None:
    sharing = [service(f"x{number}", share="k", ports=(number + 1, number + 101)) for number in range(5)]
    rows = {ip_address("192.0.2.1"): tuple(one.uid for one in sharing)}
    wishes = [
        service("y", share="k", ports=(104, 300), ips="192.0.2.1"),
        service("z", share="other", ports=(4,), ips="192.0.2.1"),
    ]
    found = allocate([*sharing, *wishes], rows, POOL)
    notes = [found.problems[one.uid].note for one in wishes]
    assert "shared with a/x3, and both have port 104/TCP" in notes[0]
    assert "it is the address of a/x0" in notes[1]


def _table(found: Allocation) -> dict[Address, tuple[str, ...]]:
    return {address: tuple(one.uid for one in owners) for address, owners in found.owners.items()}
