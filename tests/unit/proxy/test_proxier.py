"""The loop around the plans: when it writes, when it writes everything, what it does afterwards."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace

import pytest
from aiohttp.test_utils import make_mocked_request

from nodelib.errors import Permanent
from nodelib.firewall.objects import Family
from nodelib.netlink.flows import UdpFlow
from nodelib.tasks import cancel_and_wait
from proxy.backends.base import Backend
from proxy.backends.context import NodeContext
from proxy.backends.iptables import IptablesBackend
from proxy.edge.metrics import Metrics
from proxy.edge.servers import ServiceHealthServers
from proxy.health import Health
from proxy.http_handlers import health_routes
from proxy.model import NodeFacts, Problem
from proxy.plan.node import parse_node
from proxy.plan.pod_ranges import PodRanges
from proxy.plan.problems import limited_each
from proxy.plan.tracker import Tracker
from proxy.proxier import Periods, Proxier, Reporting
from proxy.tracing import SyncTracing
from tests.builders.services import endpoint_slice, node, service
from tests.fakes.clock import FakeClock, settle
from tests.fakes.fake_iptables import FakeIptables
from tests.unit.proxy.build import CONTEXT, HERE, desired
from tests.waiting import until


@dataclass
class FakeFlows:
    """Conntrack as a list."""

    flows: list[UdpFlow] = field(default_factory=list)
    broken: bool = False
    asked: int = 0

    def list_udp(self) -> list[UdpFlow]:
        self.asked += 1
        if self.broken:
            raise Permanent("Operation not permitted")
        return list(self.flows)

    def delete(self, flows: list[UdpFlow]) -> int:
        self.flows = [flow for flow in self.flows if flow not in flows]
        return len(flows)


class World:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.fake = FakeIptables()
        self.flows = FakeFlows()
        self.metrics = Metrics()
        self.health = Health(60.0, lambda: NodeFacts(HERE, exists=True))
        self.failed: list[str] = []
        servers = ServiceHealthServers(("127.0.0.1",), lambda: True, lambda name, text: self.failed.append(text))
        self.inner = self.backend()
        self.proxier = Proxier(
            Tracker(Family.IPV4, HERE, self.clock.now(), pods=PodRanges(["10.77.0.0/16"])),
            self.inner,
            self.flows,
            Reporting(self.metrics, self.health, servers, self.traces()),
            self.clock,
            Periods(min_sync=0.05, deep_audit=30.0),
        )
        runs = (self.proxier.runner.run, self.proxier.run_audit, self.proxier.leftovers.run)
        self.tasks = [asyncio.create_task(run()) for run in runs]

    def backend(self) -> Backend:
        return IptablesBackend(self.fake, NodeContext(CONTEXT))

    def traces(self) -> SyncTracing | None:
        return None

    async def until(self, condition: Callable[[], object]) -> None:
        """Let time pass until it holds: planning and conntrack run in threads."""
        await until(condition, clock=self.clock, advance=0.1)

    def metric(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"kubeproxy_{name}", labels or {"ip_family": "IPv4"}) or 0.0


@pytest.fixture
async def world() -> AsyncIterator[World]:
    one = World()
    yield one
    await cancel_and_wait(*one.tasks)


async def test_nothing_is_written_before_everything_was_listed(world: World) -> None:
    world.proxier.on_service("ADDED", service("a", "172.30.0.1"))
    world.proxier.on_endpoint_slice("ADDED", endpoint_slice("a", ["10.1.0.1"]))
    world.proxier.on_node(NodeFacts(HERE, zone="z", exists=True))
    await world.clock.advance(3600)
    await settle()
    assert world.fake.inputs == []
    world.proxier.start()
    await world.until(lambda: world.fake.inputs)
    assert "10.1.0.1:80" in world.fake.dump()


async def test_a_node_that_turns_out_to_be_among_the_pods_has_their_range_open_to_balancers(world: World) -> None:
    world.proxier.on_service("ADDED", service("a", "172.30.0.1", externalIPs=["10.77.1.1"]))
    world.proxier.on_endpoint_slice("ADDED", endpoint_slice("a", ["10.1.0.1"]))
    world.proxier.start()
    await world.until(lambda: world.fake.inputs)
    assert "10.77.1.1" not in world.fake.dump()
    world.proxier.on_node(NodeFacts(HERE, ips=("10.77.0.9",), exists=True))
    await world.until(lambda: "10.77.1.1" in world.fake.dump())
    world.proxier.on_node(NodeFacts(HERE))  # deleted
    await world.clock.advance(60)
    assert "10.77.1.1" in world.fake.dump()


async def test_many_events_make_few_syncs(world: World) -> None:
    world.proxier.start()
    await world.until(lambda: world.metric("sync_proxy_rules_duration_seconds_count") == 1)
    for number in range(100):
        world.proxier.on_service("ADDED", service(f"s{number}", f"172.30.0.{number}"))
        await asyncio.sleep(0)
    await world.until(lambda: "ns/s99" in world.fake.dump() and not world.proxier.pending_services)
    assert world.metric("sync_proxy_rules_duration_seconds_count") < 10
    assert world.metric("sync_partial_proxy_rules_duration_seconds_count") >= 1
    assert world.metric("sync_proxy_rules_last_timestamp_seconds") > 1_767_225_600


async def test_what_is_wrong_with_a_service_is_told_in_a_few_lines(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """One line for each of 20,000 ports was three megabytes of the log with every change, and a second of the loop."""
    world.proxier.on_service("ADDED", service("dns", "172.30.0.10"))
    ports = [{"name": f"p{number}", "port": number, "protocol": "TCP"} for number in range(1, 301)]
    world.proxier.on_service("ADDED", service("a", "172.30.0.1", ports=ports, externalIPs=["172.30.0.10"]))
    world.proxier.on_service("ADDED", service("b", "172.30.0.2", externalIPs=["172.30.0.10"]))
    world.proxier.start()
    await world.until(lambda: world.metric("sync_proxy_rules_duration_seconds_count") == 1)
    lines = [
        one.getMessage() for one in caplog.records if one.name == "proxy.proxier" and "left out" in one.getMessage()
    ]
    assert sorted(line.split(": ")[0] for line in lines) == ["Service ns/a", "Service ns/b"]
    reported = limited_each([Problem(f"Service ns/a:p{number}", "it waits") for number in range(300)])
    assert [one.message for one in reported] == ["it waits"] * 5 + ["295 more like these"]


def test_a_namespace_is_told_of_in_a_few_lines() -> None:
    """A Service that came was a line of every proxy's log for each of 2,000 others that asked for its cluster IP."""
    problems = [Problem(f"Service ns/s{number:03}", "a cluster IP is not an external IP") for number in range(300)]
    reported = limited_each([*problems, Problem("Service other/a", "it waits"), Problem("Namespace ns", "too many")])
    assert len(reported) == 22 and reported[0] == problems[0] and reported[19] == problems[19]
    assert reported[20] == Problem("Namespace ns", "281 more of its objects have such problems")
    assert reported[21].obj == "Service other/a"


