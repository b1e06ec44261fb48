"""The nftables mode: transactions touch only what changes, any history ends in the same elements."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodelib.firewall.objects import Family
from nodelib.json_values import Json
from nodelib.nft.wire import Element, ranged, valued
from proxy.backends import nftables
from proxy.backends.base import SyncReport
from proxy.backends.context import NodeContext
from proxy.backends.nftables import NftablesBackend
from proxy.plan.nftables import layout
from proxy.plan.nftables.affinity import losing_frontends, stale_clients
from proxy.plan.nftables.ports import Frontend, frontend_key
from proxy.plan.nftables.sync import AppliedState, Delta, plan
from proxy.plan.tracker import Tracker
from tests.builders.services import endpoint_slice, service
from tests.fakes.clock import settle
from tests.fakes.fake_nft import FakeNft
from tests.golden.proxy.text import element_text
from tests.unit.proxy.build import CONTEXT, HERE, NODE_IP, desired
from tests.unit.proxy.histories import Step, histories, replay

NFT = replace(CONTEXT, node_port_ips=(NODE_IP,))


class World:
    """A tracker, a backend and a fake, synced step by step."""

    def __init__(self, fake: FakeNft | None = None) -> None:
        self.fake = fake or FakeNft()
        self.tracker = Tracker(Family.IPV4, HERE, 0.0)
        self.backend = NftablesBackend(self.fake, NodeContext(NFT))
        self.started = False

    async def put(self, *objects: Json, gone: bool = False) -> SyncReport:
        for obj in objects:
            (self.tracker.endpoint_slice if "endpoints" in obj else self.tracker.service)(obj, gone=gone)
        taken = self.tracker.take()
        report = await self.backend.sync(taken.desired, taken.ports if self.started else None)
        self.started = True
        return report

    def fresh(self) -> dict[str, set[bytes]]:
        applied = AppliedState()
        applied.commit(plan(self.tracker.current(), None, NFT, applied))
        return applied.expected()

    def held(self) -> dict[str, set[bytes]]:
        return {name: set(self.fake.sets[name].values()) for name in layout.FILLED}

    def shows(self, name: str) -> list[str]:
        return sorted(element_text(name, raw, Family.IPV4) for raw in self.fake.sets[name].values())


def texts(elements: list[Element]) -> list[str]:
    return sorted(f"{one.set} {element_text(one.set, one.raw, Family.IPV4)}" for one in elements)


async def test_a_change_touches_only_its_own_elements() -> None:
    world = World()
    many = [service(f"s{number}", f"172.30.1.{number}") for number in range(40)]
    await world.put(*many, *[endpoint_slice(f"s{number}", ["10.1.0.1", "10.1.0.2"]) for number in range(40)])
    await world.put(endpoint_slice("s7", ["10.1.0.1", "10.1.0.3"]))
    delete, add, rules = world.fake.writes[-1]
    assert texts(delete) == ["endpoints 172.30.1.7 . tcp . 80 . 1 : 10.1.0.2 . 80"]
    assert texts(add) == ["endpoints 172.30.1.7 . tcp . 80 . 1 : 10.1.0.3 . 80"]
    assert not rules, "the chain for two endpoints is there"
    await world.put(endpoint_slice("s7", ["10.1.0.1", "10.1.0.3", "10.1.0.4"]))
    delete, add, rules = world.fake.writes[-1]
    assert texts(delete) == ["service-ips 172.30.1.7 . tcp . 80 : goto pick-2"] and len(rules) == 3
    assert texts(add) == [
        "endpoints 172.30.1.7 . tcp . 80 . 2 : 10.1.0.4 . 80",
        "service-ips 172.30.1.7 . tcp . 80 : goto pick-3",
    ]
    count = len(world.fake.writes)
    await world.put(service("s7", "172.30.1.7"))
    assert len(world.fake.writes) == count, "nothing that rules depend on has changed"


async def test_what_takes_long_is_planned_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """One port may have thousands of addresses and endpoints: planned on the loop they held it for seconds."""
    beside: list[bool] = []

    def planned(*given: Any) -> Delta:
        beside.append(threading.current_thread() is not threading.main_thread())
        return plan(*given)

    world = World()
    await world.put(service("a", "172.30.0.1"))
    monkeypatch.setattr(nftables, "plan", planned)
    many = [f"20.0.{number >> 8}.{number & 255}" for number in range(2000)]
    await world.put(endpoint_slice("a", ["10.1.0.1"]))
    await world.put(service("a", "172.30.0.1", externalIPs=many))
    await world.put(service("a", "172.30.0.1"))
    await world.put(endpoint_slice("a", ["10.1.0.2"]))
    assert beside == [False, True, True, False], "a little, many addresses, the same ones that go, and a little"


async def test_chains_that_nothing_leads_to_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """One Service whose affinity lasts ever longer left a chain for each second, and all are read in each audit."""
    monkeypatch.setattr(nftables, "_FEW_CHAINS", 8)
    world = World()

    async def lasting(*seconds: int) -> None:
        for one in seconds:
            last: Json = {"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": one}}}
            await world.put(service("a", "172.30.0.1", externalIPs=["1.2.3.4"], sessionAffinity="ClientIP", **last))

    def remembering() -> set[str]:
        return {name for name in world.fake.chains if name.startswith("remember-")}

    await world.put(endpoint_slice("a", ["10.1.0.1", "10.1.0.2"]), service("b", "172.30.0.2", externalIPs=["1.2.3.5"]))
    await world.put(endpoint_slice("b", ["10.1.0.3"]))
    await lasting(*range(1, 30))
    assert len(remembering()) < 12 and "remember-29" in remembering()
    assert {
        "external-sticky-pick-2",
        "sticky-pick-2",
        "pick-2",
        "external-pick-1",
        "pick-1",
    } <= world.fake.chains.keys()
    await world.put(service("a", "172.30.0.1"), gone=True)
    assert await world.backend.audit(deep=True) == []
    again = World(world.fake)
    await again.put(service("b", "172.30.0.2"), endpoint_slice("b", ["10.1.0.3"]))
    assert not remembering() and "pick-2" not in world.fake.chains and "pick-1" in world.fake.chains
    assert await again.backend.audit(deep=True) == []


async def test_a_restart_over_a_standing_table_writes_no_element() -> None:
    world = World()
    objects = [service("a", "172.30.0.1"), endpoint_slice("a", ["10.1.0.1"]), service("b", "172.30.0.2")]
    await world.put(*objects)
    again = World(world.fake)
    await again.put(*objects)
    delete, add, rules = world.fake.writes[-1]
    assert (delete, add) == ([], []) and rules
    assert await again.backend.audit(deep=True) == []


async def test_two_services_at_one_address_the_first_keeps_it_and_the_second_waits() -> None:
    world = World()
    await world.put(service("a", "172.30.0.1", externalIPs=["1.2.3.4"]), endpoint_slice("a", ["10.1.0.1"]))
    second = service("b", "172.30.0.2", externalIPs=["1.2.3.4"])
    report = await world.put(second, endpoint_slice("b", ["10.1.0.2", "10.1.0.3"]))
    said = [(problem.obj, problem.message) for problem in report.problems]
    assert said == [
        ("Service ns/b:p80", "1.2.3.4:80/TCP is served by Service ns/a:p80 already: waiting until that one is gone")
    ]
    assert "1.2.3.4 . tcp . 80 : goto external-pick-1" in world.shows(layout.SERVICES)
    assert "172.30.0.2 . tcp . 80 : goto pick-2" in world.shows(layout.SERVICES), "everything else of it is served"
    await world.put(service("a", "172.30.0.1"))
    assert "1.2.3.4 . tcp . 80 : goto external-pick-2" in world.shows(layout.SERVICES)
    await world.put(second, gone=True)
    assert not any("1.2.3.4" in text for text in world.shows(layout.SERVICES))


async def test_those_who_wait_are_not_planned_again() -> None:
    """2,000 Services of 2.5 KB with the same hundred external IPs: a change of one took the proxy's loop 2.7 s."""
    world = World()
    same = [f"192.0.2.{number}" for number in range(1, 41)]
    waiting = [service(f"w{number:03}", f"172.30.1.{number}", externalIPs=same) for number in range(1, 201)]
    await world.put(service("a", "172.30.0.1", externalIPs=same), endpoint_slice("a", ["10.1.0.1"]), *waiting)
    for changed, expected in ((waiting[7], 40), (service("a", "172.30.0.1", externalIPs=same), 0)):
        changed["spec"]["sessionAffinity"] = "ClientIP"
        report = await world.put(changed)
        assert len(report.problems) == expected, "only of what has changed"
    report = await world.put(service("a", "172.30.0.1", externalIPs=same[1:]))
    assert not report.problems
    owners = world.backend._applied.owner if world.backend._applied else {}
    assert {str(one): owners[one].service.name for one in owners if one.address in same[:2]} == {
        "192.0.2.1:80/TCP": "w001",
        "192.0.2.2:80/TCP": "a",
    }
    assert world.held() == world.fresh()
    await world.put(waiting[0], gone=True)
    await world.put(service("a", "172.30.0.1", externalIPs=same))
    assert owners_of(world, same[0]) == "w002", "who has it keeps it"
    await world.put(service("a", "172.30.0.1"), gone=True)
    assert {owners_of(world, one) for one in same} == {"w002"}
    assert world.held() == world.fresh()


