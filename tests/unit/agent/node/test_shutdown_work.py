"""A machine that shuts down, on a virtual clock: the real table and workers, and a fake logind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import replace

import pytest

from agent.common.work.observable import Observable
from agent.node.plan.shutdown import Period
from agent.node.work.shutdown import NodeShutdownDeps, NodeShutdownManager
from nodelib.errors import Temporary
from nodelib.tasks import cancel_and_wait
from tests.builders.metrics import series
from tests.fakes.clock import settle
from tests.fakes.pod_world import World

CRITICAL = 2_000_000_000


class FakeLogind:
    """`away`: it does not answer; `delay`: InhibitDelayMaxSec, which allow_delay() raises unless it is `stubborn`."""

    def __init__(self) -> None:
        self.away, self.stubborn, self.delay, self.preparing, self.locked = False, False, 5.0, False, False
        self.announced: asyncio.Queue[bool | None] = asyncio.Queue()

    async def connect(self) -> None:
        if self.away:
            raise Temporary("no such file", obj="systemd-logind")
        self.announced = asyncio.Queue()

    async def longest_delay(self) -> float:
        return self.delay

    async def allow_delay(self, seconds: float) -> None:
        if not self.stubborn:
            self.delay = seconds

    async def is_preparing(self) -> bool:
        return self.preparing

    async def inhibit(self) -> None:
        self.locked = True

    def release(self) -> None:
        self.locked = False

    async def shutdowns(self) -> AsyncGenerator[bool, None]:
        while (found := await self.announced.get()) is not None:
            yield found

    async def close(self) -> None:
        self.locked = False


class Machine:
    def __init__(self, world: World) -> None:
        self.world, self.logind, self.shutting_down = world, FakeLogind(), Observable(False)
        parts = NodeShutdownDeps(
            self.logind,
            world.registry,
            world.checkpoints,
            world.events,
            world.metrics,
            world.clock,
            self.shutting_down,
            lambda: {"kind": "Node", "name": "n1"},
        )
        self.keeper = NodeShutdownManager((Period(0, 20), Period(CRITICAL, 10)), parts)
        self.task = asyncio.create_task(self.keeper.run())

    async def run_pods(self, **priorities: int) -> None:
        for name, priority in priorities.items():
            self.world.create(name=name, uid=name, priority=priority, terminationGracePeriodSeconds=30)
        await self.world.until(lambda: all(self.world.phase(name) == "Running" for name in priorities))

    def announce(self, shutdown: bool) -> None:
        self.logind.preparing = shutdown
        self.logind.announced.put_nowait(shutdown)


@pytest.fixture
async def machine() -> AsyncIterator[Machine]:
    world = World()
    await world.start_agent()
    found = Machine(world)
    await settle()
    yield found
    await cancel_and_wait(found.task)
    await world.kill_agent()


async def test_pods_are_stopped_by_priority_and_then_the_shutdown_proceeds(machine: Machine) -> None:
    await machine.run_pods(low=0, high=CRITICAL)
    machine.world.cri.ignores_term.add("main")
    assert machine.logind.locked and machine.logind.delay == 30.0
    machine.announce(True)
    await machine.world.clock.advance(19)
    assert machine.shutting_down.now and machine.logind.locked
    assert machine.world.phase("high") == "Running"
    await machine.world.until(lambda: machine.world.phase("low") == "Failed")
    await machine.world.until(lambda: machine.world.phase("high") == "Failed")
    await machine.world.until(lambda: not machine.logind.locked, seconds=10)
    for name in ("low", "high"):
        status = machine.world.status(name)
        assert status["reason"] == "Terminated"
        assert status["message"] == "Pod was terminated in response to imminent node shutdown."
        assert any(one["type"] == "DisruptionTarget" for one in status["conditions"])
    (began,) = series(machine.world.metrics, "kubelet_graceful_shutdown_start_time_seconds").values()
    (ended,) = series(machine.world.metrics, "kubelet_graceful_shutdown_end_time_seconds").values()
    assert ended > began > 0
    assert "endTime" in machine.world.checkpoints.files["graceful_node_shutdown_state"]


async def test_pods_that_end_at_once_delay_nothing(machine: Machine) -> None:
    await machine.run_pods(low=0, high=CRITICAL)
    machine.announce(True)
    await machine.world.until(lambda: not machine.logind.locked, seconds=5)
    assert machine.world.phase("low") == machine.world.phase("high") == "Failed"


async def test_a_pod_that_hangs_delays_the_shutdown_no_longer_than_its_group_has(machine: Machine) -> None:
    await machine.run_pods(low=0)
    machine.world.volumes.release_fails = 1000
    machine.announce(True)
    await machine.world.clock.advance(19)
    assert machine.logind.locked
    await machine.world.clock.advance(2)
    assert not machine.logind.locked


async def test_a_shutdown_that_is_cancelled(machine: Machine) -> None:
    machine.announce(True)
    await machine.world.until(lambda: machine.shutting_down.now and not machine.logind.locked)
    machine.announce(False)
    await machine.world.until(lambda: not machine.shutting_down.now)
    assert machine.logind.locked
    messages = [message for _, reason, message in machine.world.events.emitted if reason == "NodeShutdown"]
    assert messages == ["Shutdown manager detected shutdown event", "Shutdown manager detected shutdown cancellation"]


async def test_a_new_pod_is_rejected_meanwhile(machine: Machine) -> None:
    machine.world.node = replace(machine.world.node, shutting_down=True)
    machine.world.create(name="late", uid="late")
    await machine.world.until(lambda: machine.world.phase("late") == "Failed")
    status = machine.world.status("late")
    assert status["reason"] == "NodeShutdown"
    assert status["message"] == "Pod was rejected: Pod was rejected as the node is shutting down."


async def test_an_agent_that_starts_in_the_middle_of_a_shutdown_takes_part_in_it(machine: Machine) -> None:
    await machine.run_pods(low=0)
    machine.logind.preparing = True
    machine.logind.announced.put_nowait(None)  # the connection ends
    await machine.world.until(lambda: machine.world.phase("low") == "Failed")
    assert machine.shutting_down.now


async def test_a_logind_that_is_away_is_asked_again(machine: Machine) -> None:
    machine.logind.away = True
    machine.logind.announced.put_nowait(None)
    await machine.world.clock.advance(100)
    assert not machine.logind.locked
    machine.logind.away = False
    await machine.world.clock.advance(61)
    assert machine.logind.locked


async def test_a_logind_that_will_not_wait_for_long_enough_is_reported(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    machine.logind.stubborn, machine.logind.delay = True, 5.0
    machine.logind.announced.put_nowait(None)
    await machine.world.clock.advance(10)
    assert "Set InhibitDelayMaxSec in /etc/systemd/logind.conf by hand" in caplog.text
    assert not machine.logind.locked
