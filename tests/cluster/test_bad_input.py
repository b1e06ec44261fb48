"""Mistakes of a user, and failures under a node: an error where the user looks for it, and everything else goes on.

After each mistake a healthy pod is started on the same node: `healthy_pod_starts`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agent.common.model.pods import RunState
from controlplane.cluster.model import CONTROL_PLANE
from nodelib.command import run
from tests.builders.pods import BUSYBOX, container, manifest, sleeper, web
from tests.cluster.command_line import PROJECT
from tests.cluster.world import Object, World, condition, containers_of, holds, is_ready, load, state_of, status_of

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root")]

NODE = "node1"


@pytest.fixture
async def healthy_pod_starts(world: World) -> AsyncIterator[None]:
    """After the test's mistake, a healthy pod on the same node starts as usual."""
    yield
    await world.run(manifest("healthy", nodeName=NODE))
    node = await world.api.get(f"/api/v1/nodes/{NODE}")
    assert is_ready(node), condition(node, "Ready")


def waits_with(*reasons: str, text: str = "", name: str = "main") -> Any:
    """Whether a container waits for one of these reasons, with these words in its message."""

    def seen(obj: Object) -> bool:
        kind, details = state_of(obj, name)
        return kind == "waiting" and details["reason"] in reasons and text in details.get("message", "")

    return seen


# --- what a container needs ----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("healthy_pod_starts")
async def test_an_unknown_image(world: World) -> None:
    image = "registry.k8s.io/e2e-test-images/no-such-thing:9"
    await world.create(manifest("box", container(image=image), nodeName=NODE))
    seen = await world.until("box", waits_with("ImagePullBackOff", text=image), "backs off", 180)
    assert seen["status"]["phase"] == "Pending"
    event = await world.event("box", "Failed", "no-such-thing", 180)
    assert event["type"] == "Warning"
    await world.event("box", "BackOff", image)
    describe = (await world.kubectl("describe", "pod", "box")).text
    assert "ImagePullBackOff" in describe
    assert "Failed to pull image" in describe
    # Corrected in place, it runs: nothing has to be made anew.
    patch = {"spec": {"containers": [{"name": "main", "image": BUSYBOX}]}}
    await world.api.patch(world.path("pods", "box"), patch, kind="strategic")
    await world.until("box", lambda one: status_of(one).get("imageID"), "the right image is taken", 360)


@pytest.mark.usefixtures("healthy_pod_starts")
async def test_an_image_name_that_is_none(world: World) -> None:
    await world.create(manifest("box", container(image="NOT/an image:"), nodeName=NODE))
    await world.until("box", waits_with("InvalidImageName", text="NOT/an image:"), "InvalidImageName")
    event = await world.event("box", "InspectFailed", "NOT/an image:")
    assert event["type"] == "Warning"


@pytest.mark.usefixtures("healthy_pod_starts")
async def test_never_pull_what_is_not_there(world: World) -> None:
    box = {"name": "main", "image": "registry.k8s.io/nothing:1", "imagePullPolicy": "Never"}
    await world.create(manifest("box", box, nodeName=NODE))
    seen = await world.until("box", waits_with("ErrImageNeverPull", text="registry.k8s.io/nothing:1"), "is not pulled")
    assert seen["status"]["phase"] == "Pending" and status_of(seen)["restartCount"] == 0


@pytest.mark.usefixtures("healthy_pod_starts")
async def test_a_bad_command(world: World) -> None:
    """The runtime's own words, in the status and in an event; tried again with back-off."""
    box = {"name": "main", "image": BUSYBOX, "command": ["/no/such/program"]}
    await world.create(manifest("box", box, nodeName=NODE))

    def names_the_program(obj: Object) -> bool:
        texts = [state_of(obj)[1], status_of(obj).get("lastState", {}).get("terminated", {})]
        return any("/no/such/program" in one.get("message", "") for one in texts)

    await world.until("box", names_the_program, "says which program")
    await world.event("box", "Failed", "/no/such/program")
    seen = await world.until("box", waits_with("CrashLoopBackOff", "RunContainerError"), "waits before the next try")
    assert seen["status"]["phase"] in ("Running", "Pending")
    await world.until("box", lambda one: status_of(one)["restartCount"] >= 2, "tried again", 180)


@pytest.mark.usefixtures("healthy_pod_starts")
async def test_a_command_that_fails_backs_off(world: World) -> None:
    await world.create(manifest("box", container(script="echo oh no; exit 3"), nodeName=NODE))
    seen = await world.until("box", waits_with("CrashLoopBackOff", text="restarting failed container=main"), "waits")
    assert status_of(seen)["lastState"]["terminated"]["exitCode"] == 3
    await world.event("box", "BackOff", "Back-off restarting failed container main")
    assert (await world.kubectl("logs", "box")).text == "oh no\n"