def owners_of(world: World, address: str) -> str:
    """Which Service has the address."""
    assert world.backend._applied is not None
    return next(name.service.name for at, name in world.backend._applied.owner.items() if at.address == address)


async def test_a_free_address_goes_to_the_first_by_name_changed_or_not() -> None:
    world = World()
    one = ["192.0.2.1"]
    many = {name: service(name, f"172.30.0.{number}", externalIPs=one) for number, name in enumerate("abcd", 1)}
    await world.put(many["b"])
    await world.put(many["c"], many["d"])
    assert owners_of(world, one[0]) == "b"
    many["d"]["spec"]["sessionAffinity"] = "ClientIP"
    world.tracker.service(many["b"], gone=True)
    await world.put(many["d"])
    assert owners_of(world, one[0]) == "c", "it waited as well, and has not changed"
    world.tracker.service(many["c"], gone=True)
    await world.put(many["a"])
    assert owners_of(world, one[0]) == "a"
    assert world.held() == world.fresh()


async def test_who_has_an_address_keeps_it_whatever_else_it_waits_for() -> None:
    """A Service that waited for one of its addresses lost the others to the first by name that asked for them."""
    world = World()
    both = ["192.168.99.1", "192.168.99.2"]
    await world.put(service("a", "172.30.0.1", externalIPs=both[:1]))
    await world.put(service("victim", "172.30.0.9", externalIPs=both))
    await world.put(service("b", "172.30.0.2", externalIPs=both[1:]), endpoint_slice("victim", ["10.1.0.1"]))
    assert owners_of(world, both[1]) == "victim"
    await world.put(service("victim", "172.30.0.9", externalIPs=both[:1]))
    assert owners_of(world, both[1]) == "b"


