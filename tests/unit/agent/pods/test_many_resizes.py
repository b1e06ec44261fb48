"""A hundred pods with pending resizes, and somebody who changes one of them as fast as the API takes it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from agent.admission.plan import admit
from agent.admission.plan.admit import NodeView
from agent.common.model.pods import Pod
from agent.pods.work import resizes
from agent.pods.work.resizes import Resizes
from agent.resources.model import ResizeState
from agent.resources.work.allocations import Allocations
from nodelib.tasks import cancel_and_wait
from tests.builders.pods import container, pod
from tests.fakes.checkpoints import MemoryFiles
from tests.fakes.clock import FakeClock, settle

MANY = 100
NODE = NodeView(name="n1", allocatable={"cpu": "2", "memory": "4Gi", "pods": "110"})


class Worker:
    """What Resizes sees of a pod's worker."""

    def __init__(self, allocated: Pod, desired: Pod) -> None:
        self.memory = SimpleNamespace(
            pod=allocated, desired=desired, resize=ResizeState(), termination=None, gone=False
        )

    def resize(self, state: ResizeState, allocated: Pod | None = None) -> None:
        self.memory.resize = state
        self.memory.pod = allocated or self.memory.pod


def wanting(cpu: str, number: int) -> Pod:
    box = container(resources={"requests": {"cpu": cpu}, "limits": {"cpu": cpu}})
    return pod(box, meta={"uid": f"u{number}", "name": f"p{number}", "generation": 2})


class Node:
    def __init__(self) -> None:
        self.clock = FakeClock()
        allocations = Allocations(MemoryFiles(), self.clock)
        self.workers: dict[str, Any] = {}
        for number in range(MANY):
            small = wanting("1m", number)
            allocations.admit(small)
            self.workers[small.uid] = Worker(small, wanting("1990m", number))
        deps: Any = SimpleNamespace(
            clock=self.clock,
            resources=SimpleNamespace(
                allocations=allocations, managers=SimpleNamespace(resize_refusal=lambda wanted, allocated: None)
            ),
            events=SimpleNamespace(emit=lambda *what, **more: None),
        )
        self.allocated: list[str] = []
        pods = [one.memory.pod for one in self.workers.values()]
        self.resizes = Resizes(deps, self.workers, lambda: pods, lambda: NODE, self.allocated.append)
        self.resizes.open()


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The pods that were compared with all others."""
    found: list[str] = []
    before = admit.refusal

    def counted(wanted: Pod, *more: Any) -> Any:
        found.append(wanted.uid)
        return before(wanted, *more)

    monkeypatch.setattr(resizes, "refusal", counted)
    return found


async def test_requests_are_collected_and_tried_one_pod_in_a_turn(tries: list[str]) -> None:
    """Each request tried all of them before anything else of the node had its turn: 0.3 s."""
    node = Node()
    run = asyncio.create_task(node.resizes.run())
    for uid in (*node.workers, *["u0"] * 100):
        node.resizes.request(uid)
    assert not tries
    for _ in range(12):  # a few to wake up, and one for each pod
        await asyncio.sleep(0)
    assert 1 < len(tries) < 12
    await settle(2 * MANY)
    assert len(tries) == MANY and len(set(tries)) == MANY
    await cancel_and_wait(run)


async def test_what_it_takes_is_a_part_of_the_time(tries: list[str]) -> None:
    node = Node()
    run = asyncio.create_task(node.resizes.run())
    node.resizes.request("u0")
    await settle()
    assert tries == ["u0"]
    node.resizes.request("u1")
    before = node.clock.monotonic
    times = iter([1000.0, 1010.0])  # this pass takes ten seconds
    node.clock.monotonic = lambda: next(times, before())  # type: ignore[method-assign]
    await settle()
    assert sorted(tries[1:]) == ["u0", "u1"]
    node.resizes.request("u2")
    await node.clock.advance(39)
    assert len(tries) == 3
    await node.clock.advance(2)
    assert len(tries) == 6
    await cancel_and_wait(run)


async def test_a_pod_that_goes_while_others_are_tried(tries: list[str]) -> None:
    node = Node()
    run = asyncio.create_task(node.resizes.run())
    for uid in ("u0", "u1", "u2"):
        node.resizes.request(uid)
    while not tries:
        await asyncio.sleep(0)
    for uid in {"u0", "u1", "u2"} - set(tries):
        del node.workers[uid]
    await settle()
    assert len(tries) == 1
    assert not run.done()
    await cancel_and_wait(run)