async def test_a_failure_is_tried_again_in_full_and_shows(world: World) -> None:
    world.proxier.start()
    await world.until(lambda: world.fake.inputs)
    world.fake.fail_next = 2
    world.proxier.on_service("ADDED", service("a", "172.30.0.1"))
    await world.until(lambda: "ns/a" in world.fake.dump())
    assert world.metric("sync_proxy_rules_iptables_restore_failures_total") == 2
    assert world.metric("sync_proxy_rules_iptables_partial_restore_failures_total") == 1
    assert world.health.healthy(world.clock.now())


async def test_failing_for_long_is_unhealthy(world: World) -> None:
    world.health.updated(Family.IPV4, world.clock.now())
    world.fake.fail_next = 1_000_000
    world.proxier.start()
    await world.clock.advance(1)
    assert world.health.healthy(world.clock.now())
    await world.clock.advance(70)
    healthy, body = world.health.report(world.clock.now(), with_node=False)
    assert (healthy, body["status"]["IPv4"]["healthy"]) == (False, False)


@pytest.mark.parametrize("step", [3600, -3600, 2 * 86400, -2 * 86400])
async def test_a_step_of_the_wall_clock_is_neither_healthy_nor_unhealthy(world: World, step: float) -> None:
    health, clock = world.health, world.clock
    routes = health_routes(health, world.metrics, clock)

    async def live() -> int:
        return (await routes["/livez"](make_mocked_request("GET", "/livez"))).status

    health.updated(Family.IPV4, clock.steady())
    world.fake.fail_next = 1_000_000
    world.proxier.start()
    await clock.advance(1)
    clock.step(step)
    assert await live() == 200
    await clock.advance(70)
    assert await live() == 503


