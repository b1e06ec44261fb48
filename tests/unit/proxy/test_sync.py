"""What is written when: partial syncs, order, groups; and that any way to a state ends in the same rules."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodelib.errors import NodewrightError
from nodelib.firewall.objects import Family, rule
from nodelib.json_values import Json
from proxy.backends.context import NodeContext
from proxy.backends.iptables import IptablesBackend
from proxy.plan.context import LOCALHOST_COUNTER, Context
from proxy.plan.iptables.sync import GROUP_CHAINS, Plan, plan_partial
from proxy.plan.tracker import Tracker
from tests.builders.services import endpoint, endpoint_slice, service
from tests.fakes.fake_iptables import FakeIptables
from tests.unit.proxy.build import CONTEXT, HERE, desired, installed, plan_full
from tests.unit.proxy.histories import Step, histories, replay


class World:
    """A tracker, a backend and a fake, synced step by step."""

    def __init__(self, fake: FakeIptables | None = None) -> None:
        self.fake = fake or FakeIptables()
        self.tracker = Tracker(Family.IPV4, HERE, 0.0)
        self.backend = IptablesBackend(self.fake, NodeContext(CONTEXT))
        self.started = False

    async def put(self, *objects: Json, gone: bool = False) -> None:
        for obj in objects:
            (self.tracker.endpoint_slice if "endpoints" in obj else self.tracker.service)(obj, gone=gone)
        taken = self.tracker.take()
        await self.backend.sync(taken.desired, taken.ports if self.started else None)
        self.started = True

    @property
    def last(self) -> str:
        return self.fake.inputs[-1]

    def fresh(self) -> str:
        """The rules as a first sync would write them."""
        fake = FakeIptables()
        for change in plan_full(self.tracker.current(), CONTEXT, fake.content()).changes:
            fake.load_change(change)
        return fake.dump()


class Guarded:
    """Counts how often route_localnet would have been set, and refuses to be called without the guard."""

    def __init__(self, fake: FakeIptables) -> None:
        self._fake = fake
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1
        filters = self._fake.content()["filter"]
        assert any("DROP" in one.words for one in filters.rules("KUBE-FIREWALL"))
        for chain in ("INPUT", "OUTPUT"):
            assert any(one.target == "KUBE-FIREWALL" for one in filters.rules(chain))


@pytest.mark.parametrize(
    ("changes", "calls"),
    [
        pytest.param({}, 1, id="localhost NodePorts"),
        pytest.param({"localhost_node_ports": False}, 0, id="switched off"),
        pytest.param({"family": Family.IPV6}, 0, id="IPv6 never"),
    ],
)
@pytest.mark.parametrize("alone", [True, False], ids=["init-only", "first sync"])
async def test_the_loopback_is_guarded_before_it_is_opened(changes: dict[str, Any], calls: int, alone: bool) -> None:
    ctx = replace(CONTEXT, **changes)
    fake = FakeIptables(ctx.family)
    guarded = Guarded(fake)
    backend = IptablesBackend(fake, NodeContext(ctx), on_guarded=guarded)
    for _ in range(2):
        await (backend.guard_loopback() if alone else backend.sync(desired(), None))
    assert guarded.calls == 2 * calls


async def test_a_first_sync_that_fails_opens_no_loopback() -> None:
    fake = FakeIptables()
    opened: list[bool] = []
    backend = IptablesBackend(fake, NodeContext(CONTEXT), on_guarded=lambda: opened.append(True))
    fake.fail_next = 1
    with pytest.raises(NodewrightError):
        await backend.sync(desired(), None)
    assert not opened


async def test_an_unchanged_service_is_left_out() -> None:
    world = World()
    await world.put(service("a", "172.30.0.1"), endpoint_slice("a", ["10.1.0.1"]), service("b", "172.30.0.2"))
    await world.put(endpoint_slice("b", ["10.1.0.2"]))
    assert "10.1.0.2" in world.last and "10.1.0.1" not in world.last
    assert "ns/a:p80 cluster IP" in world.last, "the dispatch chain is written whole when it changes"
    assert world.fake.dump() == world.fresh()


async def test_a_change_of_endpoints_alone_leaves_the_dispatch_alone() -> None:
    world = World()
    await world.put(service("a", "172.30.0.1"), endpoint_slice("a", ["10.1.0.1"]))
    await world.put(endpoint_slice("a", ["10.1.0.1", "10.1.0.2"]))
    assert ":KUBE-SERVICES" not in world.last
    assert world.last.count("\n:KUBE-") == 2, "the service's chain and the new endpoint's, not the old endpoint's"
    assert "*filter" not in world.last
    assert world.fake.dump() == world.fresh()


async def test_a_removed_endpoint_takes_its_chain_with_it() -> None:
    world = World()
    await world.put(service("a", "172.30.0.1"), endpoint_slice("a", ["10.1.0.1", "10.1.0.2"]))
    await world.put(endpoint_slice("a", ["10.1.0.2"]))
    assert world.last.count("-X KUBE-SEP-") == 1
    assert world.fake.dump() == world.fresh()


async def test_the_last_endpoint_goes_and_comes() -> None:
    world = World()
    await world.put(service("a", "172.30.0.1"), endpoint_slice("a", ["10.1.0.1"]))
    await world.put(endpoint_slice("a", []))
    assert "has no endpoints" in world.fake.dump() and "KUBE-SVC" not in world.fake.dump()
    await world.put(endpoint_slice("a", ["10.1.0.1"]))
    assert world.fake.dump() == world.fresh()


async def test_nothing_to_change_writes_nothing() -> None:
    world = World()
    await world.put(service("a", "172.30.0.1"))
    count = len(world.fake.inputs)
    await world.put(endpoint_slice("other", ["10.1.0.9"]))
    assert len(world.fake.inputs) == count


async def test_endpoints_before_their_service() -> None:
    world = World()
    await world.put(endpoint_slice("a", ["10.1.0.1"]))
    await world.put(service("a", "172.30.0.1"))
    assert "10.1.0.1:80" in world.fake.dump()


async def test_after_a_failure_everything_is_written_again() -> None:
    world = World()
    await world.put(service("a", "172.30.0.1"), endpoint_slice("a", ["10.1.0.1"]))
    world.fake.fail_next = 1
    before = world.fake.dump()
    with pytest.raises(NodewrightError, match="made to fail"):
        await world.put(service("b", "172.30.0.2"))
    assert world.fake.dump() == before, "a refused input changes nothing"
    await world.put(service("c", "172.30.0.3"))
    assert all(f"ns/{name}:p80" in world.fake.dump() for name in "abc")
    assert world.fake.dump() == world.fresh()


async def test_what_stands_is_adopted_and_what_is_stale_removed() -> None:
    fake = installed(
        service("kept", "172.30.0.1"),
        endpoint_slice("kept", ["10.1.0.1"]),
        service("gone", "172.30.0.2"),
        endpoint_slice("gone", ["10.1.0.2"]),
    )
    fake.load("*nat\n:FOREIGN - [0:0]\n-A FOREIGN -j ACCEPT\n-I PREROUTING -j FOREIGN\nCOMMIT\n")
    world = World(fake)
    await world.put(service("kept", "172.30.0.1"), endpoint_slice("kept", ["10.1.0.1"]))
    assert "ns/gone" not in fake.dump()
    assert "-A FOREIGN -j ACCEPT" in fake.dump() and "-A PREROUTING -j FOREIGN" in fake.dump()
    assert fake.dump().count('"kubernetes service portals" -j KUBE-SERVICES') == 4, "no jump twice"
    assert not any(line.startswith("-F") for text in fake.inputs for line in text.splitlines())


async def test_at_no_moment_is_a_standing_service_without_rules() -> None:
    """A restart with many Services is written in several inputs: after each of them all Services must work."""
    objects: list[Json] = []
    for number in range(GROUP_CHAINS // 2):
        objects.append(service(f"s{number}", f"172.30.{number >> 8}.{number & 255}"))
        objects.append(
            endpoint_slice(f"s{number}", [f"10.{number >> 8}.{number & 255}.1", f"10.{number >> 8}.{number & 255}.2"])
        )
    fake = installed(*objects)
    kernel = fake.content()
    plan = plan_full(desired(*objects), CONTEXT, kernel)
    assert len(plan.changes) > 1
    wanted = set(kernel["nat"].chains)
    for change in plan.changes:
        fake.load_change(change)
        content = fake.content()["nat"]
        assert wanted <= set(content.chains)
        assert all(content.rules(name) for name in wanted if "KUBE-SVC" in name or "KUBE-SEP" in name)
        assert len(content.rules("KUBE-SERVICES")) == GROUP_CHAINS // 2 + 1


def test_a_large_cold_sync_is_split_and_the_dispatch_comes_last_in_one_input() -> None:
    objects: list[Json] = []
    for number in range(GROUP_CHAINS):
        objects.append(service(f"s{number}", f"172.30.{number >> 8}.{number & 255}"))
        objects.append(endpoint_slice(f"s{number}", [f"10.{number >> 8}.{number & 255}.1"]))
    plan = plan_full(desired(*objects), CONTEXT, FakeIptables().content())
    chains = [sum(len(table.chains) for table in change) for change in plan.changes]
    assert len(plan.changes) == 3 and max(chains[:-1]) <= GROUP_CHAINS + 1
    assert all(
        "KUBE-SERVICES" not in [chain.name for table in change for chain in table.chains]
        for change in plan.changes[:-1]
    )
    fake = FakeIptables()
    for change in plan.changes:
        fake.load_change(change)
    partial = plan_partial(desired(), plan.applied.ports.keys(), CONTEXT, plan.applied)
    assert len(partial.changes) > 2, "deleting many chains is split as well"
    for change in partial.changes:
        fake.load_change(change)
    assert "KUBE-SVC" not in fake.dump()


async def test_among_very_many_ports_a_change_is_planned_beside_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A change of a dispatch chain puts all ports in order: beside 100,000 of them 0.1 s of the loop for each."""
    beside: list[bool] = []

    def planned(*given: Any) -> Plan:
        beside.append(threading.current_thread() is not threading.main_thread())
        return plan_partial(*given)

    monkeypatch.setattr("proxy.backends.iptables.plan_partial", planned)
    world = World()
    await world.put(service("a", "172.30.0.1"))
    await world.put(endpoint_slice("a", ["10.1.0.1"]))
    many = [{"name": f"p{number}", "port": number, "protocol": "TCP"} for number in range(1, 21_001)]
    await world.put(service("many", "172.30.0.2", ports=many))
    await world.put(endpoint_slice("a", []))
    assert beside == [False, True, True]


