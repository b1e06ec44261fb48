"""The guard of the table of connections over a clock that the test drives: when it bounds, cuts, tells and lets go."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_network

import pytest

from cni.connection_guard import ConnectionBounds, ConnectionGuard
from cni.model import Crowding, Held, Holder, PodAddresses
from nodelib.firewall.objects import Family
from nodelib.tasks import cancel_and_wait
from tests.fakes.clock import FakeClock
from tests.fakes.connections import FakeBounds, FakeConnections
from tests.waiting import until

RANGES = (ip_network("10.0.0.0/24"), ip_network("fd00::/64"))
FLOOD, QUIET = Holder("10.0.0.1"), Holder("10.0.0.2")


@dataclass
class Bench:
    kernel: FakeConnections = field(default_factory=lambda: FakeConnections(1000))
    table: FakeBounds = field(default_factory=FakeBounds)
    other: FakeBounds = field(default_factory=lambda: FakeBounds(Family.IPV6))
    clock: FakeClock = field(default_factory=FakeClock)
    names: dict[str, str] = field(default_factory=lambda: {"10.0.0.1": "evil/a", "10.0.0.2": "shop/web"})
    reports: list[Crowding] = field(default_factory=list)

    def bounded(self) -> set[str]:
        return self.table.addresses("senders")

    async def pass_time(self, seconds: float) -> None:
        """In steps, so that time does not pass while the guard waits for a thread."""
        for _ in range(int(seconds / 0.25)):
            await self.clock.advance(0.25)
            await until(lambda: self.clock.sleeping, 30)


@asynccontextmanager
async def guarded(bench: Bench, limit: int = 0) -> AsyncIterator[None]:
    guard = ConnectionGuard(
        bench.kernel,
        ConnectionBounds([bench.table, bench.other], "nw0"),
        bench.clock,
        names=lambda: bench.names,
        pods=lambda: PodAddresses(RANGES, bench.names),
        limit=limit,
        report=bench.reports.append,
    )
    task = asyncio.create_task(guard.run())
    try:
        yield
    finally:
        await cancel_and_wait(task)


async def until_counted(bench: Bench, counts: int) -> None:
    async with asyncio.timeout(30):
        while bench.kernel.counts < counts:
            await bench.pass_time(0.25)
    await bench.pass_time(0.25)


async def test_a_quiet_node_has_no_rules_and_counts_nothing() -> None:
    bench = Bench()
    bench.kernel.held = [Held(FLOOD, 0, 749)]
    async with guarded(bench):
        await bench.pass_time(30)
        assert not bench.table.there
        assert bench.kernel.counts == 0
        assert bench.reports == []


async def test_who_has_too_many_is_bounded_then_cut_and_told() -> None:
    bench = Bench()
    bench.kernel.held = [Held(FLOOD, 0, 800), Held(QUIET, 0, 0, 100)]
    async with guarded(bench):
        await until_counted(bench, 2)
        assert bench.table.there
        assert not bench.other.there  # no pod has an IPv6 address
        assert bench.bounded() == {"10.0.0.1"}
        assert bench.kernel.held == [Held(FLOOD, 0, 400), Held(QUIET, 0, 0, 100)]
        assert set(bench.reports[-1].limited) == {"evil/a"}
        assert "800 connections that it began" in bench.reports[-1].limited["evil/a"]
        assert (bench.reports[-1].crowded, bench.reports[-1].deleted) == (True, 400)


async def test_the_rules_go_after_there_has_been_room_for_a_while() -> None:
    bench = Bench()
    bench.kernel.held = [Held(FLOOD, 0, 800)]
    async with guarded(bench):
        await until_counted(bench, 2)
        bench.table.dropped = 7
        bench.kernel.held = [Held(FLOOD, 0, 390)]
        await bench.pass_time(5)
        assert bench.table.there
        await bench.pass_time(20)
        assert not bench.table.there
        assert bench.reports[-1] == Crowding(deleted=300, refused=7)


async def test_a_bound_is_lifted_when_its_holder_has_clearly_fewer() -> None:
    bench = Bench()
    bench.kernel.held = [Held(FLOOD, 0, 800)]
    async with guarded(bench):
        await until_counted(bench, 2)
        bench.kernel.held, bench.kernel.others = [Held(FLOOD, 0, 300)], 300
        await bench.pass_time(15)
        assert bench.bounded() == set()
        assert bench.reports[-1].limited == {}


async def test_a_table_that_fills_again_is_counted_at_once() -> None:
    """Another pod goes on where the first one was stopped."""
    bench = Bench()
    bench.kernel.held = [Held(FLOOD, 0, 800)]
    async with guarded(bench):
        await until_counted(bench, 2)
        bench.kernel.held.append(Held(QUIET, 500))
        await bench.pass_time(1.5)
        assert bench.kernel.counts >= 3
        assert bench.bounded() == {"10.0.0.1", "10.0.0.2"}


async def test_a_table_that_nobody_holds_too_much_of_is_seldom_counted() -> None:
    bench = Bench()
    bench.kernel.others = 900
    async with guarded(bench):
        await bench.pass_time(29)
        assert bench.kernel.counts == 1
        assert bench.table.there


async def test_a_pod_that_living_connections_flood_is_seldom_counted() -> None:
    """They are not its doing and stay; what comes by the few new ones that pass is deleted now and then."""
    bench = Bench()
    flooded = Holder("10.0.0.1", received=True)
    bench.kernel.held = [Held(flooded, 50, 0, 800)]
    async with guarded(bench):
        await until_counted(bench, 2)
        bench.kernel.held = [Held(flooded, 10, 0, 800)]
        await bench.pass_time(5)
        counts = bench.kernel.counts
        bench.kernel.held = [Held(flooded, 10, 0, 800)]
        await bench.pass_time(20)
        assert bench.kernel.counts == counts


async def test_a_pod_that_starts_meanwhile_is_no_stranger() -> None:
    bench = Bench()
    bench.kernel.held = [Held(FLOOD, 0, 800)]
    async with guarded(bench):
        await until_counted(bench, 2)
        bench.names = {**bench.names, "10.0.0.7": "shop/new"}
        await bench.pass_time(0.5)
        assert bench.table.addresses("pods") == {"10.0.0.1", "10.0.0.2", "10.0.0.7"}


async def test_a_count_that_fails_leaves_the_first_bounds_and_is_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    bench.kernel.held, bench.kernel.fail = [Held(FLOOD, 0, 800)], True
    async with guarded(bench):
        with caplog.at_level(logging.WARNING):
            await bench.pass_time(20)
        assert bench.table.there
        assert len([one for one in caplog.records if "killed" in one.getMessage()]) == 1
        bench.kernel.fail = False
        await until_counted(bench, 2)
        assert bench.bounded() == {"10.0.0.1"}


async def test_a_kernel_without_nftables_or_without_tracking_ends_nothing() -> None:
    bench = Bench()
    bench.table.refuse = True
    bench.kernel.held = [Held(FLOOD, 0, 800)]
    async with guarded(bench):
        await bench.pass_time(20)
        bench.kernel.tracked = False
        await bench.pass_time(60)
        bench.table.refuse, bench.kernel.tracked = False, True
        await until_counted(bench, 2)
        assert bench.bounded() == {"10.0.0.1"}


async def test_what_an_earlier_process_left_is_removed_and_so_is_ones_own() -> None:
    bench = Bench()
    bench.table.there = True
    async with guarded(bench):
        await bench.pass_time(0.5)
        assert not bench.table.there
        bench.kernel.held = [Held(FLOOD, 0, 800)]
        await until_counted(bench, 2)
        assert bench.table.there
    assert not bench.table.there


async def test_rules_that_could_not_be_removed_are_removed_later() -> None:
    bench = Bench()
    bench.kernel.held = [Held(FLOOD, 0, 800)]
    async with guarded(bench):
        await until_counted(bench, 2)
        bench.kernel.held = []
        await bench.pass_time(8)
        bench.table.refuse = True
        await bench.pass_time(20)
        assert bench.table.there
        bench.table.refuse = False
        await bench.pass_time(10)
        assert not bench.table.there


async def test_a_smaller_limit_counts() -> None:
    bench = Bench()
    bench.kernel.held = [Held(FLOOD, 0, 80)]
    async with guarded(bench, limit=100):
        await until_counted(bench, 2)
        assert bench.kernel.held == [Held(FLOOD, 0, 50)]


async def test_rules_that_somebody_has_removed_are_made_again() -> None:
    bench = Bench()
    bench.kernel.held, bench.kernel.others = [Held(FLOOD, 0, 800)], 100
    async with guarded(bench):
        await until_counted(bench, 2)
        bench.table.there, bench.table.elements = False, set()
        bench.kernel.held = [Held(FLOOD, 0, 800)]
        await bench.pass_time(20)
        assert bench.table.there
        assert bench.bounded() == {"10.0.0.1"}
