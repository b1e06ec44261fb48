"""What a plan and a status of a pod with thousands of containers take of the event loop."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from agent.common.model import labels
from agent.common.model.labels import HASH, container_hash, hash_in, keep_hashes
from agent.common.model.pods import ContainerState, ObservedPod, Pod, RunState
from agent.common.work.gate import Gate
from agent.pods.model.facts import Cause, Facts, Termination
from agent.pods.plan.pod import plan_pod
from agent.pods.plan.status import StatusInputs, pod_status
from agent.pods.plan.status_size import MOST, fitted
from agent.pods.work.plan_turns import LARGE, PlanTurns
from agent.probes.places import Places
from agent.probes.work import ProbeManager
from nodelib.json_values import Json
from tests.builders.metrics import metrics
from tests.builders.pods import container, pod
from tests.cpu_time import least
from tests.fakes.clock import FakeClock
from tests.unit.agent.pods.test_pod import NOW, box, one

MANY = 4000
FACTS = Facts(now=NOW, prepared=True)


def containers(**fields: Any) -> list[Json]:
    return [container(f"container-{number}", **fields) for number in range(MANY)]


def running(of: Pod, attempts: int = 1) -> ObservedPod:
    """All containers of the pod run, after some attempts that have ended."""
    found: list[ContainerState] = []
    for number in reversed(range(attempts)):
        state = RunState.RUNNING if number == attempts - 1 else RunState.EXITED
        found += [one(of, each["name"], state, number, finished_at=1) for _, each in of.containers()]
    return ObservedPod("u", (box(),), tuple(found))


def test_a_plan_and_a_status() -> None:
    """The records of the runtime were gone through for each container, and each record for each: 2 s, and 0.6 s with
    as many as a pod may have, at each change of any of them."""
    web = pod(*containers(), restartPolicy="Always")
    observed = running(web, attempts=3)
    took, shown = least(lambda: pod_status(web, observed, StatusInputs(FACTS, plan_pod(web, observed, FACTS))))
    assert len(shown["containerStatuses"]) == MANY and shown["phase"] == "Running"
    assert took < 0.7


def test_a_termination_with_many_sidecars() -> None:
    web = pod(container("a"), initContainers=containers(restartPolicy="Always"))
    observed = running(web)
    main, *sidecars = sorted(observed.containers, key=lambda each: each.name != "a")
    ending = replace(FACTS, termination=Termination(Cause.DELETED, NOW, 30))
    took, plan = least(lambda: plan_pod(web, observed, ending))
    assert [step.container_id for step in plan.steps] == [main.id]  # type: ignore[union-attr]
    last, _ = least(lambda: plan_pod(web, replace(observed, containers=tuple(sidecars)), ending))
    assert max(took, last) < 0.1


def test_sidecars_end_in_the_reverse_order_all_attempts_of_one() -> None:
    web = pod(container("a"), initContainers=[container(name, restartPolicy="Always") for name in ("s1", "s2", "s3")])
    ending = replace(FACTS, termination=Termination(Cause.DELETED, NOW, 30))
    attempts = [one(web, "s1"), one(web, "s2"), one(web, "s2", attempt=1)]
    plan = plan_pod(web, ObservedPod("u", (box(),), tuple(attempts)), ending)
    assert [step.container_id for step in plan.steps] == ["s20", "s21"]  # type: ignore[union-attr]


def test_a_status_that_is_too_large_whatever_its_messages_are() -> None:
    """It was copied and encoded seven times, with ever shorter messages."""
    waiting = {"waiting": {"reason": "ErrImagePull", "message": "no such image " * 20}}
    status = {"containerStatuses": [{"name": f"c{number}", "state": waiting} for number in range(MANY)]}
    took, found = least(lambda: fitted(status, MOST))
    assert {len(each["state"]["waiting"]["message"]) for each in found["containerStatuses"]} == {60}
    assert took < 0.12


def test_what_a_driver_says_of_devices_is_cut_too() -> None:
    """Messages about claimed devices were not looked at: 1,000 of a KiB made a status that is never sent."""
    resources = [{"resourceID": str(number), "health": "Unhealthy", "message": "x" * 1024} for number in range(100)]
    claimed = [{"name": "claim:a", "resources": resources}]
    status = {"containerStatuses": [{"name": "a", "state": {}, "allocatedResourcesStatus": claimed}]}
    found = fitted(status, MOST)["containerStatuses"][0]["allocatedResourcesStatus"][0]
    assert found["name"] == "claim:a" and {len(each["message"]) for each in found["resources"]} == {508}


def test_an_image_of_a_megabyte() -> None:
    """The API server takes one, also for a container that runs; its hash took 1 s, at each plan from then on."""
    long = container("a", image="x" * 1_400_000)
    took, found = least(lambda: container_hash(long))
    assert took < 0.05 and found != container_hash(container("a"))
    web = pod(long, restartPolicy="Always")
    ended = ObservedPod("u", (box(),), (one(web, "a", RunState.EXITED, annotations={HASH: "other"}, finished_at=1),))
    assert least(lambda: plan_pod(web, ended, FACTS))[0] < 0.05


def test_a_status_does_not_repeat_an_image_of_a_megabyte() -> None:
    """The pod had it twice then, which is more than the API server stores, and whose last status is refused for ever
    is not deleted."""
    web = pod(container("a", image="x" * 1_300_000))
    observed = ObservedPod("u", (box(),))
    shown = pod_status(web, observed, StatusInputs(FACTS, plan_pod(web, observed, FACTS)))
    assert shown["containerStatuses"][0]["image"] == "x" * labels.LONGEST_IMAGE


def test_hashes_are_kept_for_the_next_version_of_a_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def counted(of: Json) -> str:
        made.append(of["name"])
        return container_hash(of)

    monkeypatch.setattr(labels, "container_hash", counted)
    before = pod(container("a"), container("b"))
    after = pod(container("a"), container("b", image="other"), container("c"))
    wanted = [container_hash(each) for _, each in after.containers()]
    for _ in range(2):
        assert [hash_in(before, each) for _, each in before.containers()][:1] == wanted[:1]
    keep_hashes(before, after)
    for _ in range(2):
        assert [hash_in(after, each) for _, each in after.containers()] == wanted
    assert made == ["a", "b", "b", "c"]


def test_probes_of_a_pod_that_ran_before_the_agent() -> None:
    """The statuses of all its containers were looked through for each."""
    probe = {"tcpSocket": {"port": 80}, "periodSeconds": 10}
    statuses = [{"name": f"container-{number}", "containerID": f"containerd://{number}"} for number in range(MANY)]
    web = pod(*containers(readinessProbe=probe), status={"containerStatuses": statuses})
    states = {each.name: each for each in running(web).containers}

    def ensure() -> None:
        manager = ProbeManager(_NoIo(), _NoEvents(), lambda uid: None, FakeClock(), metrics(), Places(Gate()))  # type: ignore[arg-type]
        manager.ensure(web, states, ("10.0.0.1",))

    assert least(ensure)[0] < 0.7


async def test_the_large_pods_of_a_namespace_have_a_part_of_the_loop() -> None:
    used = [0.0]
    turns = PlanTurns(lambda: used[0])
    large, other, small, elsewhere = (turns.of(name) for name in ("a", "a", "a", "b"))

    def planned(seconds: float) -> None:
        for turn in (large, other, elsewhere):
            turn.begin()
        used[0] += seconds
        small.begin()
        for turn in (large, other, small):
            turn.end()

    planned(LARGE / 2)
    await asyncio.wait_for(large.wait(), 5)
    planned(10.0)
    for one_of_them in (large, other):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(one_of_them.wait(), 0.01)
    for free in (small, elsewhere):
        await asyncio.wait_for(free.wait(), 5)


class _NoIo:
    pass


class _NoEvents:
    pass
