"""Static pods on a real node: a file in /etc/kubernetes/manifests is enough.

kubeadm's control plane depends on them: the API server only shows these pods, and its outages do not affect them.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from agent.common.model.pods import ContainerState, RunState
from tests.builders.pods import container, manifest, sleeper, web
from tests.cluster.world import Object, World, holds, is_ready, status_of

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root")]

NODE = "node1"
_HASH, _MIRROR = "kubernetes.io/config.hash", "kubernetes.io/config.mirror"


class Manifests:
    """The manifest directory of the node; what a test wrote is removed with it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.folder = Path(world.cluster.node_dir(NODE), "kubernetes/manifests")
        self.files: set[Path] = set()

    def write(self, name: str, *containers: Object, **spec: Any) -> str:
        """A manifest; the name of the pod that it becomes."""
        made = manifest(name, *containers, **spec)
        made["metadata"]["namespace"] = self.world.namespace
        self.text(f"{name}.json", orjson.dumps(made).decode())
        return f"{name}-{NODE}"

    def text(self, file: str, text: str) -> None:
        path = self.folder / f"{self.world.namespace}-{file}"
        path.write_text(text)
        self.files.add(path)

    def remove(self) -> None:
        for path in self.files:
            path.unlink(missing_ok=True)

    async def mirror(self, name: str) -> Object:
        return await self.world.api.get(self.world.path("pods", name))

    async def is_running(self, name: str) -> Object:
        """Its mirror pod, once that is Ready."""
        found: list[Object] = []

        async def ready() -> bool:
            found[:] = [await self.mirror(name)]
            return is_ready(found[0])

        await holds(ready, f"static pod {name} is shown Ready")
        return found[0]

    async def attempts(self, uid: str) -> list[ContainerState]:
        """The containers that the runtime has of a pod, oldest first."""
        return sorted((one for one in await self.world.attempts(NODE) if one.uid == uid), key=lambda one: one.attempt)


@pytest.fixture
def manifests(world: World) -> Iterator[Manifests]:
    made = Manifests(world)
    yield made
    made.remove()


def uid_of(mirror: Object) -> str:
    """The UID by which the node knows the pod."""
    return str(mirror["metadata"]["annotations"][_HASH])


async def test_a_file_is_a_pod_and_kubectl_sees_it_as_any_other(world: World, manifests: Manifests) -> None:
    name = manifests.write("web", web())
    mirror = await manifests.is_running(name)
    assert mirror["metadata"]["annotations"][_MIRROR] == uid_of(mirror)
    owner = mirror["metadata"]["ownerReferences"][0]
    node = await world.api.get(f"/api/v1/nodes/{NODE}")
    assert (owner["kind"], owner["uid"]) == ("Node", node["metadata"]["uid"])
    assert mirror["spec"]["dnsPolicy"] == "ClusterFirst"  # the API server has never defaulted what runs
    assert await world.shell(name, "hostname", "web") == f"{name}\n"
    assert "GET /hostname" in (await world.kubectl("logs", name)).text  # of the readiness probe
    described = (await world.kubectl("describe", "pod", name)).text
    assert "Started" in described  # events of the static pod are found by its mirror


async def test_a_new_manifest_replaces_the_pod_and_a_removed_one_takes_it_away(
    world: World, manifests: Manifests
) -> None:
    name = manifests.write("replaced", sleeper("one"))
    first = await manifests.is_running(name)
    manifests.write("replaced", sleeper("two"))

    async def replaced() -> bool:
        mirror = await manifests.mirror(name)
        return mirror["spec"]["containers"][0]["name"] == "two" and is_ready(mirror)

    await holds(replaced, "the new manifest runs")
    second = await manifests.mirror(name)
    assert uid_of(second) != uid_of(first)
    assert not await manifests.attempts(uid_of(first))  # nothing of the old one is left
    manifests.remove()

    async def gone() -> bool:
        shown = await world.api.get(world.path("pods"))
        return not shown["items"] and not await manifests.attempts(uid_of(second))

    await holds(gone, "pod and mirror pod are gone")


async def test_a_deleted_mirror_pod_comes_back_and_nothing_restarts(world: World, manifests: Manifests) -> None:
    name = manifests.write("kept", sleeper())
    before = await manifests.is_running(name)
    await world.api.delete(world.path("pods", name))

    async def back() -> bool:
        return bool((await manifests.mirror(name))["metadata"]["uid"] != before["metadata"]["uid"])

    await holds(back, "a new mirror pod is there")
    after = await manifests.is_running(name)
    assert status_of(after)["containerID"] == status_of(before)["containerID"]


async def test_without_the_api_server_static_pods_start_and_restart(world: World, manifests: Manifests) -> None:
    script = "touch /work/started; while [ ! -e /work/die ]; do sleep 0.1; done; rm /work/die; exit 3"
    mounts: Object = {"volumeMounts": [{"name": "work", "mountPath": "/work"}]}
    folder = Path(world.cluster.node_dir(NODE), "kubelet", f"test-{world.namespace}")
    folder.mkdir()
    volume = {"name": "work", "hostPath": {"path": f"/var/lib/kubelet/{folder.name}"}}
    async with world.stopped_api_server(60):
        name = manifests.write("alone", container(script=script, **mounts), volumes=[volume], hostNetwork=True)

        async def started() -> bool:
            return (folder / "started").exists()

        await holds(started, "it runs although the API server is away", 30)
        (folder / "started").unlink()
        (folder / "die").touch()
        await holds(started, "it is started again", 30)
    mirror = await manifests.is_running(name)
    assert status_of(mirror)["restartCount"] == 1
    assert status_of(mirror)["lastState"]["terminated"]["exitCode"] == 3


async def test_a_killed_agent_finds_its_static_pods_and_says_nothing_new(world: World, manifests: Manifests) -> None:
    name = manifests.write("steady", web(port=8090))
    before = await manifests.is_running(name)
    await asyncio.sleep(1)  # whatever is still on its way to the API
    before = await manifests.mirror(name)
    os.kill(await world.pid_once_running(NODE, "agent"), signal.SIGKILL)
    await world.agent_well(NODE)
    manifests.write("after", sleeper())  # something that only the new agent can do
    await manifests.is_running(f"after-{NODE}")
    after = await manifests.mirror(name)
    assert after["status"] == before["status"]
    states = [one.state for one in await manifests.attempts(uid_of(after))]
    assert states == [RunState.RUNNING]


async def test_a_bad_manifest_is_named_with_its_cause_and_holds_up_no_other(world: World, manifests: Manifests) -> None:
    manifests.text(
        "broken.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: broken}\nspec: {containers: [{name: x}]}\n"
    )
    await manifests.is_running(manifests.write("good", sleeper()))
    words = f"{world.namespace}-broken.yaml: read static pods: containers[x].image: is required"

    async def reported() -> bool:
        found = await world.api.get("/api/v1/namespaces/default/events", {"fieldSelector": "reason=InvalidManifest"})
        return any(words in one["message"] for one in found["items"])

    assert await holds(reported, "an event of the Node says so")
