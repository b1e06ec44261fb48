"""The inputs of a container's start."""

from __future__ import annotations

import pytest

from agent.common.model.pods import ContainerState, ImageFacts, Kind, ObservedPod, RunState, SandboxState
from agent.common.model.states import ImagePhase, ImageState
from agent.pods.model.steps import Start
from agent.pods.plan.start_inputs import after_failed_hook, ips_for, target_of, with_volume_images
from agent.volumes.model.volumes import MountedVolume
from nodelib.errors import Permanent
from tests.builders.pods import container, pod

SANDBOX = SandboxState("s1", "u", "shop", "web", 0, True, 1, ips=("10.1.0.5",))
VOLUME = {"name": "art", "image": {"reference": "art:1"}}
PULLED = ImageState(0, ImagePhase.PRESENT, ref="sha256:1", facts=ImageFacts("sha256:1"))


def seen(state: RunState) -> ObservedPod:
    return ObservedPod("u", (SANDBOX,), (ContainerState("c1", "s1", "u", "main", 0, state, 1),))


def test_a_host_network_pod_has_the_hosts_addresses() -> None:
    assert ips_for(pod(), SANDBOX, ("192.0.2.1",)) == ("10.1.0.5",)
    assert ips_for(pod(), None, ("192.0.2.1",)) == ()
    assert ips_for(pod(hostNetwork=True), SANDBOX, ("192.0.2.1",)) == ("192.0.2.1",)


def test_an_ephemeral_container_can_target_only_a_running_container() -> None:
    step = Start(Kind.EPHEMERAL, container("debug", targetContainerName="main"), 0, "s1")
    assert target_of(step, seen(RunState.RUNNING)) == "c1"
    assert target_of(Start(Kind.EPHEMERAL, container("debug"), 0, "s1"), seen(RunState.EXITED)) == ""
    with pytest.raises(Permanent, match='unable to find target container "main"'):
        target_of(step, seen(RunState.EXITED))


def test_an_image_volume_mounts_the_image_that_was_pulled() -> None:
    one = pod(volumes=[VOLUME, {"name": "other", "emptyDir": {}}])
    mounts = container(volumeMounts=[{"name": "art", "mountPath": "/art"}, {"name": "other", "mountPath": "/o"}])
    volumes = {"art": MountedVolume("art", "", image="art:1"), "other": MountedVolume("other", "/o")}
    found = with_volume_images(one, mounts, volumes, {"volume/art": PULLED})
    assert found == {"art": MountedVolume("art", "", image="art:1", image_ref="sha256:1"), "other": volumes["other"]}
    with pytest.raises(Permanent, match="volume art"):
        with_volume_images(one, mounts, volumes, {})


@pytest.mark.parametrize(("grace", "expected"), [(30, 30), (None, 2), (0, 2)])
def test_a_container_is_killed_when_its_post_start_hook_fails(grace: int | None, expected: int) -> None:
    hook = {"exec": {"command": ["bye"]}}
    kill = after_failed_hook(pod(terminationGracePeriodSeconds=grace), container(lifecycle={"preStop": hook}), "c1")
    assert (kill.container_id, kill.name, kill.grace, kill.hook) == ("c1", "main", expected, hook)
    assert kill.message == "FailedPostStartHook"