@pytest.mark.usefixtures("healthy_pod_starts")
async def test_a_missing_environment_source(world: World) -> None:
    env = [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "a"}}}]
    await world.create(manifest("box", sleeper(env=env), nodeName=NODE))
    await world.until("box", waits_with("CreateContainerConfigError", text='configmap "settings" not found'), "says so")
    await world.event("box", "Failed", "settings")
    await world.config_map("settings", b="1")
    await world.until("box", waits_with("CreateContainerConfigError", text="couldn't find key a"), "the key is missing")
    await world.api.patch(world.path("configmaps", "settings"), {"data": {"a": "1"}})
    seen = await world.ready("box")
    assert status_of(seen)["restartCount"] == 0
    assert (await world.shell("box", "echo $A")).strip() == "1"


# --- volumes -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("healthy_pod_starts")
async def test_a_host_path_of_another_kind(world: World) -> None:
    volumes = [{"name": "data", "hostPath": {"path": "/etc/hosts", "type": "Directory"}}]
    box = sleeper(volumeMounts=[{"name": "data", "mountPath": "/data"}])
    await world.create(manifest("box", box, nodeName=NODE, volumes=volumes))
    event = await world.event("box", "FailedMount", "/etc/hosts")
    assert "data" in event["message"]
    assert "directory" in event["message"].lower()


@pytest.mark.usefixtures("healthy_pod_starts")
async def test_a_missing_config_map_holds_a_pod_until_it_is_made(world: World) -> None:
    volumes = [{"name": "settings", "configMap": {"name": "settings"}}]
    box = sleeper(volumeMounts=[{"name": "settings", "mountPath": "/settings"}])
    await world.create(manifest("box", box, nodeName=NODE, volumes=volumes))
    await world.event("box", "FailedMount", 'configmap "settings" not found')
    await world.until("box", waits_with("ContainerCreating"), "ContainerCreating")
    began = time.monotonic()
    await world.config_map("settings", a="1")
    await world.ready("box")
    took = time.monotonic() - began
    world.stats.append(("missing ConfigMap created -> the pod that waited is Ready", f"{took:.2f} s"))
    assert took < 30


@pytest.mark.usefixtures("healthy_pod_starts")
async def test_a_missing_claim_and_a_volume_that_this_agent_has_not(world: World) -> None:
    volumes = [{"name": "data", "nfs": {"server": "10.9.8.7", "path": "/"}}]
    box = sleeper(volumeMounts=[{"name": "data", "mountPath": "/data"}])
    await world.create(manifest("box", box, nodeName=NODE, volumes=volumes))
    event = await world.event("box", "FailedMount", "data")
    assert "nfs" in event["message"]


# --- probes --------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("healthy_pod_starts")
async def test_a_readiness_probe_that_never_passes(world: World) -> None:
    probe = {"httpGet": {"path": "/echo?msg=no&code=404", "port": 8080}, "periodSeconds": 1}
    await world.create(manifest("box", web("main") | {"readinessProbe": probe}, nodeName=NODE))
    event = await world.event("box", "Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 404")
    assert event["involvedObject"]["fieldPath"] == "spec.containers{main}"
    message = "containers with unready status: [main]"
    seen = await world.until("box", lambda seen: condition(seen, "Ready").get("message") == message, message)
    assert not is_ready(seen)
    assert status_of(seen)["restartCount"] == 0


@pytest.mark.usefixtures("healthy_pod_starts")
async def test_a_liveness_probe_that_never_passes(world: World) -> None:
    probe = {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1}
    await world.create(manifest("box", sleeper(livenessProbe=probe), nodeName=NODE))
    await world.event("box", "Unhealthy", "Liveness probe failed")
    await world.event("box", "Killing", "Container main failed liveness probe, will be restarted")
    await world.until("box", waits_with("CrashLoopBackOff"), "CrashLoopBackOff", 180)
    assert status_of(await world.get("box"))["restartCount"] >= 1


# --- what a node refuses -------------------------------------------------------------------------------------------


async def assert_refused(world: World, obj: Object, reason: str, text: str) -> None:
    """The pod has Failed with this reason and message, and an event says the same."""
    await world.create(obj)
    name = obj["metadata"]["name"]
    seen = await world.until(name, lambda one: one["status"].get("phase") == "Failed", "Failed")
    assert seen["status"]["reason"] == reason
    assert text in seen["status"]["message"]
    await world.event(name, reason, text)
    assert not [one for one in seen["status"].get("containerStatuses", []) if "running" in one["state"]]