async def test_a_foreign_flush_is_mended_within_seconds(world: World) -> None:
    world.proxier.on_service("ADDED", service("a", "172.30.0.1"))
    world.proxier.start()
    await world.until(lambda: "ns/a" in world.fake.dump())
    whole = world.fake.dump()
    flushed = world.clock.monotonic()
    world.fake.flush()
    await world.until(lambda: world.fake.dump() == whole)
    assert world.clock.monotonic() - flushed < 10


async def test_a_foreign_change_does_not_hide_behind_our_next_one() -> None:
    fake, foreign = FakeIptables(), 0
    backend = IptablesBackend(fake, NodeContext(CONTEXT), generation=lambda: len(fake.inputs) + foreign)
    one = desired(service("a", "172.30.0.1"))
    await backend.sync(one, None)
    assert await backend.audit(deep=True) == []
    fake.tables["nat"]["PREROUTING"].clear()
    foreign += 1
    both = desired(service("a", "172.30.0.1"), service("b", "172.30.0.2"))
    await backend.sync(both, frozenset(set(both.ports) - set(one.ports)))
    assert await backend.audit(deep=True) != []


async def test_one_removed_rule_is_restored_by_the_deep_audit(world: World) -> None:
    world.proxier.on_service("ADDED", service("a", "172.30.0.1"))
    world.proxier.start()
    await world.until(lambda: "ns/a" in world.fake.dump())
    whole = world.fake.dump()
    world.fake.tables["nat"]["PREROUTING"].clear()
    assert world.fake.dump() != whole
    await world.until(lambda: world.metric("sync_full_proxy_rules_duration_seconds_count") == 2)
    assert world.fake.dump() == whole


class SlowAudits(World):
    """Each audit takes a second, as where starting a process does."""

    audits = 0

    def backend(self) -> Backend:
        world = self

        class Slow(IptablesBackend):
            async def audit(self, *, deep: bool) -> list[str]:
                world.audits += 1
                await world.clock.sleep(1.0)
                return []

        return Slow(self.fake, NodeContext(CONTEXT))


async def test_audits_take_a_tenth_of_the_time_at_most() -> None:
    world = SlowAudits()
    try:
        world.proxier.start()
        await world.until(lambda: world.metric("sync_full_proxy_rules_duration_seconds_count") == 1)
        before = world.audits
        await world.clock.advance(100)
        # Besides these, one of all rules every 30 s.
        assert 5 <= world.audits - before <= 14
    finally:
        await cancel_and_wait(*world.tasks)


async def test_a_change_of_the_zone_writes_everything(world: World) -> None:
    world.proxier.start()
    await world.until(lambda: world.metric("sync_full_proxy_rules_duration_seconds_count") == 1)
    world.proxier.on_node(NodeFacts(HERE, zone="z", exists=True))
    await world.until(lambda: world.metric("sync_full_proxy_rules_duration_seconds_count") == 2)
    world.proxier.on_node(NodeFacts(HERE, zone="z", exists=True, deleting=True))
    await world.clock.advance(10)
    assert world.metric("sync_full_proxy_rules_duration_seconds_count") == 2