async def test_large_clusters_leave_comments_of_endpoints_out() -> None:
    many = [f"10.1.{number >> 8}.{number & 255}" for number in range(1, 1002)]
    world = World()
    await world.put(service("a", "172.30.0.1"), endpoint_slice("a", many))
    assert "->" not in world.fake.dump() and "ns/a:p80 cluster IP" in world.fake.dump()


async def test_a_cluster_that_grows_large_between_full_syncs_shows_no_drift() -> None:
    world = World()
    await world.put(service("a", "172.30.0.1"), endpoint_slice("a", ["10.2.0.1"]))
    many = [f"10.1.{number >> 8}.{number & 255}" for number in range(1, 1002)]
    await world.put(service("b", "172.30.0.2"), endpoint_slice("b", many))
    assert await world.backend.audit(deep=True) == [], "the rules of a have their comments still"
    await world.backend.sync(world.tracker.current(), None)
    assert "->" not in world.fake.dump(), "a full sync leaves them out"
    await world.put(endpoint_slice("b", ["10.1.0.1"]))
    assert await world.backend.audit(deep=True) == []
    assert "->" not in world.fake.dump()


async def test_drift_is_named() -> None:
    world = World()
    await world.put(service("a", "172.30.0.1"), endpoint_slice("a", ["10.1.0.1"]))
    assert await world.backend.audit(deep=True) == []
    nat = world.fake.tables["nat"]
    victim = next(name for name in nat if name.startswith("KUBE-SVC"))
    nat[victim].pop()
    nat["PREROUTING"].clear()
    found = await world.backend.audit(deep=True)
    assert found == [f"nat {victim} is not as we wrote it", "the jump from nat PREROUTING to KUBE-SERVICES is gone"]
    world.fake.flush("mangle")
    assert await world.backend.audit(deep=False) == ["mangle KUBE-PROXY-CANARY is gone"]