@pytest.mark.usefixtures("healthy_pod_starts")
async def test_a_sysctl_that_is_not_allowed(world: World) -> None:
    context = {"sysctls": [{"name": "kernel.msgmax", "value": "65536"}]}
    wanted = manifest("box", nodeName=NODE, securityContext=context)
    await assert_refused(world, wanted, "SysctlForbidden", '"kernel.msgmax"')


@pytest.mark.usefixtures("healthy_pod_starts")
async def test_a_selector_that_the_node_does_not_match(world: World) -> None:
    wanted = manifest("box", nodeName=NODE, nodeSelector={"colour": "green"})
    await assert_refused(world, wanted, "NodeAffinity", "node affinity/selector")


@pytest.mark.usefixtures("healthy_pod_starts")
async def test_more_cpu_than_the_node_has(world: World) -> None:
    wanted = manifest("box", sleeper(resources={"requests": {"cpu": "4000"}}), nodeName=NODE)
    await assert_refused(world, wanted, "OutOfcpu", "Node didn't have enough resource: cpu, requested: 4000000")


@pytest.mark.usefixtures("healthy_pod_starts")
async def test_a_host_port_that_is_taken(world: World) -> None:
    port = {"containerPort": 8080, "hostPort": 18080}
    await world.run(manifest("first", sleeper(ports=[port]), nodeName=NODE))
    await assert_refused(world, manifest("second", sleeper(ports=[port]), nodeName=NODE), "NodePorts", "free ports")
    assert is_ready(await world.get("first"))


# --- the agent itself ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"maxPods": "many"}, ["maxPods", "many"]),
        ({"clusterDNS": "10.96.0.10"}, ["clusterDNS"]),
        ({"evictionHard": {"memory.available": "a lot"}}, ["evictionHard", "a lot"]),
        ({"syncFrequency": "soon"}, ["syncFrequency", "soon"]),
        ({"maxPodz": 3}, ["maxPodz"]),
    ],
    ids=["wrong-type", "not-a-list", "bad-quantity", "bad-duration", "unknown-field"],
)
async def test_a_malformed_configuration(
    world: World, tmp_path: Path, change: dict[str, Any], words: list[str]
) -> None:
    """The agent ends at once and names the file and the field."""
    good = json.loads(Path(world.cluster.node_dir(NODE), "kubernetes/kubelet.yaml").read_text())
    await _assert_it_ends_naming(tmp_path / "bad.yaml", json.dumps(good | change), words)


async def test_a_configuration_that_is_no_yaml(tmp_path: Path) -> None:
    await _assert_it_ends_naming(tmp_path / "bad.yaml", "kind: [\n", ["line 1"])
    await _assert_it_ends_naming(
        tmp_path / "other.yaml", "apiVersion: v1\nkind: Pod\n", ["kubelet.config.k8s.io/v1beta1", "'v1'"]
    )


async def _assert_it_ends_naming(path: Path, text: str, words: list[str]) -> None:
    path.write_text(text)
    argv = [sys.executable, "-m", "cli", "agent", "--config", str(path), "--kubeconfig", "/nowhere"]
    done = await run(argv, env={**os.environ, "PYTHONPATH": str(PROJECT)}, cwd="/", check=False)
    said = done.stderr.decode()
    assert done.returncode == 2, said
    assert "Traceback" not in said
    for word in (str(path), *words):
        assert word in said


