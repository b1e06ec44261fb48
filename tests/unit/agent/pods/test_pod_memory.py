"""What a worker remembers of a pod whose containers are restarted without end."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from agent.common.model.pods import ContainerState, ObservedPod, RunState
from agent.common.model.states import BackOff
from agent.pods.plan.restart_backoff import SANDBOX, backoff_key
from agent.pods.work.memory import PodMemory
from agent.pods.work.pod_worker import PodWorker
from agent.pods.work.timeline import Timeline
from tests.builders.pods import container, pod
from tests.fakes.clock import FakeClock


def box(cpu: int) -> dict[str, object]:
    return container(resources={"limits": {"cpu": f"{cpu}m"}})


def test_what_is_gone_is_forgotten() -> None:
    """A resize that restarts its container has no back-off, and left an id in three sets and a key for the back-off
    each time. All of them are copied for each plan: 0.05 s of the event loop after a day of them, and 300 MB."""
    who = pod(box(5000))
    memory = PodMemory(who, who, Timeline(FakeClock()))
    known = memory.prestop_ran, memory.stopping, memory.restart_wanted
    for number in range(5001):
        latest = ContainerState(f"c{number}", "box", who.uid, "main", number, RunState.RUNNING, number)
        memory.seen = ObservedPod(who.uid, containers=(latest,))
        memory.forget_old()
        for kept in known:
            kept.add(latest.id)
        memory.backoff[backoff_key(box(number))] = BackOff(10.0, float(number))
        memory.stopped_sandboxes.add(f"box{number}")
    memory.backoff[SANDBOX] = BackOff(10.0, 1.0)
    assert max(map(len, (*known, memory.backoff, memory.stopped_sandboxes))) < 120
    for number in range(200):
        memory.backoff[str(number)] = BackOff(10.0, 1.0)
    memory.forget_old()
    assert set(memory.backoff) == {backoff_key(box(5000)), SANDBOX} and known[0] == {"c5000"}


def test_it_is_forgotten_when_the_pod_is_looked_at() -> None:
    who = pod(box(1))
    memory = PodMemory(who, who, Timeline(FakeClock()), stopped_sandboxes={str(number) for number in range(500)})
    worker = SimpleNamespace(memory=memory, _note_ends=lambda: None, _awake=asyncio.Event())
    PodWorker.observe(worker, ObservedPod(who.uid))  # type: ignore[arg-type] # all that it needs
    assert not memory.stopped_sandboxes


def test_a_pod_of_many_containers_keeps_all_back_offs() -> None:
    boxes = [container(f"c{number}") for number in range(500)]
    who = pod(*boxes)
    memory = PodMemory(who, who, Timeline(FakeClock()))
    memory.backoff = {backoff_key(one): BackOff(10.0, 1.0) for one in boxes}
    memory.forget_old()
    assert len(memory.backoff) == 500