async def test_stale_udp_flows_end(world: World) -> None:
    dns = [{"name": "dns", "port": 53, "protocol": "UDP"}]
    stale = UdpFlow("10.0.0.9", 4000, "172.30.0.10", 53, "10.1.0.1", 53)
    good = UdpFlow("10.0.0.9", 4001, "172.30.0.10", 53, "10.1.0.2", 53)
    foreign = UdpFlow("10.0.0.9", 4002, "8.8.8.8", 53, "8.8.8.8", 53)
    world.flows.flows = [stale, good, foreign]
    world.proxier.on_service("ADDED", service("dns", "172.30.0.10", ports=dns))
    world.proxier.on_endpoint_slice("ADDED", endpoint_slice("dns", ["10.1.0.1", "10.1.0.2"], ports=dns))
    world.proxier.start()
    await world.until(lambda: world.metric("conntrack_reconciler_sync_duration_seconds_count") == 1)
    assert world.flows.flows == [stale, good, foreign]
    world.proxier.on_endpoint_slice("MODIFIED", endpoint_slice("dns", ["10.1.0.2"], ports=dns))
    await world.until(lambda: world.flows.flows == [good, foreign])
    assert world.metric("conntrack_reconciler_deleted_entries_total") == 1


async def test_a_table_of_many_flows_holds_up_no_rules(world: World) -> None:
    """Whoever sends UDP packets from many ports fills it: reading 190,000 entries kept all rules waiting for 5 s."""
    dns = [{"name": "dns", "port": 53, "protocol": "UDP"}]
    reads, go_on = [0], threading.Event()

    def list_udp() -> list[UdpFlow]:
        reads[0] += 1
        assert go_on.wait(30)
        return [UdpFlow("10.0.0.9", number, "172.30.0.10", 53, f"10.1.0.{number}", 53) for number in (1, 2, 3)]

    world.flows.list_udp = list_udp  # type: ignore[method-assign]  # it takes long
    world.flows.flows = [UdpFlow("10.0.0.9", number, "172.30.0.10", 53, f"10.1.0.{number}", 53) for number in (1, 2, 3)]
    world.proxier.on_service("ADDED", service("dns", "172.30.0.10", ports=dns))
    world.proxier.on_endpoint_slice("ADDED", endpoint_slice("dns", ["10.1.0.1"], ports=dns))
    world.proxier.start()
    try:
        await world.until(lambda: reads[0] == 1)
        world.proxier.on_service("ADDED", service("other", "172.30.0.1"))
        world.proxier.on_endpoint_slice("MODIFIED", endpoint_slice("dns", ["10.1.0.1", "10.1.0.2"], ports=dns))
        await world.until(lambda: "ns/other" in world.fake.dump() and "10.1.0.2" in world.fake.dump())
        assert reads == [1]
    finally:
        go_on.set()
    await world.until(lambda: len(world.flows.flows) < 3)
    assert [flow.reply_source for flow in world.flows.flows] == ["10.1.0.1", "10.1.0.2"], "by the rules of now"


async def test_conntrack_out_of_reach_does_not_stop_the_rules(world: World) -> None:
    dns = [{"name": "dns", "port": 53, "protocol": "UDP"}]
    world.flows.broken = True
    world.proxier.on_service("ADDED", service("dns", "172.30.0.10", ports=dns))
    world.proxier.start()
    await world.until(lambda: "ns/dns" in world.fake.dump())
    assert world.metric("sync_proxy_rules_iptables_restore_failures_total") == 0


