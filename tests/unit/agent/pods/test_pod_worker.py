"""The whole pod pipeline over a fake runtime and a fake API, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from agent.common.model.errors import CriError, CriUnavailable
from agent.common.model.pods import ExecResult, ImageFacts, Pod, ProbeState, RunState
from nodelib.kube.client import ApiError, ApiUnreachable
from tests.builders.metrics import series
from tests.builders.pods import container
from tests.fakes.clock import settle
from tests.fakes.pod_world import IMAGE, World


async def test_a_pod_lives_from_creation_to_deletion(world: World) -> None:
    uid = world.create(terminationGracePeriodSeconds=5)
    await world.until(world.is_ready)
    status = world.status()
    assert status["phase"] == "Running"
    assert status["podIP"].startswith("10.244.0.")
    assert status["hostIP"] == "10.89.0.11"
    assert world.container_status()["restartCount"] == 0
    assert world.events.reasons() == ["Pulled", "Created", "Started"]
    world.api.ask_deletion(uid, 5)
    await world.until(world.is_gone)
    assert world.api.statuses[-1]["phase"] == "Failed"
    assert world.api.statuses[-1]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 143
    assert not world.volumes.mounted
    assert not world.cgroups.made


async def test_no_step_before_ready_waits_for_time_to_pass(world: World) -> None:
    world.create()
    await settle(300)
    assert world.is_ready()


async def test_init_containers_run_one_after_the_other(world: World) -> None:
    world.create(initContainers=[container("one"), container("two")])
    await world.until(lambda: world.cri.running() == ["one"])
    await settle(200)
    assert world.cri.done("start_container") == ["one/0"]
    assert world.container_status()["state"] == {"waiting": {"reason": "PodInitializing"}}
    world.cri.exit("one")
    await world.until(lambda: world.cri.running() == ["two"])
    world.cri.exit("two")
    await world.until(world.is_ready)
    assert world.condition("Initialized") == "True"


async def test_an_init_container_that_fails_for_good_fails_the_pod(world: World) -> None:
    world.create(initContainers=[container("one")], restartPolicy="Never")
    await world.until(lambda: world.cri.running() == ["one"])
    world.cri.exit("one", 1)
    await world.until(lambda: world.phase() == "Failed")
    assert world.cri.done("start_container") == ["one/0"]


async def test_sidecars_start_before_and_stop_after_the_main_container(world: World) -> None:
    uid = world.create(
        initContainers=[container("side", restartPolicy="Always")],
        restartPolicy="Never",
        terminationGracePeriodSeconds=9,
    )
    await world.until(world.is_ready)
    assert world.cri.done("start_container") == ["side/0", "main/0"]
    world.cri.exit("main", 0)
    await world.until(lambda: world.phase() == "Succeeded")
    assert world.cri.running() == []
    assert world.cri.starts[uid, "side", 0] == 1


async def test_all_pre_stop_hooks_start_at_once_and_sidecars_still_stop_in_order(world: World) -> None:
    hook = {"preStop": {"sleep": {"seconds": 5}}}
    sidecars = [container(name, restartPolicy="Always", lifecycle=hook) for name in ("first", "second")]
    uid = world.create(container("main"), initContainers=sidecars, terminationGracePeriodSeconds=30)
    await world.until(world.is_ready)
    began = world.clock.monotonic()
    world.api.ask_deletion(uid, 30)
    await world.until(lambda: world.is_gone(uid))
    assert world.clock.monotonic() - began < 8  # one after the other, the hooks alone would take 10 s


async def test_sidecars_whose_pre_stop_hooks_never_end_are_all_killed_after_the_grace(world: World) -> None:
    hook = {"preStop": {"sleep": {"seconds": 600}}}
    sidecars = [container(name, restartPolicy="Always", lifecycle=hook) for name in ("first", "second", "third")]
    world.create(container("main"), initContainers=sidecars, restartPolicy="Never", terminationGracePeriodSeconds=30)
    await world.until(world.is_ready)
    world.cri.ignores_term |= {"first", "second", "third"}
    world.cri.exit("main")
    began = world.clock.monotonic()
    await world.until(lambda: world.phase() == "Succeeded")
    assert 32 <= world.clock.monotonic() - began < 34  # the grace, and what SIGTERM is given at least
    ends = [world.container_status(name)["state"]["terminated"] for name in ("first", "second", "third")]
    assert {one["exitCode"] for one in ends} == {137}
    assert len({one["finishedAt"] for one in ends}) == 1


@pytest.mark.parametrize(
    ("policy", "code", "phase", "restarts"),
    [
        pytest.param("Never", 0, "Succeeded", False, id="never-success"),
        pytest.param("Never", 3, "Failed", False, id="never-failure"),
        pytest.param("OnFailure", 0, "Succeeded", False, id="on-failure-success"),
        pytest.param("OnFailure", 3, "Running", True, id="on-failure-failure"),
        pytest.param("Always", 0, "Running", True, id="always-success"),
    ],
)
async def test_restart_policy(world: World, policy: str, code: int, phase: str, restarts: bool) -> None:
    world.create(restartPolicy=policy)
    await world.until(lambda: world.cri.running() == ["main"])
    world.cri.exit("main", code)
    await world.until(lambda: bool(world.cri.running()) is restarts and world.phase() == phase)
    assert world.cri.done("start_container") == (["main/0", "main/1"] if restarts else ["main/0"])


async def test_restarts_back_off_from_ten_seconds(world: World) -> None:
    world.create()
    waits = []
    for attempt in range(4):
        began = world.clock.now()
        await world.until(lambda: world.cri.running() == ["main"], step=1)
        waits.append(round(world.clock.now() - began))
        world.cri.exit("main", 1)
        await settle(100)
        if attempt:
            waiting = world.container_status()["state"]["waiting"]
            assert waiting["reason"] == "CrashLoopBackOff"
            assert f"back-off {10 * 2 ** (attempt - 1)}s restarting failed container=main" in waiting["message"]
    assert waits[:2] == [0, 0]
    assert 9 <= waits[2] <= 11
    assert 19 <= waits[3] <= 21
    assert world.container_status()["lastState"]["terminated"]["exitCode"] == 1


async def test_a_changed_image_restarts_only_that_container(world: World) -> None:
    world.cri.images["busybox:2"] = ImageFacts("sha256:2")
    uid = world.create(container("a"), container("b"))
    await world.until(world.is_ready)
    world.api.update(uid, lambda raw: raw["spec"]["containers"][0].update(image="busybox:2"))
    await world.until(lambda: "a/1" in world.cri.done("start_container"))
    assert world.cri.done("start_container").count("b/0") == 1
    assert "b/1" not in world.cri.done("start_container")


async def test_a_failed_liveness_probe_restarts_the_container(world: World) -> None:
    uid = world.create(container("main", livenessProbe={"exec": {}}))
    await world.until(lambda: world.cri.running() == ["main"])
    first = next(iter(world.cri.containers.values())).id
    world.probes.answers[uid] = {first: ProbeState(started=True, ready=True, live=False)}
    world.registry.wake(uid)
    await world.until(lambda: world.cri.starts[uid, "main", 1] == 1)
    assert ("Normal", "Killing", "Container main failed liveness probe, will be restarted") in world.events.emitted


async def test_a_container_stopped_to_be_restarted_is_never_shown_as_terminated(world: World) -> None:
    """The API server lets a container that ended with 0 under OnFailure never be shown running again."""
    world.cri.term_codes["main"] = 0
    uid = world.create(restartPolicy="OnFailure")
    await world.until(world.is_ready)
    world.api.update(uid, lambda raw: raw["spec"]["containers"][0].update(image=IMAGE + "-new"))
    world.cri.images[IMAGE + "-new"] = ImageFacts("sha256:2", (IMAGE + "-new",))
    await world.until(lambda: world.container_status().get("restartCount") == 1)
    assert world.phase() == "Running"
    shown = [status["containerStatuses"][0]["state"] for status in world.api.statuses if "containerStatuses" in status]
    assert not any("terminated" in state for state in shown)
    assert world.container_status()["lastState"]["terminated"]["exitCode"] == 0


async def test_an_image_changed_after_a_failed_startup_probe_runs_with_policy_on_failure(world: World) -> None:
    world.cri.term_codes["main"] = 0
    world.cri.images["other:2"] = ImageFacts("sha256:2", ("other:2",))
    uid = world.create(container("main", startupProbe={"exec": {}}), restartPolicy="OnFailure")
    await world.until(lambda: world.cri.running() == ["main"])
    first = next(iter(world.cri.containers.values())).id
    world.cri.before["start_container"] = lambda what: world.clock.sleep(2)  # made, and not started for a while
    world.probes.answers[uid] = {first: ProbeState(started=False, ready=False, live=False)}
    world.registry.wake(uid)
    await world.until(lambda: world.container_status().get("restartCount") == 1 and world.cri.running() == ["main"])
    world.api.update(uid, lambda raw: raw["spec"]["containers"][0].update(image="other:2"))
    await world.until(lambda: world.container_status().get("restartCount") == 2, seconds=30)
    assert world.container_status()["imageID"] == "sha256:2" and world.phase() == "Running"


async def test_readiness_follows_the_probe(world: World) -> None:
    uid = world.create(container("main", readinessProbe={"exec": {}}))
    await world.until(lambda: world.phase() == "Running")
    assert not world.is_ready()
    one = next(iter(world.cri.containers.values())).id
    world.probes.answers[uid] = {one: ProbeState(started=True, ready=True)}
    world.registry.wake(uid)
    await world.until(world.is_ready, seconds=0.1)


async def test_a_missing_volume_is_reported_and_tried_again(world: World) -> None:
    world.volumes.missing = 'configmap "x" not found'
    world.create()
    await world.until(lambda: "FailedMount" in world.events.reasons())
    assert world.cri.done("run_sandbox") == []
    world.volumes.missing = ""
    await world.until(world.is_ready, seconds=15)


async def test_the_sandbox_is_made_while_a_token_is_awaited(world: World) -> None:
    world.volumes.slow = asyncio.Event()
    world.create()
    await world.until(lambda: len(world.cri.done("run_sandbox")) == 1)
    await settle(100)
    assert world.cri.done("create_container") == []
    world.volumes.slow.set()
    await world.until(world.is_ready)


async def test_no_container_starts_without_its_token_which_is_requested_again(world: World) -> None:
    world.volumes.refused = 3
    uid = world.create()
    await world.until(lambda: world.events.reasons().count("FailedMount") == 3)
    assert world.cri.done("create_container") == []
    await world.until(world.is_ready, seconds=30)
    assert world.cri.done("run_sandbox") == ["web/0"]
    world.api.ask_deletion(uid, 1)
    await world.until(world.is_gone)


async def test_a_failed_sandbox_is_still_reported_once_the_volumes_are_mounted(world: World) -> None:
    """They are filled beside it: their success says nothing of the network."""
    world.volumes.slow = asyncio.Event()
    world.cri.fail["run_sandbox"] = [CriError("no network", code="UNKNOWN")]
    uid = world.create()
    await world.until(lambda: "FailedCreatePodSandBox" in world.events.reasons())
    world.volumes.slow.set()
    await settle(50)
    memory = world.registry.memory(uid)
    assert memory is not None and memory.prepared is not None
    assert memory.blocked is not None and memory.blocked.reason == "FailedCreatePodSandBox"
    await world.until(world.is_ready, seconds=15)


async def test_a_pod_deleted_before_it_got_its_token_leaves_nothing_behind(world: World) -> None:
    world.volumes.slow = asyncio.Event()
    uid = world.create()
    await world.until(lambda: len(world.cri.done("run_sandbox")) == 1)
    world.api.ask_deletion(uid, 1)
    await settle(50)
    world.volumes.slow.set()
    await world.until(world.is_gone)
    assert world.cri.done("create_container") == []
    assert not world.cgroups.made and not world.volumes.mounted and not world.cri.sandboxes


async def test_a_changed_volume_source_is_tried_at_once(world: World) -> None:
    world.volumes.missing = 'configmap "x" not found'
    uid = world.create()
    for _ in range(20):
        await world.clock.advance(5)
    world.volumes.missing = ""
    world.registry.refresh(uid)
    await settle(300)
    assert world.is_ready()


async def test_a_container_with_a_bad_configuration_waits_and_says_why(world: World) -> None:
    world.configs.bad_config = 'secret "x" not found'
    world.create()
    await world.until(lambda: "Failed" in world.events.reasons())
    await settle(50)
    assert world.container_status()["state"]["waiting"] == {
        "reason": "CreateContainerConfigError",
        "message": 'secret "x" not found',
    }
    world.configs.bad_config = ""
    await world.until(world.is_ready, seconds=15)


@pytest.mark.parametrize(
    ("policy", "reasons"),
    [
        pytest.param("Never", ["ErrImageNeverPull"], id="never"),
        pytest.param("IfNotPresent", ["ErrImagePull", "ImagePullBackOff"], id="not-in-registry"),
    ],
)
async def test_a_missing_image_says_why(world: World, policy: str, reasons: list[str]) -> None:
    world.create(container("main", image="nowhere:1", imagePullPolicy=policy))
    for reason in reasons:
        await world.until(
            lambda reason=reason: world.container_status().get("state", {}).get("waiting", {}).get("reason") == reason
        )
    assert world.cri.done("create_container") == []
    assert bool(world.cri.done("pull_image")) is (policy != "Never")


def with_image_volume(policy: str = "Always") -> Any:
    volume = {"name": "data", "image": {"reference": "r/data:1", "pullPolicy": policy}}
    return container(volumeMounts=[{"name": "data", "mountPath": "/data"}]), {"volumes": [volume]}


async def test_the_image_of_a_volume_is_pulled_first_and_mounted_by_its_id(world: World) -> None:
    world.cri.images["r/data:1"] = ImageFacts("sha256:old", ("r/data:1",))
    world.cri.registry["r/data:1"] = ImageFacts("sha256:new", ("r/data:1",))
    made, spec = with_image_volume()
    world.create(made, **spec)
    await world.until(world.is_ready)
    assert world.cri.done("pull_image") == ["r/data:1"]
    (one,) = world.cri.containers.values()
    assert one.mounts == ({"image": {"image": "sha256:new"}},)
    world.cri.exit("main", 1)
    await world.until(lambda: world.container_status().get("restartCount") == 1)
    assert world.cri.done("pull_image") == ["r/data:1"] * 2, "Always means for every attempt"


async def test_image_volumes_are_counted_as_their_containers_start(world: World) -> None:
    world.cri.registry["r/data:1"] = ImageFacts("sha256:new", ("r/data:1",))
    world.cri.fail["create_container"] = [CriError("ImageVolumeMountFailed: no such layer")]
    made, spec = with_image_volume()
    world.create(made, **spec)
    await world.until(world.is_ready)
    world.create(uid="u2", name="without")
    await world.until(lambda: world.is_ready("u2"))
    counted = [
        series(world.metrics, f"kubelet_image_volume_{what}_total")[()]
        for what in ("requested", "mounted_errors", "mounted_succeed")
    ]
    assert counted == [2, 1, 1]


@pytest.mark.parametrize(
    ("policy", "reasons"),
    [
        pytest.param("Never", ["ErrImageNeverPull"], id="never"),
        pytest.param("Always", ["ErrImagePull", "ImagePullBackOff"], id="not-in-registry"),
    ],
)
async def test_a_volume_whose_image_is_missing_says_why(world: World, policy: str, reasons: list[str]) -> None:
    made, spec = with_image_volume(policy)
    world.create(made, **spec)
    for reason in reasons:
        await world.until(
            lambda reason=reason: world.container_status().get("state", {}).get("waiting", {}).get("reason") == reason
        )
    assert not world.cri.done("create_container")
    world.cri.registry["r/data:1"] = world.cri.images["r/data:1"] = ImageFacts("sha256:new", ("r/data:1",))
    await world.until(world.is_ready, seconds=60)


async def test_an_invalid_image_name_is_reported_and_never_pulled(world: World) -> None:
    world.create(container("main", image="Not An Image"))
    await world.until(
        lambda: world.container_status().get("state", {}).get("waiting", {}).get("reason") == "InvalidImageName"
    )
    await world.clock.advance(60)
    assert world.cri.done("pull_image") == world.cri.done("create_container") == []


async def test_pull_back_off_doubles_until_the_pull_succeeds(world: World) -> None:
    world.create(container("main", image="late:1"))
    began = world.clock.now()
    await world.until(lambda: len(world.cri.done("pull_image")) == 2, step=1)
    assert 9 <= world.clock.now() - began <= 11
    world.cri.registry["late:1"] = ImageFacts("sha256:9", size=5)
    await world.until(world.is_ready, step=1)
    assert len(world.cri.done("pull_image")) == 3
    assert 28 <= world.clock.now() - began <= 32, "10 s, then 20 s"


async def test_a_hanging_pull_delays_no_other_container_of_the_pod(world: World) -> None:
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    world.cri.before["pull_image"] = lambda what: never
    uid = world.create(container("slow", image="slow:1"), container("main"))
    await world.until(lambda: world.cri.running() == ["main"])
    assert world.cri.done("start_container") == ["main/0"]
    world.api.ask_deletion(uid, 1)
    await world.until(world.is_gone)


@pytest.mark.parametrize(
    "method", ["run_sandbox", "create_container", "start_container", "image_status", "list_containers"]
)
async def test_a_call_that_fails_once_is_repeated_and_starts_nothing_twice(world: World, method: str) -> None:
    world.cri.fail[method] = [CriError("it broke", code="UNKNOWN")]
    world.create()
    await world.until(world.is_ready, seconds=40)
    assert max(world.cri.starts.values()) == 1


async def test_a_step_whose_outcome_is_not_yet_seen_is_not_done_again(world: World) -> None:
    # The container starts, but the runtime does not answer afterwards: no second one may be started.
    def then_silence(_: str) -> None:
        world.cri.fail["list_containers"] = [CriUnavailable("gone", code="UNAVAILABLE") for _ in range(6)]

    world.cri.before["start_container"] = then_silence
    world.create()
    await world.until(world.is_ready, seconds=60)
    assert world.cri.done("start_container") == ["main/0"]


@pytest.mark.parametrize("bend", ["drop_events", "double_events"])
async def test_lost_and_repeated_runtime_events_do_no_harm(world: World, bend: str) -> None:
    setattr(world.cri, bend, True)
    uid = world.create()
    await world.until(world.is_ready)
    world.cri.exit("main", 1)
    await world.until(lambda: world.cri.starts[uid, "main", 1] == 1, seconds=30)
    assert max(world.cri.starts.values()) == 1


async def test_a_broken_event_stream_causes_an_audit_at_once(world: World) -> None:
    world.create()
    await world.until(world.is_ready)
    world.cri.drop_events = True
    world.cri.exit("main", 1)
    world.cri.break_stream()
    await settle(200)
    assert world.cri.done("start_container") == ["main/0", "main/1"]


async def test_a_dead_sandbox_is_replaced(world: World) -> None:
    uid = world.create()
    await world.until(world.is_ready)
    world.cri.kill_sandbox(uid)
    await world.until(lambda: world.cri.running() == ["main"])
    assert world.cri.done("run_sandbox") == ["web/0", "web/1"]
    assert "SandboxChanged" in world.events.reasons()


async def test_a_finished_pod_gets_no_new_sandbox(world: World) -> None:
    uid = world.create(restartPolicy="Never")
    await world.until(lambda: world.cri.running() == ["main"])
    world.cri.exit("main", 0)
    world.cri.kill_sandbox(uid)
    await world.until(lambda: world.phase() == "Succeeded")
    await world.clock.advance(30)
    assert world.cri.done("run_sandbox") == ["web/0"]
    assert world.status()["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0


async def test_a_container_is_killed_once_its_grace_is_over(world: World) -> None:
    world.cri.ignores_term.add("main")
    uid = world.create(terminationGracePeriodSeconds=30)
    await world.until(world.is_ready)
    world.api.ask_deletion(uid, 30)
    await world.clock.advance(20)
    assert world.cri.running() == ["main"]
    await world.until(world.is_gone, seconds=15)


async def test_a_container_that_outlives_its_kill_is_ended_by_the_agent(world: World) -> None:
    """The runtime's SIGKILL reaches a fork bomb's first process only when that one gets its turn."""
    over = asyncio.Event()
    world.cri.before["stop_container"] = lambda what: over.wait()
    world.cgroups.on_end = lambda container_id: over.set()
    uid = world.create(terminationGracePeriodSeconds=5)
    await world.until(world.is_ready)
    world.api.ask_deletion(uid, 5)
    await world.clock.advance(14)
    assert world.cgroups.ended == []
    await world.until(world.is_gone, seconds=10)
    (one,) = world.cgroups.ended
    assert one[0] == uid


async def test_a_second_deletion_can_shorten_the_grace(world: World) -> None:
    world.cri.ignores_term.add("main")
    uid = world.create(terminationGracePeriodSeconds=600)
    await world.until(world.is_ready)
    world.api.ask_deletion(uid, 600)
    await world.clock.advance(5)
    world.api.ask_deletion(uid, 3)
    await world.until(world.is_gone, seconds=10)


async def test_a_pre_stop_hook_uses_up_part_of_the_grace(world: World) -> None:
    world.cri.before["exec_sync"] = lambda what: world.clock.sleep(4)
    hook = {"exec": {"command": ["drain"]}}
    uid = world.create(container("main", lifecycle={"preStop": hook}), terminationGracePeriodSeconds=10)
    await world.until(world.is_ready)
    world.api.ask_deletion(uid, 10)
    await world.until(world.is_gone, seconds=20)
    one = world.cri.done("stop_container")[0]
    assert one.split()[1] == "6"
    assert world.cri.done("exec_sync") == ["drain"]


async def test_a_pre_stop_hook_longer_than_the_grace_runs_until_its_container_has_stopped(world: World) -> None:
    ended: list[float] = []

    async def drain(what: str) -> None:
        try:
            await world.clock.sleep(600)
        finally:
            ended.append(world.clock.monotonic())

    world.cri.before["exec_sync"] = drain
    hook = {"exec": {"command": ["drain"]}}
    uid = world.create(container("main", lifecycle={"preStop": hook}), terminationGracePeriodSeconds=10)
    await world.until(world.is_ready)
    world.cri.ignores_term.add("main")
    began = world.clock.monotonic()
    world.api.ask_deletion(uid, 10)
    await world.until(world.is_gone, seconds=20)
    assert [round(at - began) for at in ended] == [12]  # the grace, and the least that SIGTERM is given


async def test_a_container_is_shown_running_and_probed_only_after_its_post_start_hook(
    world: World,
) -> None:
    world.cri.before["exec_sync"] = lambda what: world.clock.sleep(9)
    hook = {"postStart": {"exec": {"command": ["warm", "up"]}}}
    world.create(container("main", lifecycle=hook, livenessProbe={"exec": {}}), container("other"))
    await world.until(lambda: world.cri.running() == ["main"])
    await world.clock.advance(5)
    assert world.cri.running() == ["main"]
    assert world.container_status()["state"] == {"waiting": {"reason": "ContainerCreating"}}
    assert world.phase() == "Pending" and "main" not in world.probes.ensured
    await world.until(lambda: "running" in world.container_status()["state"], seconds=10)
    await world.until(lambda: world.phase() == "Running" and "main" in world.probes.ensured)
    shown = [one["state"] for status in world.api.statuses for one in status.get("containerStatuses") or []]
    assert {"waiting", "running"} == {key for state in shown for key in state}


async def test_a_failing_post_start_hook_kills_the_container(world: World) -> None:
    world.cri.exec_results[("init",)] = ExecResult(1, b"", b"no")
    uid = world.create(container("main", lifecycle={"postStart": {"exec": {"command": ["init"]}}}))
    await world.until(lambda: "FailedPostStartHook" in world.events.reasons())
    await world.until(lambda: not world.cri.running())
    world.cri.exec_results.clear()
    await world.until(world.is_ready, seconds=60)
    assert world.cri.starts[uid, "main", 1] == 1


async def test_a_pod_deleted_by_force_is_terminated(world: World) -> None:
    uid = world.create()
    await world.until(world.is_ready)
    world.api.vanish(uid)
    await world.until(world.is_gone)


async def test_a_pod_is_not_gone_before_its_volumes_are_unmounted(world: World) -> None:
    uid = world.create(terminationGracePeriodSeconds=1)
    await world.until(world.is_ready)
    world.volumes.release_fails = 3
    world.api.ask_deletion(uid, 1)
    await settle(200)
    assert uid in world.api.pods
    await world.until(world.is_gone, seconds=30)
    assert "FailedKillPod" in world.events.reasons()


async def test_warnings_can_be_repeated_once_a_pod_is_released(world: World) -> None:
    uid = world.create(terminationGracePeriodSeconds=1)
    await world.until(world.is_ready)
    subject = Pod(world.api.pods[uid])
    world.deps.resources.warnings.warn_once(subject, "Once", "x")
    world.api.ask_deletion(uid, 1)
    await world.until(world.is_gone, seconds=30)
    world.deps.resources.warnings.warn_once(subject, "Once", "x")
    assert world.events.reasons().count("Once") == 2


async def test_the_deadline_fails_the_pod(world: World) -> None:
    world.create(activeDeadlineSeconds=20)
    await world.until(world.is_ready)
    await world.until(lambda: world.phase() == "Failed", seconds=30)
    assert world.status()["reason"] == "DeadlineExceeded"
    assert world.cri.running() == []


async def test_an_ephemeral_container_is_started_once(world: World) -> None:
    uid = world.create()
    await world.until(world.is_ready)
    world.api.update(uid, lambda raw: raw["spec"].update(ephemeralContainers=[container("debug")]))
    await world.until(lambda: world.cri.running() == ["debug", "main"])
    world.cri.exit("debug", 1)
    await world.clock.advance(60)
    assert world.cri.running() == ["main"]
    assert world.container_status("debug")["state"]["terminated"]["exitCode"] == 1


async def test_a_pod_that_does_not_fit_is_rejected(world: World) -> None:
    world.create(container("main", resources={"requests": {"cpu": "3"}}))
    await world.until(lambda: world.phase() == "Failed")
    assert world.status()["reason"] == "OutOfcpu"
    assert world.status()["message"].startswith("Pod was rejected: Node didn't have enough resource: cpu")
    assert world.cri.dump() == []


async def test_pods_start_while_the_api_server_is_unreachable(world: World) -> None:
    away = ApiUnreachable("no answer")
    world.api.fail = [away] * 5
    world.create()
    await world.until(lambda: world.cri.running() == ["main"], seconds=5)
    await world.until(world.is_ready, seconds=30)
    assert world.api.fail == [] and world.cri.done("start_container") == ["main/0"]


async def test_no_status_is_sent_after_a_conflict(world: World) -> None:
    world.api.fail = [ApiError(409, "Conflict", "another uid")]
    world.create()
    await world.until(lambda: world.cri.running() == ["main"])
    await world.clock.advance(30)
    assert world.api.fail == [] and world.api.statuses == []
    assert world.cri.running() == ["main"]


async def test_orphaned_pods_are_terminated_and_cleaned_up(world: World) -> None:
    world.create()
    await world.until(world.is_ready)
    await world.kill_agent()
    world.api.pods.clear()
    await world.start_agent()
    await world.until(lambda: not world.cri.dump())
    await world.until(lambda: not world.volumes.mounted and not world.cgroups.made)


async def test_a_restart_of_the_agent_disturbs_no_pod(world: World) -> None:
    uid = world.create(container("main", readinessProbe={"exec": {}}), initContainers=[container("one")])
    await world.until(lambda: world.cri.running() == ["one"])
    world.cri.exit("one")
    await world.until(lambda: world.cri.running() == ["main"])
    one = next(one for one in world.cri.containers.values() if one.name == "main").id
    world.probes.answers[uid] = {one: ProbeState(started=True, ready=True)}
    world.registry.wake(uid)
    await world.until(world.is_ready)
    world.probes.answers.clear()
    sent, calls = len(world.api.statuses), len(world.cri.done("start_container"))
    for _ in range(3):
        await world.kill_agent()
        await world.start_agent()
        await world.clock.advance(25)
    assert world.is_ready()
    assert len(world.cri.done("start_container")) == calls
    assert [status for status in world.api.statuses[sent:] if not _ready(status)] == []


async def test_back_off_survives_a_restart_of_the_agent(world: World) -> None:
    world.create()
    for _ in range(3):
        await world.until(lambda: world.cri.running() == ["main"], step=1)
        world.cri.exit("main", 1)
        await settle(50)
    await world.kill_agent()
    await world.start_agent()
    await world.clock.advance(15)
    assert world.cri.running() == []
    await world.until(lambda: world.cri.running() == ["main"], seconds=10)


_POINTS = ["run_sandbox", "sandbox_status", "image_status", "create_container", "start_container", "container_status"]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("point", _POINTS)
async def test_an_agent_killed_at_any_call_starts_nothing_twice(point: str, after: bool) -> None:
    world = World()
    await world.start_agent()
    reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    _stop_at(world, point, reached, after)
    uid = world.create(container("a"), container("b"))
    await asyncio.wait_for(reached, 5)
    world.cri.before.clear()
    await world.kill_agent()
    await world.start_agent()
    await world.until(world.is_ready, seconds=60)
    await world.clock.advance(30)
    assert world.cri.running() == ["a", "b"]
    assert max(world.cri.starts.values()) == 1
    assert [world.container_status(name)["restartCount"] for name in ("a", "b")] == [0, 0]
    assert sum(one.ready for one in world.cri.sandboxes.values()) == 1
    world.api.ask_deletion(uid, 2)
    await world.until(world.is_gone)
    await world.kill_agent()


def _stop_at(world: World, point: str, reached: asyncio.Future[None], after: bool) -> None:
    """Hold the call forever, before or after it has acted, and say so."""
    held: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def hold(_: str) -> asyncio.Future[None]:
        if not reached.done():
            reached.set_result(None)
        return held

    if not after:
        world.cri.before[point] = hold
        return
    real: Callable[..., Any] = getattr(world.cri, point)

    async def act_and_hold(*args: Any) -> Any:
        result = await real(*args)
        if not reached.done():
            reached.set_result(None)
            await held
        return result

    setattr(world.cri, point, act_and_hold)


@pytest.mark.parametrize("point", ["stop_container", "stop_sandbox", "remove_container", "remove_sandbox"])
async def test_a_termination_goes_on_after_the_agent_is_killed(point: str) -> None:
    world = World()
    await world.start_agent()
    uid = world.create()
    await world.until(world.is_ready)
    reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    _stop_at(world, point, reached, False)
    world.api.ask_deletion(uid, 2)
    await world.until(reached.done)
    world.cri.before.clear()
    await world.kill_agent()
    await world.start_agent()
    await world.until(world.is_gone)
    await world.kill_agent()


async def test_logs_of_a_pod_that_is_gone_are_removed(world: World) -> None:
    """They are the last that goes of a pod: by then the API and the runtime know nothing of it any more."""
    await world.kill_agent()
    world.files.logs.add("gone-long-ago")
    world.create()
    await world.start_agent()
    await world.until(world.is_ready)
    assert world.files.logs == {"u1"}


async def test_a_stuck_volume_of_a_dead_pod_does_not_stop_the_cleanup_of_others(world: World) -> None:
    """One dead pod's volume is busy: what the others left goes at the same sweep."""
    await world.kill_agent()
    world.volumes.mounted |= {"stuck", "free-1", "free-2"}
    world.volumes.stuck.add("stuck")
    world.files.logs.add("gone-long-ago")
    await world.start_agent()
    await world.until(lambda: world.volumes.mounted == {"stuck"} and not world.files.logs)