async def test_drift_is_named_and_mended() -> None:
    world = World()
    await world.put(service("a", "172.30.0.1"), endpoint_slice("a", ["10.1.0.1"]))
    assert await world.backend.audit(deep=True) == []
    world.fake.sets[layout.ENDPOINTS].clear()
    assert await world.backend.audit(deep=False) == []
    assert await world.backend.audit(deep=True) == ["0 elements too many, 1 missing in endpoints"]
    world.fake.chains["services"].clear()
    assert await world.backend.audit(deep=False) == ["the rules of table nodewright-proxy are not ours any more"]
    await world.backend.sync(world.tracker.current(), None)
    assert await world.backend.audit(deep=True) == [] and world.held() == world.fresh()
    await world.backend.cleanup()
    assert not world.fake.there


async def test_a_sticky_client_forgets_an_endpoint_that_is_gone() -> None:
    world = World()
    await world.put(
        service("a", "172.30.0.1", sessionAffinity="ClientIP"), endpoint_slice("a", ["10.1.0.1", "10.1.0.2"])
    )
    key = frontend_key(Frontend("172.30.0.1", 80, "TCP"))
    clients = {number: key + bytes((10, 2, 0, number)) for number in (1, 2)}
    for number, client in clients.items():
        raw = valued(client, bytes((10, 1, 0, number, 0, 80, 0, 0)))
        world.fake.sets.setdefault(layout.AFFINITY, {})[client] = raw
    await world.put(endpoint_slice("a", ["10.1.0.2"]))
    await world.backend.forget_clients()
    assert set(world.fake.sets[layout.AFFINITY]) == {clients[2]}
    assert stale_clients(None, {}, {}, [valued(clients[1], bytes(8))]), "a Service that is gone has no clients"
    assert not stale_clients([], {}, {}, [valued(clients[1], bytes(8))]), "another Service's"