async def test_a_rule_that_was_edited_in_place_is_drift() -> None:
    world = World()
    await world.put(service("a", "172.30.0.1"), endpoint_slice("a", ["10.1.0.1"]))
    mark = world.fake.tables["nat"]["KUBE-MARK-MASQ"]
    mark[0] = rule("-j", "MARK", "--or-mark", "0x1")
    assert await world.backend.audit(deep=True) == ["nat KUBE-MARK-MASQ is not as we wrote it"]


async def test_cleanup_leaves_what_is_not_ours() -> None:
    world = World()
    world.fake.load("*nat\n:NODEWRIGHT-X - [0:0]\n-I POSTROUTING -j NODEWRIGHT-X\nCOMMIT\n")
    before = world.fake.dump()
    await world.put(
        service("a", "172.30.0.1", type="NodePort", ports=[{"port": 1, "nodePort": 30000}]),
        endpoint_slice("a", ["10.1.0.1"]),
    )
    await world.backend.cleanup()
    left = world.fake.dump()
    assert "KUBE-SERVICES" not in left and "CANARY" not in left and before.splitlines()[1] in left
    assert left.count("KUBE-FIREWALL") == 4, "the kubelet's chain, its rule and its two jumps"


@settings(max_examples=60, deadline=None)
@given(histories, st.integers(0, 1 << 30))
async def test_any_way_to_a_state_ends_in_the_same_rules(history: list[Step], seed: int) -> None:
    world = World()
    await replay(history, seed, world, world.fake)
    assert world.fake.dump() == world.fresh()
    assert await world.backend.audit(deep=True) == []