async def test_flows_that_could_not_be_listed_are_listed_again(world: World) -> None:
    """Until the next change of a UDP Service, which may be hours away, a client went on asking a pod that was gone."""
    dns = [{"name": "dns", "port": 53, "protocol": "UDP"}]
    world.flows.flows = [UdpFlow("10.0.0.9", 1000, "172.30.0.10", 53, "10.1.0.99", 53)]
    world.flows.broken = True
    world.proxier.on_service("ADDED", service("dns", "172.30.0.10", ports=dns))
    world.proxier.start()
    await world.until(lambda: "ns/dns" in world.fake.dump() and world.flows.asked)
    await world.clock.advance(1.0)
    world.flows.broken = False
    await world.until(lambda: not world.flows.flows)


async def test_clients_that_cannot_be_read_do_not_keep_flows(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither while they are read, which takes seconds in nftables mode, nor by failing. They are asked for again."""
    asked, go_on = [0], asyncio.Event()

    async def forget_clients() -> None:
        asked[0] += 1
        await go_on.wait()
        if asked[0] == 1:
            raise RuntimeError("nobody expects it")

    monkeypatch.setattr(world.inner, "forget_clients", forget_clients)
    dns = [{"name": "dns", "port": 53, "protocol": "UDP"}]
    world.flows.flows = [UdpFlow("10.0.0.9", 1000, "172.30.0.10", 53, "10.1.0.99", 53)]
    world.proxier.on_service("ADDED", service("dns", "172.30.0.10", ports=dns))
    world.proxier.start()
    await world.until(lambda: not world.flows.flows)
    go_on.set()
    await world.until(lambda: asked[0] == 2)


async def test_malformed_objects_leave_others_alone(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.proxier.on_service("ADDED", service("bad", "999.1.1.1"))
    world.proxier.on_service("ADDED", {"metadata": {"name": "x"}, "spec": 5})
    world.proxier.on_endpoint_slice("ADDED", {"metadata": None})
    world.proxier.on_service("ADDED", service("good", "172.30.0.1"))
    world.proxier.start()
    await world.until(lambda: world.proxier.first_sync.is_set())
    assert "ns/good" in world.fake.dump() and "ns/bad" not in world.fake.dump()
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [
        "Service ns/bad: clusterIP '999.1.1.1' is not an IPv4 address (left out; everything else is served)",
        "Service /x: its name or namespace is not one that Kubernetes allows (left out; everything else is served)",
    ]


def test_what_is_taken_from_the_node() -> None:
    obj = node(
        HERE,
        meta={"labels": {"topology.kubernetes.io/zone": "z1"}},
        podCIDRs=["10.244.0.0/24", "fd00::/64", "junk"],
        taints=[{"key": "ToBeDeletedByClusterAutoscaler"}],
    )
    obj["status"]["addresses"] = [
        {"type": "Hostname", "address": "h"},
        {"type": "ExternalIP", "address": "203.0.113.1"},
        {"type": "InternalIP", "address": "192.168.0.10"},
    ]
    found = parse_node(obj, HERE)
    assert (found.zone, found.ips, found.pod_cidrs) == (
        "z1",
        ("192.168.0.10", "203.0.113.1"),
        ("10.244.0.0/24", "fd00::/64"),
    )
    assert found.exists and found.to_be_deleted and not found.deleting
    assert parse_node(None, HERE) == NodeFacts(HERE)
    health = Health(60.0, lambda: found)
    assert health.report(0.0, with_node=True)[0] is False
    assert health.report(0.0, with_node=False)[0] is True


async def test_without_pod_cidr_the_detector_waits_for_the_node() -> None:
    backend = IptablesBackend(FakeIptables(), NodeContext(CONTEXT, detect_node_cidr=True))
    assert backend.node_changed(NodeFacts(HERE, exists=True)) and not backend.ready
    assert (
        backend.node_changed(NodeFacts(HERE, pod_cidrs=("fd00::/64", "10.244.3.0/24"), exists=True)) and backend.ready
    )


def test_a_family_without_a_pod_cidr_of_its_own_does_not_wait_for_one() -> None:
    six = NodeContext(replace(CONTEXT, family=Family.IPV6), detect_node_cidr=True)
    assert not six.ready
    assert six.node_changed(NodeFacts(HERE, pod_cidrs=("10.244.3.0/24",), exists=True)) and six.ready


class Slow(IptablesBackend):
    """Reading the rules takes as long as it is told."""

    def __init__(self, *given: object) -> None:
        super().__init__(*given)  # type: ignore[arg-type]
        self.reading, self.read, self.audits = asyncio.Event(), asyncio.Event(), 0

    async def audit(self, *, deep: bool) -> list[str]:
        self.audits += 1
        self.reading.set()
        await self.read.wait()
        return ["a chain is gone"]


class SlowWorld(World):
    def backend(self) -> Backend:
        return Slow(self.fake, NodeContext(CONTEXT))


@pytest.fixture
async def slow_world() -> AsyncIterator[SlowWorld]:
    one = SlowWorld()
    yield one
    await cancel_and_wait(*one.tasks)


async def test_no_change_waits_until_the_rules_have_been_read(slow_world: SlowWorld) -> None:
    """A namespace with 200,000 chains: 8 s, in which nobody's rules were written, after each commit of anybody."""
    world, slow = slow_world, slow_world.inner
    assert isinstance(slow, Slow)
    world.proxier.start()
    await world.until(lambda: world.fake.inputs)
    await world.until(slow.reading.is_set)
    world.proxier.on_service("ADDED", service("a", "172.30.0.1"))
    await world.until(lambda: "172.30.0.1" in world.fake.dump())
    full = world.metric("sync_full_proxy_rules_duration_seconds_count")
    slow.read.set()
    await world.until(lambda: slow.audits > 1)
    await world.until(lambda: world.metric("sync_full_proxy_rules_duration_seconds_count") > full)


async def test_what_was_read_while_rules_were_written_says_nothing(slow_world: SlowWorld) -> None:
    world, slow = slow_world, slow_world.inner
    assert isinstance(slow, Slow)
    world.proxier.start()
    await world.until(lambda: world.fake.inputs)
    await cancel_and_wait(*world.tasks[1:2])  # the loop of the audits
    world.proxier._unread.clear()
    for number in range(5):
        address = f"172.30.1.{number}"

        def is_written(address: str = address) -> bool:
            return address in world.fake.dump()

        slow.reading.clear()
        slow.read.clear()
        audit = asyncio.create_task(world.proxier.audit(deep=True))
        await slow.reading.wait()
        world.proxier.on_service("ADDED", service(f"a{number}", address))
        await world.until(is_written)
        slow.read.set()
        await audit
        assert not world.proxier._full
    await world.proxier.audit(deep=True)  # patience has an end
    assert world.proxier._full


class SlowDeepAudits(World):
    """Reading all rules takes three seconds, and the look whether there are any, nothing."""

    foreign = False
    read = 0

    def backend(self) -> Backend:
        world = self

        class Deep(IptablesBackend):
            async def audit(self, *, deep: bool) -> list[str]:
                if not deep:
                    return []
                world.read += 1
                await world.clock.sleep(3.0)
                return ["a chain is gone"] if world.foreign else []

        return Deep(self.fake, NodeContext(CONTEXT))


async def test_foreign_changes_are_found_while_others_change_without_end() -> None:
    """A look whether there are any rules succeeds between two changes, and said that reading all of them would, too."""
    world = SlowDeepAudits()
    try:
        world.proxier.start()
        await world.until(lambda: world.metric("sync_full_proxy_rules_duration_seconds_count") == 1)
        world.foreign = True
        for number in range(400):  # seconds
            world.proxier.on_service("MODIFIED", service("a", f"172.30.{number >> 8}.{number & 255}"))
            await world.clock.advance(1.0)
            await until(lambda: not world.proxier.pending_services, clock=world.clock, advance=0.01)
        assert world.read >= 6
        assert world.metric("sync_full_proxy_rules_duration_seconds_count") > 1
    finally:
        await cancel_and_wait(*world.tasks)