def test_source_ranges_that_overlap_are_one() -> None:
    obj = service(
        "lb",
        "172.30.0.1",
        type="LoadBalancer",
        lb=["1.2.3.4"],
        loadBalancerSourceRanges=["10.0.0.0/8", "10.1.0.0/16", "192.0.2.7/32"],
    )
    applied = AppliedState()
    applied.commit(plan(desired(obj, endpoint_slice("lb", ["10.1.0.1"])), None, NFT, applied))
    key = frontend_key(Frontend("1.2.3.4", 80, "TCP"))
    assert applied.expected()[layout.RANGES] == {
        ranged(key + bytes((10, 0, 0, 0)), key + bytes((10, 255, 255, 255))),
        ranged(key + bytes((192, 0, 2, 7)), key + bytes((192, 0, 2, 7))),
    }


@settings(max_examples=60, deadline=None)
@given(histories, st.integers(0, 1 << 30))
async def test_any_way_to_a_state_ends_in_the_same_elements(history: list[Step], seed: int) -> None:
    world = World()
    await replay(history, seed, world, world.fake)
    assert world.held() == world.fresh()
    assert await world.backend.audit(deep=True) == []


class SlowClients(FakeNft):
    """Reading the clients waits for `go_on`, as reading a quarter of a million does; `expired`: gone meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = asyncio.Event()
        self.expired: set[bytes] = set()

    async def elements(self, sets: Iterable[str]) -> dict[str, set[bytes]] | None:
        names = list(sets)
        found = await super().elements(names)
        if names == [layout.AFFINITY]:
            await self.go_on.wait()
            for key in self.expired:
                del self.sets[layout.AFFINITY][key]
        return found


def sticky(name: str, address: str, endpoints: list[str]) -> tuple[Json, Json]:
    return service(name, address, sessionAffinity="ClientIP"), endpoint_slice(name, endpoints)


async def test_the_clients_of_others_hold_up_no_rules() -> None:
    """A namespace has 90,000 sticky ports: a client of each kept the loop for 1.3 s and all rules for 1.8 s whenever
    any Service with affinity lost an endpoint."""
    world = World(fake := SlowClients())
    fake.go_on.set()
    await world.put(*sticky("a", "172.30.0.1", ["10.1.0.1", "10.1.0.2"]))
    keys = [frontend_key(Frontend("172.30.0.1", 80, "TCP")) + bytes((10, 2, one >> 8, one & 255)) for one in range(999)]
    fake.sets[layout.AFFINITY] = {key: valued(key, bytes((10, 1, 0, 1, 0, 80, 0, 0))) for key in keys}
    other = frontend_key(Frontend("172.30.0.9", 80, "TCP")) + bytes((10, 2, 0, 1))
    fake.sets[layout.AFFINITY][other] = valued(other, bytes((10, 1, 0, 9, 0, 80, 0, 0)))
    await world.backend.forget_clients()  # those of the first sync: all but these are of no Service
    assert set(fake.sets[layout.AFFINITY]) == set(keys)
    fake.sets[layout.AFFINITY][other] = valued(other, bytes((10, 1, 0, 9, 0, 80, 0, 0)))
    fake.go_on.clear()
    async with asyncio.timeout(10):
        await world.put(endpoint_slice("a", ["10.1.0.2"]))
        forgetting = asyncio.create_task(world.backend.forget_clients())
        await settle()
        await world.put(*sticky("b", "172.30.0.2", ["10.1.0.3"]))  # not kept waiting
    before = len(fake.writes)
    fake.expired = {keys[5], keys[700]}
    fake.go_on.set()
    await forgetting
    assert set(fake.sets[layout.AFFINITY]) == {other}, "what is of no port that lost an endpoint is not looked at"
    assert len(fake.writes) - before <= 3, "not one transaction for each client"


async def test_a_client_that_has_another_endpoint_by_now_keeps_it() -> None:
    world = World(fake := SlowClients())
    await world.put(*sticky("a", "172.30.0.1", ["10.1.0.1", "10.1.0.2"]))
    keys = [frontend_key(Frontend("172.30.0.1", 80, "TCP")) + bytes((10, 2, 0, one)) for one in range(9)]
    fake.sets[layout.AFFINITY] = {key: valued(key, bytes((10, 1, 0, 1, 0, 80, 0, 0))) for key in keys}
    await world.put(endpoint_slice("a", ["10.1.0.2"]))
    forgetting = asyncio.create_task(world.backend.forget_clients())
    await settle()
    fake.sets[layout.AFFINITY][keys[4]] = valued(keys[4], bytes((10, 1, 0, 2, 0, 80, 0, 0)))
    fake.go_on.set()
    await forgetting
    assert set(fake.sets[layout.AFFINITY]) == {keys[4]}


async def test_clients_are_read_beside_the_transactions_of_rules() -> None:
    """A table takes one request after the other: a rule waited 0.75 s for 90,000 clients to be read."""
    world, beside = World(), SlowClients()
    world.backend = NftablesBackend(world.fake, NodeContext(NFT), beside=beside)
    await world.put(*sticky("a", "172.30.0.1", ["10.1.0.1"]))
    await beside.text(layout.table_text(NFT))
    key = frontend_key(Frontend("172.30.0.1", 80, "TCP")) + bytes((10, 2, 0, 1))
    beside.sets[layout.AFFINITY] = {key: valued(key, bytes((10, 1, 0, 9, 0, 80, 0, 0)))}
    beside.go_on.set()
    before = len(world.fake.writes)
    await world.backend.forget_clients()
    assert not beside.sets[layout.AFFINITY] and len(world.fake.writes) == before


class SlowTable(FakeNft):
    """Reading all elements takes as long as it is told."""

    def __init__(self, of: FakeNft) -> None:
        super().__init__()
        self.of, self.reading, self.go_on = of, asyncio.Event(), asyncio.Event()

    async def elements(self, sets: Iterable[str]) -> dict[str, set[bytes]] | None:
        found = await self.of.elements(sets)
        self.reading.set()
        await self.go_on.wait()
        return found

    async def rules_digest(self) -> str:
        return await self.of.rules_digest()


async def test_no_rule_waits_until_all_of_them_have_been_read() -> None:
    """400,000 endpoints of a namespace: 7 to 9 s, after each commit of anybody to nftables."""
    world = World()
    slow = SlowTable(world.fake)
    world.backend = NftablesBackend(world.fake, NodeContext(NFT), beside=slow)
    await world.put(*sticky("a", "172.30.0.1", ["10.1.0.1"]))
    looking = asyncio.create_task(world.backend.audit(deep=True))
    async with asyncio.timeout(10):
        await slow.reading.wait()
        await world.put(*sticky("b", "172.30.0.2", ["10.1.0.3"]))
    slow.go_on.set()
    await looking  # what it says is of other rules
    assert await world.backend.audit(deep=True) == []
    world.fake.sets[layout.ENDPOINTS].popitem()
    assert "1 missing" in str(await world.backend.audit(deep=True))


def client(world: World, at: str, number: int, endpoint: int) -> bytes:
    """The kernel remembers that client of a Service's address with the endpoint 10.1.0.`endpoint`."""
    key = frontend_key(Frontend(at, 80, "TCP")) + bytes((10, 2, 0, number))
    world.fake.sets.setdefault(layout.AFFINITY, {})[key] = valued(key, bytes((10, 1, 0, endpoint, 0, 80, 0, 0)))
    return key


