"""Leases, elections, and what the leader writes, against an API that has versions and conflicts."""

from __future__ import annotations

import threading
from ipaddress import ip_address
from typing import Any

import pytest

from cli.explain.facts import Facts as EndpointFacts
from cli.explain.service_words import pending
from loadbalancer import leader
from loadbalancer.leader import FRESH, Leader
from loadbalancer.leases import LEADER, Election, Membership, holder, member
from loadbalancer.model import Address, Problem, Service
from loadbalancer.plan.index import Index
from loadbalancer.plan.liveness import Liveness
from loadbalancer.plan.place import Nodes
from loadbalancer.plan.pool import parse
from loadbalancer.plan.table import POOL
from nodelib.json_values import Json
from nodelib.kube.errors import ApiError, ApiUnreachable
from tests.builders.balanced import balanced
from tests.fakes.clock import FakeClock
from tests.fakes.lease_api import FakeObjects

FOLDER = "/leases"
NODES = Nodes(frozenset({"n1", "n2"}), True)


class Heard:
    """What the leader tells."""

    def __init__(self) -> None:
        self.problems: list[tuple[str, str]] = []
        self.addresses: list[tuple[str, tuple[Address, ...]]] = []

    def problem(self, service: Service, problem: Problem) -> None:
        self.problems.append((service.name.name, problem.reason))

    def given(self, service: Service, addresses: tuple[Address, ...]) -> None:
        self.addresses.append((service.name.name, addresses))

    def counted(self, taken: int, pending: int, moves: int) -> None:
        pass


class Lab:
    """A leader and its API. `sync()` is what the watches do."""

    def __init__(self, api: FakeObjects, name: str, pool: str = "192.0.2.1-192.0.2.2") -> None:
        self.api, self.heard, self.index = api, Heard(), Index()
        self.clock = FakeClock()
        self.leader = Leader(api, FOLDER, name, parse([pool]), self.index, self.heard, self.clock)
        self.leads = True

    def sync(self) -> None:
        for path, obj in self.api.objects.items():
            if "/services/" in path:
                self.index.service("MODIFIED", obj)
                self.leader.changed()
        if f"{FOLDER}/addresses" in self.api.objects:
            self.leader.observe(self.api.objects[f"{FOLDER}/addresses"])

    async def rounds(self, count: int = 3, term: int = 1, nodes: Nodes = NODES) -> None:
        for _ in range(count):
            self.sync()
            await self.leader.round(term, nodes, lambda: self.leads)


def put(api: FakeObjects, obj: Json) -> None:
    api.store(path(obj["metadata"]["name"]), obj)


def path(name: str) -> str:
    return f"/api/v1/namespaces/a/services/{name}"


def status(api: FakeObjects, name: str) -> list[str]:
    ingress = (api.objects[path(name)]["status"].get("loadBalancer") or {}).get("ingress") or []
    assert all(one["ipMode"] == "VIP" for one in ingress)
    return [one["ip"] for one in ingress]


@pytest.fixture
def api() -> FakeObjects:
    return FakeObjects()


async def test_many_ports_are_planned_beside_the_loop(api: FakeObjects, monkeypatch: pytest.MonkeyPatch) -> None:
    beside: list[bool] = []
    decide = leader._decide

    def decided(*given: Any) -> Any:
        beside.append(threading.current_thread() is not threading.main_thread())
        return decide(*given)

    monkeypatch.setattr(leader, "_decide", decided)
    lab = Lab(api, "l1")
    put(api, balanced("x"))
    await lab.rounds(1)
    for number in range(30):
        put(api, balanced(f"y{number}", ports=tuple(range(1, 1001))))
    await lab.rounds(1)
    assert beside == [False, True]


async def test_an_address_is_in_the_table_before_it_is_in_the_status(api: FakeObjects) -> None:
    put(api, balanced("x"))
    order: list[str] = []
    api.before = lambda verb, where: order.append(where)
    lab = Lab(api, "l1")
    await lab.rounds()
    assert order == [f"{FOLDER}/addresses", f"{path('x')}/status"]
    assert status(api, "x") == ["192.0.2.1"] and lab.heard.addresses == [("x", (ip_address("192.0.2.1"),))]


async def test_a_full_pool_is_told_once_and_served_when_there_is_room(api: FakeObjects) -> None:
    for name in ("x", "y", "z"):
        put(api, balanced(name))
    lab = Lab(api, "l1")
    await lab.rounds()
    assert lab.heard.problems == [("z", "PoolExhausted")] and status(api, "z") == []
    lab.index.service("DELETED", api.objects.pop(path("x")))
    await lab.rounds()
    assert status(api, "z") == ["192.0.2.1"] and len(lab.heard.problems) == 1


