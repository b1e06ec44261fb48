"""Which metrics a pod's life produces, and how long its start is reported to have taken."""

from __future__ import annotations

import pytest

from agent.common.model.errors import CriError
from agent.common.model.pods import ImageFacts
from agent.pods.plan.startup_latency import has_started, is_stateful, start_times
from agent.pods.work.startup_latency import StartupLatencyTracker
from nodelib.json_values import Json
from nodelib.kube.times import parse_rfc3339
from tests.builders.metrics import metrics, series
from tests.builders.pods import container, pod
from tests.fakes.clock import FakeClock
from tests.fakes.pod_world import World

CREATED = "2026-01-01T00:00:00Z"
AT = parse_rfc3339(CREATED)


async def test_a_pods_life_is_measured(world: World) -> None:
    world.cri.registry["app:1"] = ImageFacts("sha256:2", ("app:1",), size=20 << 20)
    world.cri.before["pull_image"] = lambda reference: world.clock.sleep(3)
    world.create(container(image="app:1"), initContainers=[container("one")], terminationGracePeriodSeconds=1)
    await world.until(lambda: world.cri.running() == ["one"])
    world.cri.exit("one")
    await world.until(world.is_ready)
    measured = world.metrics
    assert series(measured, "kubelet_started_pods_total") == {(): 1}
    assert series(measured, "kubelet_containers_per_pod_count_sum") == {(): 1}
    assert series(measured, "kubelet_run_podsandbox_duration_seconds_count") == {("",): 1}
    assert series(measured, "kubelet_image_manager_ensure_image_requests_total") == {
        ("ifnotpresent", "true", "false"): 1,
        ("ifnotpresent", "false", "true"): 1,
    }
    assert series(measured, "kubelet_started_containers_total") == {("init_container",): 1, ("container",): 1}
    assert series(measured, "kubelet_image_pull_duration_seconds_count") == {("10MB-100MB",): 1}
    assert series(measured, "kubelet_image_pull_duration_seconds_sum")["10MB-100MB",] >= 3
    assert series(measured, "kubelet_pod_start_duration_seconds_count") == {(): 1}
    assert series(measured, "kubelet_pod_start_duration_seconds_sum")[()] >= 3
    assert series(measured, "kubelet_pod_start_total_duration_seconds_count") == {(): 1}
    assert series(measured, "kubelet_pod_start_sli_duration_seconds_count") == {(): 1}
    assert series(measured, "kubelet_pod_status_sync_duration_seconds_count")[()] > 0
    assert series(measured, "kubelet_pleg_relist_duration_seconds_count")[()] > 0
    synced = series(measured, "kubelet_pod_worker_duration_seconds_count")
    assert list(synced) == [("create",), ("sync",)] and synced["create",] == 1
    world.api.ask_deletion("u1", 1)
    await world.until(world.is_gone)
    assert list(series(measured, "kubelet_pod_worker_duration_seconds_count")) == [("create",), ("sync",), ("kill",)]


async def test_pods_with_their_own_users_are_counted_and_those_that_failed_once(world: World) -> None:
    def counted() -> tuple[float, float]:
        started = series(world.metrics, "kubelet_started_user_namespaced_pods_total")[()]
        return started, series(world.metrics, "kubelet_started_user_namespaced_pods_errors_total")[()]

    world.create()
    await world.until(world.is_ready)
    assert counted() == (0, 0)
    world.cri.fail["run_sandbox"] = [CriError("no")]
    world.cri.fail["start_container"] = [CriError("exec format error"), CriError("again")]
    world.create(uid="u2", name="own", hostUsers=False)
    await world.until(lambda: world.is_ready("u2"))
    assert counted() == (2, 2), "a sandbox that was not made, and one with a container that started at the third try"


async def test_failed_sandboxes_are_counted(world: World) -> None:
    world.cri.fail["run_sandbox"] = [CriError("no network")]
    world.create()
    await world.until(world.is_ready)
    assert series(world.metrics, "kubelet_started_pods_errors_total") == {(): 1}
    assert series(world.metrics, "kubelet_run_podsandbox_errors_total") == {("",): 1}
    assert series(world.metrics, "kubelet_run_podsandbox_duration_seconds_count") == {("",): 2}


async def test_failed_starts_are_counted_by_reason(world: World) -> None:
    world.cri.fail["start_container"] = [CriError("exec format error")]
    world.create()
    await world.until(world.is_ready)
    assert series(world.metrics, "kubelet_started_containers_errors_total") == {("container", "RunContainerError"): 1}


async def test_a_restarted_agent_does_not_measure_a_start_again(world: World) -> None:
    world.create()
    await world.until(world.is_ready)
    await world.kill_agent()
    world.metrics = metrics()
    await world.start_agent()
    await world.clock.advance(30)
    assert series(world.metrics, "kubelet_pod_start_duration_seconds_count") == {(): 0}
    assert series(world.metrics, "kubelet_pod_start_total_duration_seconds_count") == {(): 0}


def test_a_stateful_pod_is_not_part_of_the_startup_sli() -> None:
    measured, clock = metrics(), FakeClock()
    startups = StartupLatencyTracker(measured, clock)
    for path in ("/", "/tmp"):
        startups.appeared(pod(meta={"uid": path}))
        startups.shown(pod(volumes=[{"name": "v", "hostPath": {"path": path}}], meta={"uid": path}, status=started()))
    assert series(measured, "kubelet_pod_start_total_duration_seconds_count") == {(): 2}
    assert series(measured, "kubelet_pod_start_sli_duration_seconds_count") == {(): 0}


def started(**fields: Json) -> Json:
    return {"containerStatuses": [{"name": "main", "state": {"running": {"startedAt": CREATED}}}], **fields}


def test_a_pod_has_started_when_all_its_containers_have() -> None:
    assert has_started(pod(status=started()))
    assert not has_started(pod())
    waiting = {"name": "b", "state": {"waiting": {}}}
    assert not has_started(pod(status={"containerStatuses": [*started()["containerStatuses"], waiting]}))


@pytest.mark.parametrize(
    ("volume", "stateful"),
    [
        pytest.param({"emptyDir": {}}, False, id="emptydir"),
        pytest.param({"projected": {}}, False, id="projected"),
        pytest.param({"hostPath": {"path": "/"}}, True, id="hostpath"),
        pytest.param({"image": {}}, True, id="image"),
    ],
)
def test_stateful(volume: Json, stateful: bool) -> None:
    of = pod(volumes=[{"name": "v", **volume}], meta={"creationTimestamp": CREATED})
    assert is_stateful(of) is stateful
    assert (start_times(of, AT + 5, [])[1] is None) is stateful


def test_the_sli_leaves_out_pulls_and_init_containers() -> None:
    ran = {"terminated": {"startedAt": "2026-01-01T00:00:06Z", "finishedAt": "2026-01-01T00:00:08Z"}}
    side = {"name": "side", "state": ran}
    of = pod(
        initContainers=[{"name": "one"}, {"name": "side", "restartPolicy": "Always"}],
        meta={"creationTimestamp": CREATED},
        status=started(initContainerStatuses=[{"name": "one", "state": ran}, side]),  # type: ignore[arg-type]
    )
    pulls = [(AT + 1, AT + 3), (AT + 2, AT + 5), (AT + 2, AT + 4)]
    assert start_times(of, AT + 10, pulls) == (10, 4)