async def test_only_the_last_ended_attempt_is_kept(world: World) -> None:
    world.create()
    for _ in range(4):
        await world.until(lambda: world.cri.running() == ["main"], step=5)
        world.cri.exit("main", 1)
        await settle(100)
    await world.until(lambda: world.cri.running() == ["main"], step=5)
    await settle(100)
    left = [one.attempt for one in world.cri.containers.values() if one.state is RunState.EXITED]
    assert left == [3]


async def test_a_pod_starts_beside_a_terminating_one_of_the_same_name(world: World) -> None:
    world.cri.ignores_term.add("main")
    world.create(uid="u1", terminationGracePeriodSeconds=30)
    await world.until(world.is_ready)
    old = world.api.pods.pop("u1")
    world.cri.ignores_term.clear()
    world.api.inbox = None
    world.create(uid="u2")
    world.api.inbox = world.workers.on_pod
    world.workers.on_pod("MODIFIED", world.api.pods["u2"], old)
    await world.until(lambda: world.is_ready("u2") and world.registry.status("u1") == {})
    assert sorted({one.uid for one in world.cri.containers.values()}) == ["u2"]


async def test_pull_policy_always_pulls_at_each_start(world: World) -> None:
    world.create(container("main", imagePullPolicy="Always"))
    world.cri.registry[IMAGE] = ImageFacts("sha256:1")
    await world.until(world.is_ready, step=1)
    pulls = len(world.cri.done("pull_image"))
    world.cri.exit("main", 0)
    await world.until(lambda: len(world.cri.done("pull_image")) == pulls + 1)


def _ready(status: dict[str, Any]) -> bool:
    return any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions") or [])


async def test_a_pod_that_is_gone_from_the_api_holds_no_resources(world: World) -> None:
    world.cri.ignores_term.add("slow")
    most = {"requests": {"cpu": "1500m"}}
    world.create(container("slow", resources=most), uid="u1", name="old", terminationGracePeriodSeconds=60)
    await world.until(world.is_ready)
    world.api.vanish("u1")
    await settle(50)
    assert world.cri.running() == ["slow"]
    world.create(container("new", resources=most), uid="u2", name="new")
    await world.until(lambda: world.is_ready("u2"))
    assert "OutOfcpu" not in world.events.reasons()