async def test_a_deposed_leader_that_does_not_know_it_gives_nothing_away(api: FakeObjects) -> None:
    """Two Services made in one moment, each seen first by one of two daemons that both believe to lead."""
    old, new = Lab(api, "old"), Lab(api, "new")
    put(api, balanced("x"))
    await old.rounds()
    put(api, balanced("y", created=1))
    new.sync()
    put(api, balanced("z", created=2))
    old.sync()
    api.store(path("y"), api.objects[path("y")])
    await new.leader.round(1, NODES, lambda: True)
    stale = old.leader
    with pytest.raises(ApiError):
        await stale.round(1, NODES, lambda: True)
    given = [one for name in ("x", "y", "z") for one in status(api, name)]
    assert len(given) == len(set(given))


async def test_a_new_leader_keeps_what_the_table_has(api: FakeObjects) -> None:
    for name in ("x", "y"):
        put(api, balanced(name))
    await Lab(api, "l1").rounds()
    before = {name: status(api, name) for name in ("x", "y")}
    api.objects[path("x")]["metadata"]["creationTimestamp"] = "2027-01-01T00:00:00Z"
    api.objects[path("x")]["status"] = {}
    await Lab(api, "l2").rounds()
    assert {name: status(api, name) for name in ("x", "y")} == before


async def test_a_status_that_was_changed_meanwhile_is_written_in_the_next_round(api: FakeObjects) -> None:
    put(api, balanced("x"))
    lab = Lab(api, "l1")
    lab.sync()
    put(api, {**balanced("x"), "other": 1})
    await lab.leader.round(1, NODES, lambda: True)
    assert status(api, "x") == []
    await lab.rounds()
    assert status(api, "x") == ["192.0.2.1"]


async def test_the_address_goes_when_the_service_is_ours_no_more_and_others_are_left_alone(api: FakeObjects) -> None:
    put(api, balanced("x"))
    put(api, balanced("foreign", loadBalancerClass="example.com/x", given=("192.0.2.9",)))
    lab = Lab(api, "l1")
    await lab.rounds()
    api.objects[path("x")]["spec"]["loadBalancerClass"] = "example.com/x"
    await lab.rounds()
    assert status(api, "x") == [] and status(api, "foreign") == ["192.0.2.9"]


async def test_nothing_is_written_when_nothing_changes(api: FakeObjects) -> None:
    put(api, balanced("x"))
    lab = Lab(api, "l1")
    await lab.rounds(5)
    version = api.version
    await lab.rounds(5)
    assert api.version == version


async def test_one_that_leads_no_more_writes_nothing(api: FakeObjects) -> None:
    put(api, balanced("x"))
    lab = Lab(api, "l1")
    lab.leads = False
    await lab.rounds()
    assert status(api, "x") == [] and f"{FOLDER}/addresses" not in api.objects


def endpoints(*nodes: str) -> Json:
    """The EndpointSlice of Service x, with an endpoint on each of these nodes."""
    meta = {"name": "x-1", "namespace": "a", "labels": {"kubernetes.io/service-name": "x"}}
    return {"metadata": meta, "endpoints": [{"nodeName": one} for one in nodes]}


async def test_an_address_follows_the_pods_at_first_and_stays_then(api: FakeObjects) -> None:
    put(api, balanced("x", externalTrafficPolicy="Local"))
    lab = Lab(api, "l1")

    async def ready(*nodes: str) -> str:
        lab.index.slice("MODIFIED", endpoints(*nodes))
        await lab.rounds()
        return lab.leader.table.rows[ip_address("192.0.2.1")].node

    assert await ready() == ""
    await lab.clock.advance(60)
    assert await ready("n1") == "n1"
    assert await ready("n1", "n2", "n2") == "n2"
    await lab.clock.advance(FRESH - 1)
    assert await ready("n1", "n1", "n1", "n2", "n2") == "n1", "a move does not begin the time anew"
    await lab.clock.advance(1)
    assert await ready("n1", "n2", "n2", "n2") == "n1"
    assert await ready("n2") == "n2"
    assert await ready("n1", "n1", "n2") == "n2", "it was not without a node in between"