# --- the pod network -----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("healthy_pod_starts")
@pytest.mark.parametrize(
    ("request_text", "environment", "code", "words"),
    [
        (b"{", {}, 6, "JSON"),
        (b'{"cniVersion": "9.9.9", "name": "nodewright", "type": "nodewright"}', {}, 1, "9.9.9"),
        (b'{"cniVersion": "1.1.0", "type": "nodewright"}', {}, 7, "name"),
        (None, {"CNI_IFNAME": "../../etc"}, 4, "CNI_IFNAME"),
        (None, {"CNI_CONTAINERID": ""}, 4, "CNI_CONTAINERID"),
        (None, {"CNI_NETNS": "/no/such/namespace"}, 3, "/no/such/namespace"),
        (None, {"CNI_COMMAND": "DANCE"}, 4, "DANCE"),
    ],
    ids=["no-json", "unknown-version", "no-name", "bad-interface", "no-container", "no-namespace", "unknown-command"],
)
async def test_a_corrupt_cni_request(
    world: World, request_text: bytes | None, environment: dict[str, str], code: int, words: str
) -> None:
    """Through the plugin that containerd executes: an error object of the CNI specification, and nothing is made."""
    before = await world.left(NODE)
    conflist = json.loads(Path(world.cluster.node_dir(NODE), "cni/net.d/10-nodewright.conflist").read_text())
    whole = {**conflist["plugins"][0], "cniVersion": conflist["cniVersion"], "name": conflist["name"]}
    variables = {
        "CNI_COMMAND": "ADD",
        "CNI_CONTAINERID": "corrupt",
        "CNI_NETNS": "/proc/self/ns/net",
        "CNI_IFNAME": "eth0",
        "CNI_PATH": "/opt/cni/bin",
    } | environment
    argv = ["env", *(f"{key}={value}" for key, value in variables.items()), "/opt/cni/bin/nodewright"]
    stdin = json.dumps(whole).encode() if request_text is None else request_text
    done = await world.in_node(NODE, *argv, stdin=stdin, check=False)
    assert done.returncode == 1
    answer = json.loads(done.stdout)
    assert answer["code"] == code, answer
    assert words in answer["msg"] + answer.get("details", "")
    assert (await world.left(NODE)).beyond(before) == {}


# --- a part that stops ---------------------------------------------------------------------------------------------


async def test_a_stopped_api_server(world: World) -> None:
    """Pods run on, a container that crashes starts again, probes go on, and afterwards the status catches up."""
    await world.run(manifest("server", web(), nodeName=NODE))
    alive = {"exec": {"command": ["sh", "-c", "! test -e /tmp/dead"]}, "periodSeconds": 1, "failureThreshold": 1}
    crash = container(script="while ! test -e /tmp/crash; do sleep 0.2; done; exit 4")
    made = await world.run(manifest("fragile", crash, sleeper("probed", livenessProbe=alive), nodeName=NODE))
    uid = made["metadata"]["uid"]
    resident = containers_of(await world.pods("app=demo", "default"))
    before = await world.get("server")
    address = before["status"]["podIP"]
    with load([f"http://{address}:8080/hostname"], net=world.cluster.namespace(NODE, "net")) as asked:
        async with world.stopped_api_server(240):
            began = time.monotonic()
            async with world.cri(NODE) as cri:
                listed = {one.name: one for one in await cri.list_containers(uid)}
                await cri.exec_sync(listed["main"].id, ["touch", "/tmp/crash"], 30)
                await cri.exec_sync(listed["probed"].id, ["touch", "/tmp/dead"], 30)

                async def both_again() -> bool:
                    running = {
                        one.name: one.attempt for one in await cri.list_containers(uid) if one.state is RunState.RUNNING
                    }
                    return running == {"main": 1, "probed": 1}

                await holds(both_again, "crashed and unhealthy containers run again without an API server")
            took = time.monotonic() - began
            world.stats.append(("without an API server: crash -> started again", f"{took:.1f} s"))
            await asyncio.sleep(max(0.0, 30 - took))
        result = asked.stop()
    assert result["failed"] == []

    def caught_up(obj: Object) -> bool:
        return is_ready(obj) and [status_of(obj, name)["restartCount"] for name in ("main", "probed")] == [1, 1]

    began = time.monotonic()
    seen = await world.until("fragile", caught_up, "the status has caught up")
    world.stats.append(("API server goes on -> status has caught up", f"{time.monotonic() - began:.1f} s"))
    assert status_of(seen)["lastState"]["terminated"]["exitCode"] == 4

    async def well() -> bool:
        return all(is_ready(one) for one in (await world.api.get("/api/v1/nodes"))["items"])

    await holds(well, "the nodes are Ready")
    assert containers_of([await world.get("server")]) == containers_of([before])
    assert containers_of(await world.pods("app=demo", "default")) == resident
    await world.run(manifest("healthy", nodeName=NODE))


async def test_a_killed_api_server(world: World) -> None:
    """Connections break instead of hanging; everything resumes by itself."""
    await world.run(manifest("box", nodeName=NODE))
    before = containers_of([await world.get("box")])
    await world.kill(CONTROL_PLANE, "kube-apiserver")

    async def answers() -> bool:
        with contextlib.suppress(OSError):
            return bool(await world.get("box"))
        return False

    await holds(answers, "the API server answers again")
    await world.run(manifest("healthy", nodeName=NODE))
    await world.delete("healthy")
    await world.gone("healthy")
    assert containers_of([await world.get("box")]) == before