def test_the_zone_of_the_node_counts() -> None:
    objects = (
        service("a", "172.30.0.1"),
        endpoint_slice("a", [endpoint("10.1.0.1", zones=["z1"]), endpoint("10.1.0.2", zones=["z2"])]),
    )
    assert "10.1.0.2" not in installed(*objects, ctx=replace(CONTEXT, zone="z1")).dump()


async def test_a_restart_over_standing_rules_writes_nothing() -> None:
    objects = [service("a", "172.30.0.1"), endpoint_slice("a", ["10.1.0.1"]), service("b", "172.30.0.2")]
    world = World(installed(*objects))
    await world.put(*objects)
    assert world.fake.inputs[1:] == []
    assert await world.backend.audit(deep=True) == []


async def test_what_the_kubelet_has_in_its_own_chain_is_no_drift() -> None:
    world = World()
    await world.put(service("a", "172.30.0.1"))
    world.fake.load("*filter\n-A KUBE-FIREWALL -m mark --mark 0x8000/0x8000 -j DROP\nCOMMIT\n")
    assert await world.backend.audit(deep=True) == []


def test_an_ipv6_node_port_is_not_counted_on_ipv4_loopback() -> None:
    """The counter's rule names 127.0.0.0/8: ip6tables refused the whole table for it."""
    ctx = Context(family=Family.IPV6, node=HERE, counters=frozenset({LOCALHOST_COUNTER}))
    ports = [{"name": "p80", "port": 80, "protocol": "TCP", "nodePort": 30001}]
    fake = installed(
        service("np", "fd00:10:96::2", type="NodePort", ports=ports),
        endpoint_slice("np", ["fd00:10:244::3"], address_type="IPv6"),
        ctx=ctx,
    )
    assert "30001" in fake.dump() and "127.0.0.0" not in fake.dump()