class Voter:
    """A daemon's Leases. `see()` is what its watch does."""

    def __init__(self, api: FakeObjects, name: str, clock: FakeClock) -> None:
        self.name, self.api, self.clock = name, api, clock
        self.liveness = Liveness(member(name), 2.0)
        self.membership = Membership(api, FOLDER, name, clock)
        self.membership.set(busy=True, able=True)
        self.election = Election(api, FOLDER, f"{name}_x", self.liveness, clock)

    async def live(self) -> None:
        await self.membership.renew()
        self.see()
        try:
            await self.election.step(busy=True)
        except ApiError:
            pass
        self.see()

    def see(self) -> None:
        for where, obj in self.api.objects.items():
            name = where.rpartition("/")[2]
            self.liveness.observe(name, obj["metadata"]["resourceVersion"], self.clock.monotonic())
            if name == LEADER:
                self.election.observe(obj)


async def test_there_is_one_leader_and_another_one_two_seconds_after_it_died(api: FakeObjects) -> None:
    clock = FakeClock()
    voters = [Voter(api, name, clock) for name in ("n1", "n2", "n3")]
    for _ in range(10):
        for one in voters:
            await one.live()
        assert sum(one.election.leads for one in voters) == 1
        clock.step(-3600)  # the wall clock says nothing
        await clock.advance(0.5)
    dead = next(one for one in voters if one.election.leads)
    left = [one for one in voters if one is not dead]
    waited = 0.0
    while not any(one.election.leads for one in left):
        for one in left:
            await one.live()
        await clock.advance(0.25)
        waited += 0.25
        assert waited < 3
    assert not dead.election.leads, "it stopped before others began"
    assert sum(one.election.leads for one in left) == 1


async def test_without_the_api_server_there_is_no_leader_and_nobody_is_dead(api: FakeObjects) -> None:
    clock = FakeClock()
    voters = [Voter(api, name, clock) for name in ("n1", "n2")]
    for _ in range(8):
        for one in voters:
            await one.live()
        await clock.advance(0.5)
    api.down = True
    await clock.advance(30)
    for one in voters:
        with pytest.raises(ApiUnreachable):
            await one.membership.renew()
        assert not one.election.leads and not one.liveness.fresh(clock.monotonic())
    api.down = False
    await voters[0].live()
    now = clock.monotonic()
    assert voters[0].liveness.fresh(now) and not voters[0].liveness.sure(now)
    assert not voters[0].liveness.expired(member("n2"), now)


async def test_a_lease_that_somebody_deleted_is_made_again_and_one_who_may_not_announce_says_so(
    api: FakeObjects,
) -> None:
    one = Membership(api, FOLDER, "n1", FakeClock())
    one.set(busy=True, able=True)
    await one.renew()
    api.objects.clear()
    await one.renew()
    assert holder(api.objects[f"{FOLDER}/node-n1"]) == "n1"
    one.of_node("uid-1")
    await one.renew()
    owners = api.objects[f"{FOLDER}/node-n1"]["metadata"]["ownerReferences"]
    assert [(own["kind"], own["uid"]) for own in owners] == [("Node", "uid-1")], "it goes with its Node"
    one.set(busy=True, able=False)
    await one.renew()
    assert holder(api.objects[f"{FOLDER}/node-n1"]) == ""


async def test_the_pool_is_known_also_when_nobody_can_have_an_address_of_it(api: FakeObjects) -> None:
    """`why` and `service` judge by it that a Service asks for an address that is not there."""
    lab = Lab(api, "l1")
    await lab.rounds()
    assert api.objects == {}, "without a Service there is nothing to say"
    put(api, balanced("z", ips="9.9.9.9"))
    await lab.rounds()
    lease = api.objects[f"{FOLDER}/addresses"]
    assert lease["metadata"]["annotations"][POOL] == "192.0.2.1-192.0.2.2"
    seen = EndpointFacts.of([api.objects[path("z")]], [], [], [], leases=[lease])
    (problem,) = pending(api.objects[path("z")], seen)
    assert "9.9.9.9 is requested and is not in the pool 192.0.2.1-192.0.2.2" in problem.text
    before = lease["metadata"]["resourceVersion"]
    await lab.rounds()
    assert api.objects[f"{FOLDER}/addresses"]["metadata"]["resourceVersion"] == before, "it is written once"
    other = Lab(api, "l2", "192.0.2.7")
    await other.rounds(term=2)
    assert api.objects[f"{FOLDER}/addresses"]["metadata"]["annotations"][POOL] == "192.0.2.7"
