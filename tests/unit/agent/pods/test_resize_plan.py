"""plan_resize as tables: allocated and actuated resources in; restarts, updates and refusals out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.common.model.pods import ContainerState, ObservedPod, Pod, RunState
from agent.common.model.states import Failure
from agent.pods.model.facts import Facts
from agent.pods.model.steps import Resize
from agent.pods.plan import resize
from agent.pods.plan.pod import plan_pod
from agent.pods.plan.resize import ResizeActions, SetContainerResources, SetPodLimits
from agent.resources.model import Allocation, ContainerResize, Limits, MemoryUse, Sizes
from agent.resources.plan.actuated import resources_of
from agent.resources.plan.allocation import allocation_of
from nodelib.json_values import Json
from tests.builders.pods import container, pod
from tests.unit.agent.pods.test_pod import NOW, facts, one, seen

MI = 1 << 20


def res(cpu: str = "", memory: str = "", max_cpu: str = "", max_memory: str = "") -> Json:
    sides = {"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": max_cpu, "memory": max_memory}}
    kept = {side: {name: text for name, text in given.items() if text} for side, given in sides.items()}
    return {side: given for side, given in kept.items() if given}


def with_resources(name: str, resources: Json, **fields: Any) -> Json:
    return container(name, resources=resources, **fields)


SMALL, LARGE = res("100m", "64Mi", "200m", "128Mi"), res("200m", "128Mi", "400m", "256Mi")
WAS = pod(with_resources("a", SMALL), with_resources("b", SMALL), restartPolicy="Always")


def now_wanting(of: Pod, **by_name: Json) -> Pod:
    spec = dict(of.spec)
    for listed in ("containers", "initContainers"):
        if spec.get(listed):
            spec[listed] = [
                {**one, "resources": by_name.get(one["name"], one.get("resources"))} for one in spec[listed]
            ]
    return Pod({**of.raw, "spec": spec})


def policies(**by_resource: str) -> Json:
    return {"resizePolicy": [{"resourceName": name, "restartPolicy": how} for name, how in by_resource.items()]}


def before(of: Pod, **fields: Any) -> Facts:
    stated = allocation_of(of)
    return facts(of, **{"actuated": stated, "cgroup_allocation": stated, **fields})


def words_of(due: ResizeActions) -> list[str]:
    words = [f"restart {kill.name}" for kill in due.restarts]
    if due.step is not None:
        words += [f"update {one.name}" for one in due.step.containers] or ["pod only"]
    return words


EXITED = RunState.EXITED


@pytest.mark.parametrize(
    ("was", "wanted", "containers", "expect"),
    [
        pytest.param(WAS, {}, ("a", "b"), [], id="nothing-to-do"),
        pytest.param(WAS, {"a": LARGE}, ("a", "b"), ["update a"], id="one-container"),
        pytest.param(WAS, {"a": LARGE, "b": LARGE}, ("a", "b"), ["update a", "update b"], id="two-containers"),
        pytest.param(WAS, {"a": LARGE}, ("b",), ["pod only"], id="not-running-starts-with-it"),
        pytest.param(
            WAS, {"a": res("0.1", "65536Ki", "0.2", "128Mi")}, ("a", "b"), [], id="same-amounts-otherwise-said"
        ),
        pytest.param(
            pod(with_resources("a", SMALL, **policies(memory="RestartContainer")), restartPolicy="Always"),
            {"a": LARGE},
            ("a",),
            ["restart a", "pod only"],
            id="restart-for-memory",
        ),
        pytest.param(
            pod(with_resources("a", SMALL, **policies(memory="RestartContainer")), restartPolicy="Always"),
            {"a": res("150m", "64Mi", "200m", "128Mi")},
            ("a",),
            ["update a"],
            id="policy-of-the-other-resource",
        ),
        pytest.param(
            pod(with_resources("a", SMALL, **policies(cpu="RestartContainer")), restartPolicy="Always"),
            {"a": res("100m", "64Mi", "300m", "128Mi")},
            ("a",),
            ["restart a", "pod only"],
            id="restart-for-a-cpu-limit",
        ),
        pytest.param(
            pod(
                with_resources("a", SMALL),
                initContainers=[with_resources("i", SMALL, **policies(cpu="RestartContainer"))],
            ),
            {"i": LARGE},
            ("i",),
            ["update i"],
            id="init-containers-never-restart",
        ),
        pytest.param(
            pod(
                with_resources("a", SMALL),
                initContainers=[with_resources("s", SMALL, restartPolicy="Always", **policies(cpu="RestartContainer"))],
            ),
            {"s": LARGE},
            ("s", "a"),
            ["restart s", "pod only"],
            id="sidecars-do",
        ),
    ],
)
def test_plan_resize(was: Pod, wanted: dict[str, Json], containers: tuple[str, ...], expect: list[str]) -> None:
    want = now_wanting(was, **wanted)
    assert words_of(resize.plan_resize(want, seen(*(one(was, name) for name in containers)), before(was))) == expect


def test_containers_that_are_killed_or_of_an_older_sandbox_are_not_resized() -> None:
    want = now_wanting(WAS, a=LARGE, b=LARGE)
    old = replace(one(WAS, "b"), sandbox_id="old")
    due = resize.plan_resize(want, seen(one(WAS, "a"), old), before(WAS), frozenset({"a0"}))
    assert words_of(due) == ["pod only"]


def test_nothing_is_resized_before_the_pod_has_a_cgroup() -> None:
    want = now_wanting(WAS, a=LARGE)
    assert not resize.plan_resize(want, seen(one(WAS, "a")), before(WAS, cgroup_allocation=None))
    assert not resize.plan_resize(want, seen(one(WAS, "a")), before(WAS, actuated=None))


def test_a_pod_level_limit_reaches_containers_without_one() -> None:
    was = pod(with_resources("a", res("10m", "16Mi")), resources=res("1", "1Gi", "1", "1Gi"))
    want = Pod({**was.raw, "spec": {**was.spec, "resources": res("2", "1Gi", "2", "1Gi")}})
    due = resize.plan_resize(want, seen(one(was, "a")), before(was))
    assert due.step is not None
    (update,) = due.step.containers
    assert (update.before.cpu_limit, update.after.cpu_limit) == (1000, 2000)
    assert update.after.memory_limit == 1 << 30


# --- the order of updates

PRESENT = Limits(cpu_shares=204, cpu_quota=40_000, cpu_period=100_000, memory=256 * MI, pids=7, hugepages={1: 2})


def sizes(cpu: int = 100, memory: int = 64, max_cpu: int = 200, max_memory: int = 128) -> Sizes:
    return Sizes(cpu, max_cpu, memory * MI, max_memory * MI)


def change(name: str, after: Sizes, was: Sizes | None = None) -> ContainerResize:
    return ContainerResize(f"{name}0", name, was or sizes(), after)


def words_of_updates(updates: list[resize.LimitUpdate]) -> list[str]:
    words = []
    for move in updates:
        match move:
            case SetPodLimits(limits):
                words.append(f"pod {limits.memory and limits.memory // MI}Mi {limits.cpu_shares} {limits.cpu_quota}")
            case SetContainerResources(_, name, given):
                words.append(f"{name} {given.memory_limit // MI}Mi {given.cpu_request} {given.cpu_limit}")
    return words


@pytest.mark.parametrize(
    ("updates", "wanted", "memory", "cpu"),
    [
        pytest.param(
            [change("a", sizes(200, 128, 400, 256))],
            Limits(306, 60_000, 100_000, 384 * MI),
            ["pod 384Mi 204 40000", "a 256Mi 100 200"],
            ["pod 384Mi 204 60000", "pod 384Mi 306 60000", "a 256Mi 200 400"],
            id="growing-the-pod-first",
        ),
        pytest.param(
            [change("a", sizes(50, 32, 100, 64))],
            Limits(153, 30_000, 100_000, 192 * MI),
            ["a 64Mi 100 200", "pod 192Mi 204 40000"],
            ["a 64Mi 50 100", "pod 192Mi 153 40000", "pod 192Mi 153 30000"],
            id="shrinking-the-pod-last",
        ),
        pytest.param(
            [change("a", sizes(max_memory=192)), change("b", sizes(max_memory=64))],
            Limits(204, 40_000, 100_000, 256 * MI),
            ["b 64Mi 100 200", "a 192Mi 100 200"],
            [],
            id="decreases-before-increases",
        ),
        pytest.param(
            [change("a", sizes(memory=32)), change("b", sizes(memory=48))],
            Limits(204, 40_000, 100_000, 256 * MI),
            ["b 128Mi 100 200", "a 128Mi 100 200"],
            [],
            id="requests-count-when-limits-stay",
        ),
        pytest.param(
            [change("a", sizes(cpu=200, max_cpu=100))],
            Limits(306, 30_000, 100_000, 256 * MI),
            [],
            ["pod 256Mi 306 40000", "a 128Mi 200 100", "pod 256Mi 306 30000"],
            id="requests-up-limits-down",
        ),
        pytest.param(
            [change("a", sizes(max_memory=64))],
            Limits(204, None, None, None),
            ["a 64Mi 100 200"],
            [],
            id="no-limit-of-the-pods-own",
        ),
        pytest.param([], Limits(306, 40_000, 100_000, 256 * MI), [], ["pod 256Mi 306 40000"], id="only-the-pod"),
    ],
)
def test_updates(updates: list[ContainerResize], wanted: Limits, memory: list[str], cpu: list[str]) -> None:
    step = Resize(tuple(updates), Allocation())
    first = resize.memory_updates(step, PRESENT, wanted)
    assert words_of_updates(first) == memory
    present = next((move.limits for move in reversed(first) if isinstance(move, SetPodLimits)), PRESENT)
    done = {one.name: one.after for one in updates}
    second = resize.cpu_updates(replace(step), present, wanted)
    assert words_of_updates(second) == cpu
    assert all(move.sizes == done[move.name] for move in second if isinstance(move, SetContainerResources))
    assert all(
        move.limits.pids == 7 and move.limits.hugepages == {1: 2}
        for move in first + second
        if isinstance(move, SetPodLimits)
    )


def test_a_pods_first_quota_is_set_after_its_containers() -> None:
    free = replace(PRESENT, cpu_quota=-1, memory=0)
    step = Resize((change("a", sizes(), Sizes(100, 0, 64 * MI, 0)),), Allocation())
    wanted = Limits(204, 20_000, 100_000, 128 * MI)
    assert words_of_updates(resize.memory_updates(step, free, wanted)) == ["a 128Mi 100 0", "pod 128Mi 204 -1"]
    after = replace(free, memory=128 * MI)
    assert words_of_updates(resize.cpu_updates(step, after, wanted)) == ["a 128Mi 100 200", "pod 128Mi 204 20000"]


@pytest.mark.parametrize(
    ("after", "wanted", "use", "problem"),
    [
        pytest.param(sizes(max_memory=256), 384, MemoryUse(1 << 40, {}), "", id="growing-asks-nothing"),
        pytest.param(sizes(max_memory=64), 192, MemoryUse(100 * MI, {"a0": 50 * MI}), "", id="enough-left"),
        pytest.param(
            sizes(max_memory=64),
            192,
            MemoryUse(100 * MI, {"a0": 64 * MI}),
            f'cannot decrease memory limits: attempting to set container "a" memory limit ({64 * MI}) '
            f"below current usage ({64 * MI})",
            id="container-uses-more",
        ),
        pytest.param(
            sizes(max_memory=64),
            192,
            MemoryUse(200 * MI, {}),
            "cannot decrease memory limits: [attempting to set pod memory limit "
            f'({192 * MI}) below current usage ({200 * MI}), missing container "a" memory usage]',
            id="pod-uses-more-and-nothing-known-of-the-container",
        ),
        pytest.param(
            sizes(max_memory=64), 192, MemoryUse(None, {"a0": 0}),
            "cannot decrease memory limits: missing pod memory usage", id="nothing-known-of-the-pod",
        ),
    ],
)  # fmt: skip
def test_memory_below_its_use_is_refused(after: Sizes, wanted: int, use: MemoryUse, problem: str) -> None:
    step = Resize((change("a", after),), Allocation())
    lower = resize.memory_decreases(step, PRESENT, Limits(memory=wanted * MI))
    assert (resize.decrease_problem(lower, use, {"a0": "a"}) if lower else "") == problem


def test_actuated_resources_keep_what_else_the_spec_states() -> None:
    stated = {"requests": {"cpu": "1", "memory": "1Gi", "x/gpu": "2"}, "limits": {"hugepages-2Mi": "4Mi", "x/gpu": "2"}}
    assert resources_of(Sizes(150, 0, 0, 64 * MI), stated) == {
        "requests": {"x/gpu": "2", "cpu": "150m", "memory": "0"},
        "limits": {"hugepages-2Mi": "4Mi", "x/gpu": "2", "memory": "64Mi"},
    }


# --- in the plan of the pod


def steps_of(want: Pod, observed: ObservedPod, known: Facts) -> list[str]:
    return [type(step).__name__ for step in plan_pod(want, observed, known).steps]


def both(*states: ContainerState) -> ObservedPod:
    return seen(*states)


def test_a_resize_comes_before_starts_and_after_kills() -> None:
    want = now_wanting(WAS, a=LARGE, b=LARGE)
    dead = one(WAS, "b", EXITED)
    assert steps_of(want, both(one(WAS, "a"), dead), before(WAS)) == ["Resize"]
    after = before(WAS, actuated=allocation_of(want), cgroup_allocation=allocation_of(want))
    assert steps_of(want, both(one(WAS, "a"), dead), after) == ["EnsureImage"]
    restarting = pod(with_resources("a", SMALL, **policies(cpu="RestartContainer")), with_resources("b", SMALL))
    wants = now_wanting(restarting, a=LARGE, b=LARGE)
    running = both(one(restarting, "a"), one(restarting, "b"))
    plan = plan_pod(wants, running, before(restarting))
    assert [type(step).__name__ for step in plan.steps] == ["Kill"]
    assert plan.reason == "Container a resize requires restart"


def test_a_failed_resize_waits_and_blocks_nothing_else() -> None:
    want = now_wanting(WAS, a=LARGE)
    failed = before(WAS, resize_failure=Failure("Error", "busy", NOW + 10))
    plan = plan_pod(want, both(one(WAS, "a"), one(WAS, "b", EXITED)), failed)
    assert [type(step).__name__ for step in plan.steps] == ["EnsureImage"]
    assert plan.wait_until == NOW + 10
    again = before(WAS, resize_failure=Failure("Error", "busy", NOW))
    assert steps_of(want, both(one(WAS, "a"), one(WAS, "b")), again) == ["Resize"]
