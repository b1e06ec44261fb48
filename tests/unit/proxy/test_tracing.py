"""The spans of the proxy's syncs: one tree for each that changes something, whatever names and times are given."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from nodelib.firewall.objects import Family
from nodelib.firewall.traced import TracedTables
from nodelib.json_values import Json
from nodelib.kube.times import format_rfc3339
from nodelib.nft.traced import TracedTable
from nodelib.tasks import cancel_and_wait
from nodelib.traces.model import Span
from nodelib.traces.sampling import ALL
from nodelib.traces.steps import Tracer
from proxy.backends.base import Backend
from proxy.backends.context import NodeContext
from proxy.backends.iptables import IptablesBackend
from proxy.backends.nftables import NftablesBackend
from proxy.model import Desired, NamespacedName, ServicePortName
from proxy.plan import spans
from proxy.plan.tracker import Changes
from proxy.tracing import SyncTracing
from tests.builders.services import endpoint_slice, service
from tests.fakes.fake_nft import FakeNft
from tests.unit.proxy.build import CONTEXT
from tests.unit.proxy.test_proxier import World

TRIGGER = "endpoints.kubernetes.io/last-change-trigger-time"


class Traced(World):
    """The proxier's world with a backend whose transactions are seen."""

    def __init__(self, mode: str, per_million: int = ALL) -> None:
        self.spans: list[Span] = []
        self.nft = FakeNft()
        self.mode, self.per_million = mode, per_million
        super().__init__()

    def backend(self) -> Backend:
        if self.mode == "nftables":
            return NftablesBackend(TracedTable(self.nft), NodeContext(CONTEXT))
        return IptablesBackend(TracedTables(self.fake), NodeContext(CONTEXT))

    def traces(self) -> SyncTracing | None:
        return SyncTracing(Tracer(self.spans.append, self.per_million, self.clock)) if self.per_million else None

    def syncs(self) -> list[Span]:
        return [one for one in self.spans if one.name == "syncProxyRules"]

    def parts(self, sync: Span) -> dict[str, list[Span]]:
        found: dict[str, list[Span]] = {}
        for one in self.spans:
            if one.parent == sync.context.span:
                found.setdefault(one.name, []).append(one)
        return found

    async def first(self) -> None:
        self.proxier.start()
        await self.until(lambda: self.proxier.first_sync.is_set())
        self.spans.clear()


@pytest.fixture(params=["iptables", "nftables"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[Traced]:
    one = Traced(request.param)
    yield one
    await cancel_and_wait(*one.tasks)


def triggered(name: str, addresses: list[Json | str], at: str) -> Json:
    made = endpoint_slice(name, addresses)
    made["metadata"]["annotations"] = {TRIGGER: at}
    return made


async def test_a_change_is_one_trace_from_when_it_was_queued_until_the_kernel_has_it(world: Traced) -> None:
    await world.first()
    world.proxier.on_service("ADDED", service("a", "172.30.0.1"))
    world.proxier.on_endpoint_slice("ADDED", endpoint_slice("a", ["10.1.0.1"]))
    await world.until(world.syncs)
    (sync,) = world.syncs()
    assert (sync.parent, sync.error) == (b"", "")
    assert sync.attributes == {
        "nodewright.proxy.mode": world.mode,
        "network.type": "ipv4",
        "nodewright.sync": "partial",
        "nodewright.services": 1,
        "nodewright.services.names": "ns/a",
        "nodewright.endpoints": 1,
        "nodewright.ports": 1,
    }
    parts = world.parts(sync)
    assert {"change queued", "plan", "write"} <= set(parts)
    assert parts["change queued"][0].begin == sync.begin
    assert all(one.attributes["nodewright.tables"] for one in parts["write"])


async def test_what_changes_nothing_is_no_trace(world: Traced) -> None:
    world.proxier.on_service("ADDED", service("a", "172.30.0.1"))
    world.proxier.on_endpoint_slice("ADDED", endpoint_slice("a", ["10.1.0.1"]))
    await world.first()
    # The same endpoints in two slices, merged.
    world.proxier.on_endpoint_slice("ADDED", endpoint_slice("a", ["10.1.0.1"], suffix="2"))
    await world.until(lambda: not world.proxier.pending_endpoints)
    await world.clock.advance(10)
    assert world.spans == []


async def test_a_sync_of_everything_says_so_and_reads(world: Traced) -> None:
    world.proxier.start()
    await world.until(world.syncs)
    (sync,) = world.syncs()
    assert sync.attributes["nodewright.sync"] == "full"
    assert {"read", "plan", "write"} <= set(world.parts(sync))


async def test_a_refused_transaction_is_an_error_of_its_span_and_of_the_sync(world: Traced) -> None:
    await world.first()
    world.fake.fail_next = world.nft.fail_next = 1
    world.proxier.on_service("ADDED", service("a", "172.30.0.1"))
    world.proxier.on_endpoint_slice("ADDED", endpoint_slice("a", ["10.1.0.1"]))
    await world.until(world.syncs)
    sync = world.syncs()[0]
    # Quarantine is not part of this world: what is refused fails the sync, and the next one writes everything.
    assert sync.error and world.parts(sync)["write"][0].error
    await world.until(lambda: len(world.syncs()) == 2)
    assert (world.syncs()[1].error, world.syncs()[1].attributes["nodewright.sync"]) == ("", "full")


async def test_endpoints_tell_how_long_their_change_took(world: Traced) -> None:
    world.proxier.on_service("ADDED", service("a", "172.30.0.1"))
    await world.first()
    world.clock.step(10)
    changed = world.clock.now() - 3
    world.proxier.on_endpoint_slice("ADDED", triggered("a", ["10.1.0.1"], format_rfc3339(changed)))
    await world.until(world.syncs)
    (sync,) = world.syncs()
    (change,) = world.parts(sync)["network programming"]
    assert abs(change.begin - changed) < 1 and change.begin + change.seconds <= world.clock.now()
    assert (change.attributes["k8s.namespace.name"], change.attributes["k8s.service.name"]) == ("ns", "a")


async def test_a_change_that_claims_to_be_of_the_future_takes_no_time(world: Traced) -> None:
    world.proxier.on_service("ADDED", service("a", "172.30.0.1"))
    await world.first()
    world.proxier.on_endpoint_slice("ADDED", triggered("a", ["10.1.0.1"], "2999-01-01T00:00:00Z"))
    await world.until(world.syncs)
    (change,) = world.parts(world.syncs()[0])["network programming"]
    assert change.begin <= world.clock.now() and change.seconds == 0


async def test_nothing_is_made_of_what_is_not_sampled() -> None:
    world = Traced("nftables", per_million=0)
    world.proxier.start()
    await world.until(lambda: world.proxier.first_sync.is_set())
    assert world.spans == []
    await cancel_and_wait(*world.tasks)


def changes(names: list[NamespacedName]) -> Changes:
    ports = frozenset(ServicePortName(name, "p", "TCP") for name in names)
    return Changes(Desired(Family.IPV4), ports, {name: [5.0, 3.0] for name in names})


def test_a_few_services_are_named_and_the_others_counted() -> None:
    many = changes([NamespacedName("ns", f"s{number:05}") for number in range(10_000)])
    found = spans.attributes(many, full=True, endpoints=0, mode="nftables")
    assert found["nodewright.services"] == 10_000
    names = str(found["nodewright.services.names"])
    assert names.startswith("ns/s00000, ns/s00001") and names.endswith("and 9992 more") and len(names) < 200
    change = list(spans.programmed(many))
    assert len(change) == 32 and {at for _, at in change} == {3.0}
