"""UDP flows of hostPorts that have changed are forgotten, and nobody waits for that."""

from __future__ import annotations

import asyncio
import threading
from ipaddress import ip_address
from itertools import pairwise

import pytest

from cni import udp_flows
from cni.model import Attachment, AttachmentKey, HostPort, PortMapping
from nodelib.errors import Permanent
from nodelib.tasks import cancel_and_wait
from tests.fakes.clock import FakeClock, settle
from tests.unit.cni.test_daemon import ME, Bench
from tests.waiting import until

Ports = frozenset[HostPort]


def port(pod: str, number: int = 53) -> HostPort:
    return HostPort(PortMapping(number, 53, "udp"), ip_address(pod))


ONE, TWO = port("10.244.0.5"), port("10.244.0.6")


class Kernel:
    """What was asked of it: (added, removed)."""

    def __init__(self) -> None:
        self.asked: list[tuple[Ports, Ports]] = []
        self.fails = 0

    def forget(self, added: Ports, removed: Ports) -> None:
        if self.fails:
            self.fails -= 1
            raise Permanent("no buffer space available")
        self.asked.append((added, removed))


async def followed(kernel: Kernel, *states: tuple[HostPort, ...], clock: FakeClock | None = None) -> None:
    follower = udp_flows.FlowFollower(kernel.forget, clock or FakeClock())
    for old, new in pairwise(states):
        follower.note(old, new)
    task = asyncio.create_task(follower.run())
    await until(lambda: kernel.asked or kernel.fails == 0)
    if clock is not None:
        await until(lambda: kernel.asked, clock=clock)
    await settle()
    await cancel_and_wait(task)


@pytest.mark.parametrize(
    ("states", "added", "removed"),
    [
        pytest.param([(), (ONE,)], {ONE}, set(), id="comes"),
        pytest.param([(ONE,), ()], set(), {ONE}, id="goes"),
        pytest.param([(ONE,), (TWO,)], {TWO}, {ONE}, id="another pod has it"),
        pytest.param([(ONE,), (TWO,), (ONE,)], {ONE}, {TWO}, id="another pod had it"),
        pytest.param([(ONE,), (), (ONE,)], {ONE}, set(), id="it was away"),
    ],
)
async def test_what_changed_meanwhile_is_followed_at_once(
    states: list[tuple[HostPort, ...]], added: set[HostPort], removed: set[HostPort]
) -> None:
    kernel = Kernel()
    await followed(kernel, *states)
    assert kernel.asked == [(frozenset(added), frozenset(removed))]


async def test_a_failure_is_tried_again_with_what_has_changed_since() -> None:
    kernel, clock = Kernel(), FakeClock()
    kernel.fails = 1
    await followed(kernel, (ONE,), (), clock=clock)
    assert kernel.asked == [(frozenset(), frozenset({ONE}))]


async def test_tcp_is_nobodys_business_here() -> None:
    kernel, clock = Kernel(), FakeClock()
    follower = udp_flows.FlowFollower(kernel.forget, clock)
    follower.note((), (HostPort(PortMapping(80, 80), ip_address("10.244.0.5")),))
    task = asyncio.create_task(follower.run())
    await settle()
    await cancel_and_wait(task)
    assert kernel.asked == []


async def test_no_pod_waits_while_the_table_of_connections_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods fill it: beside 190,000 flows it takes two seconds, and ADD of each pod with a hostPort waited for that."""
    reads, goes_on = threading.Event(), threading.Event()

    def forget(*_: object) -> None:
        reads.set()
        assert goes_on.wait(20)

    monkeypatch.setattr(udp_flows, "forget", forget)
    bench = Bench()
    bench.network.set_nodes([ME])
    await bench.network.sync()
    task = asyncio.create_task(bench.network.run())
    bench.attachments = [Attachment(AttachmentKey("c1", "eth0"), (ONE.address,), (ONE.mapping,))]
    try:
        await asyncio.wait_for(bench.network.firewall.sync(), 5)
        await until(reads.is_set)
        bench.attachments = []
        await asyncio.wait_for(bench.network.firewall.sync(), 5)
    finally:
        goes_on.set()
        await cancel_and_wait(task)


async def test_flows_of_ports_that_come_and_go_without_end_take_half_of_the_time() -> None:
    clock, began = FakeClock(), list[float]()

    def forget(*_: object) -> None:
        began.append(clock.monotonic())
        clock._move(clock.monotonic() + 1.0)

    follower = udp_flows.FlowFollower(forget, clock)
    task = asyncio.create_task(follower.run())
    follower.note((), (ONE,))
    await until(lambda: began)
    follower.note((ONE,), ())
    await asyncio.sleep(0.1)
    assert len(began) == 1
    await clock.advance(1.1)
    await until(lambda: len(began) == 2)
    await cancel_and_wait(task)