async def test_a_service_does_not_inherit_the_clients_of_another() -> None:
    """Its address and port may be another Service's next: its clients were sent to endpoints that are not its own."""
    world = World()
    at = "172.30.0.1"
    await world.put(*sticky("a", at, ["10.1.0.1", "10.1.0.2"]), service("waits", at, sessionAffinity="ClientIP"))
    await world.put(endpoint_slice("waits", ["10.1.0.2"]))
    await world.backend.forget_clients()
    client(world, at, 1, endpoint=1)
    kept = client(world, at, 2, endpoint=2)
    await world.put(service("a", at), gone=True)
    await world.backend.forget_clients()
    assert set(world.fake.sets[layout.AFFINITY]) == {kept}, "it waited for the address, and has that endpoint, too"
    await world.put(service("waits", at), gone=True)
    await world.backend.forget_clients()
    assert not world.fake.sets[layout.AFFINITY], "nobody's"
    await world.put(*sticky("b", at, ["10.1.0.3"]))
    client(world, at, 3, endpoint=3)
    await world.put(service("b", at))
    await world.backend.forget_clients()
    assert not world.fake.sets[layout.AFFINITY], "without affinity its endpoints change unseen"


async def test_an_endpoint_more_loses_no_client() -> None:
    """They are sorted, so that others get other places; reading all clients costs seconds."""
    world = World(fake := SlowClients())  # nobody lets it go on
    await world.put(*sticky("a", "172.30.0.1", ["10.1.0.2", "10.1.0.3"]))
    fake.go_on.set()
    await world.backend.forget_clients()
    fake.go_on.clear()
    await world.put(endpoint_slice("a", ["10.1.0.1", "10.1.0.2", "10.1.0.3"]))
    async with asyncio.timeout(10):
        await world.backend.forget_clients()


