"""Pods that the agent cannot take up: what runs of them is left alone, and all others go on."""

from __future__ import annotations

from typing import Any

import pytest

from agent.common.model.pods import Pod, RunState
from agent.pods.work.pod_workers import PodWorkers
from nodelib.json_values import Json
from tests.builders.pods import container
from tests.fakes.pod_world import World


def _limits(text: str) -> Any:
    def change(raw: Json) -> None:
        raw["spec"]["containers"][0]["resources"] = {"requests": {"memory": "1Mi"}, "limits": {"memory": text}}
        raw["metadata"]["generation"] = 2

    return change


def _creation(text: Any) -> Any:
    def change(raw: Json) -> None:
        raw["metadata"].update(creationTimestamp=text, generation=2)

    return change


def _field(name: str, value: Any) -> Any:
    def change(raw: Json) -> None:
        raw["spec"][name] = value
        raw["metadata"]["generation"] = 2

    return change


CHANGES = [
    pytest.param(_limits("1e3000000"), id="exponent"),
    pytest.param(_limits("many"), id="no quantity"),
    pytest.param(_field("terminationGracePeriodSeconds", "soon"), id="grace"),
    pytest.param(_field("terminationGracePeriodSeconds", float("inf")), id="endless grace"),
    pytest.param(_field("containers", 3), id="containers"),
]


@pytest.mark.parametrize("change", CHANGES)
async def test_pod_that_put_refuses(world: World, change: Any) -> None:
    uid = world.create()
    await world.until(world.is_ready)
    before = _held(world)
    await world.kill_agent()
    world.api.update(uid, change)
    await world.start_agent()
    good = world.create(name="good", uid="good")
    await world.until(lambda: world.phase(good) == "Running")
    await world.clock.advance(200)
    assert [one & {uid} for one in _held(world)] == before, "nothing of it is swept"
    assert world.phase(uid) == "Running"
    refusals = [text for _, reason, text in world.events.emitted if reason == "InvalidSpec"]
    assert len(refusals) == 1 and "its containers run on" in refusals[0]
    assert uid in {pod.uid for pod in world.registry.active()}, "what it holds is not given to another pod"

    world.api.ask_deletion(uid, 5)
    await world.until(lambda: uid not in world.api.pods)
    await world.until(lambda: not any(one & {uid} for one in _held(world)), seconds=200)


@pytest.mark.parametrize("change", CHANGES)
async def test_a_running_pod_that_put_refuses_ends_when_its_object_is_gone(world: World, change: Any) -> None:
    uid = world.create()
    await world.until(world.is_ready)
    await world.kill_agent()
    world.api.update(uid, change)
    await world.start_agent()
    await world.clock.advance(100)
    world.api.vanish(uid)
    await world.until(lambda: not any(_held(world)), seconds=200)


async def test_a_running_pod_whose_spec_becomes_unusable_can_be_deleted(world: World) -> None:
    uid = world.create()
    await world.until(world.is_ready)
    world.api.update(uid, _limits("1e3000000"))
    await world.clock.advance(100)
    assert world.cri.running() and world.phase(uid) == "Running"

    def ask(raw: Json) -> None:  # a deletion is a generation of its own
        raw["metadata"].update(deletionTimestamp="2026-01-01T00:00:30Z", deletionGracePeriodSeconds=5, generation=3)

    world.api.update(uid, ask)
    await world.until(lambda: uid not in world.api.pods)


@pytest.mark.parametrize("error", [RuntimeError("a defect"), ArithmeticError("InvalidOperation"), RecursionError()])
async def test_any_error_in_taking_up_one_pod_ends_no_pod(
    world: World, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = world.create(), world.create(name="second", uid="u2")
    await world.until(lambda: world.is_ready(first) and world.is_ready(second))
    before = _held(world)
    await world.kill_agent()
    start = PodWorkers._start

    def fails(workers: PodWorkers, pod: Pod) -> None:
        if pod.uid in (first, "new"):
            raise error
        start(workers, pod)

    monkeypatch.setattr(PodWorkers, "_start", fails)
    world.create(container("a"), name="new", uid="new")
    await world.start_agent()
    await world.clock.advance(200)
    assert [one & {first, second} for one in _held(world)] == before
    assert world.phase("new") == "Failed" and world.status("new")["reason"] == "InvalidSpec"
    world.api.ask_deletion("new", 1)
    world.api.ask_deletion(first, 1)
    await world.until(lambda: set(world.api.pods) == {second}, seconds=200)
    assert world.is_ready(second)


@pytest.mark.parametrize("text", ["", "yesterday", 7, "9999-99-99T00:00:00Z", "10000-01-01T00:00:00Z"])
async def test_a_creation_time_that_is_none_orders_no_pods_and_harms_none(world: World, text: Any) -> None:
    uid = world.create()
    await world.until(world.is_ready)
    await world.kill_agent()
    world.api.update(uid, _creation(text))
    await world.start_agent()
    await world.clock.advance(200)
    assert world.is_ready(uid)


def _held(world: World) -> list[set[str]]:
    """Of which pods are containers running, volumes mounted, cgroups made?"""
    running = {one.uid for one in world.cri.containers.values() if one.state is RunState.RUNNING}
    return [running, set(world.volumes.mounted), set(world.cgroups.made)]


@pytest.mark.parametrize(
    "status",
    [
        {"allocatedResources": {"memory": "1e3000000"}},
        {"allocatedResources": {"memory": None}},
        {"allocatedResources": 7},
        {"resources": {"requests": {"cpu": "many"}}},
        {"resources": []},
    ],
)
async def test_what_others_write_into_a_status_keeps_no_other_pod_from_the_node(world: World, status: Json) -> None:
    uid = world.create()
    await world.until(world.is_ready)
    world.api.update(uid, lambda raw: raw["status"].update(status))
    good = world.create(name="good", uid="good")
    await world.until(lambda: world.phase(good) == "Running")