async def test_clients_of_a_map_that_is_full_are_forgotten() -> None:
    """One that has expired cannot be added again, so as to be deleted: none was forgotten."""

    class Full(SlowClients):
        async def write(self, delete: Any, add: Any, *, rules: Any = (), atomic: bool = True) -> None:
            keys = {one.key for one in delete if one.set == layout.AFFINITY}
            if not keys <= self.sets.get(layout.AFFINITY, {}).keys():
                raise self._refused(errno.ENFILE, "full")
            await super().write(delete, add, rules=rules, atomic=atomic)

    world = World(fake := Full())
    fake.go_on.set()
    await world.put(*sticky("a", "172.30.0.1", ["10.1.0.1", "10.1.0.2"]))
    keys = [client(world, "172.30.0.1", one, endpoint=1) for one in range(50)]
    await world.put(endpoint_slice("a", ["10.1.0.2"]))
    fake.expired = {keys[7]}
    await world.backend.forget_clients()
    assert not fake.sets[layout.AFFINITY]


async def test_what_a_failure_leaves_is_known_after_a_sync_that_took_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a thread looked at a large change, the failure was forgotten, and the clients with it."""
    monkeypatch.setattr(nftables, "_FEW_FRONTENDS", 0)
    world = World(fake := SlowClients())
    await world.put(*sticky("a", "172.30.0.1", ["10.1.0.1", "10.1.0.2"]))
    fake.go_on.set()
    await world.backend.forget_clients()
    client(world, "172.30.0.1", 1, endpoint=1)
    await world.put(endpoint_slice("a", ["10.1.0.2"]))
    fake.go_on.clear()
    forgetting = asyncio.create_task(world.backend.forget_clients())
    await settle()
    loop = asyncio.get_running_loop()

    async def fail() -> None:
        fake.expired = {b"not there"}
        fake.go_on.set()
        with pytest.raises(KeyError):
            await forgetting

    def slow(*given: Any) -> set[Frontend]:
        asyncio.run_coroutine_threadsafe(fail(), loop).result(30)
        return losing_frontends(*given)

    monkeypatch.setattr("proxy.backends.nftables.losing_frontends", slow)
    await world.put(*sticky("b", "172.30.0.2", ["10.1.0.3"]))
    assert forgetting.done()
    fake.expired = set()
    await world.backend.forget_clients()
    assert not fake.sets[layout.AFFINITY]
