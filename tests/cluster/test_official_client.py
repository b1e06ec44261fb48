"""A user with the official `kubernetes` client: nothing of ours is between the test and the cluster.

Its models say what types the API has: a status of ours that does not fit them fails here, as it would in a user's
program.
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kubernetes import client, config, stream, watch

from controlplane.cluster.model import Cluster
from tests.builders.pods import AGNHOST, BUSYBOX

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root")]

_SECONDS = 120
_APP = {"app": "web"}
_SERVE = ["netexec", "--http-port=8080", "--udp-port=-1"]


class User:
    """The APIs that the tests use, and a namespace of their own."""

    def __init__(self, api: client.ApiClient, namespace: str) -> None:
        self.api, self.namespace = api, namespace
        self.core, self.apps, self.policy = client.CoreV1Api(api), client.AppsV1Api(api), client.PolicyV1Api(api)

    def until(self, listing: Callable[..., Any], wanted: Callable[[Any], bool], **arguments: Any) -> Any:
        """The first object of the watch that is `wanted`. Fails after two minutes."""
        watched = watch.Watch()
        last = None
        for event in watched.stream(listing, self.namespace, timeout_seconds=_SECONDS, **arguments):
            last = event["object"]
            if wanted(last):
                watched.stop()
                return last
        raise AssertionError(f"not within {_SECONDS} s: {last}")

    def until_deleted(self, listing: Callable[..., Any], name: str) -> None:
        """Fails after two minutes."""
        watched = watch.Watch()
        for event in watched.stream(listing, self.namespace, timeout_seconds=_SECONDS):
            if event["type"] == "DELETED" and event["object"].metadata.name == name:
                watched.stop()
                return
        raise AssertionError(f"{name} is still there after {_SECONDS} s")

    def run(self, name: str, *, image: str = AGNHOST, **fields: Any) -> client.V1Pod:
        """A pod with one container, once it is ready."""
        box = client.V1Container(name="main", image=image, **fields)
        spec = client.V1PodSpec(containers=[box], termination_grace_period_seconds=1)
        self.core.create_namespaced_pod(self.namespace, client.V1Pod(metadata={"name": name}, spec=spec))
        return self.until(self.core.list_namespaced_pod, _is_ready, field_selector=f"metadata.name={name}")

    def execute(self, pod: str, *command: str, sent: str = "") -> tuple[int, str, str]:
        """The exit code of a command in the pod, and what it wrote to its two outputs."""
        session = stream.stream(
            self.core.connect_get_namespaced_pod_exec,
            pod,
            self.namespace,
            command=list(command),
            stdin=bool(sent),
            stdout=True,
            stderr=True,
            tty=False,
            _preload_content=False,
        )
        if sent:
            session.write_stdin(sent)
        session.run_forever(timeout=_SECONDS)
        return session.returncode, session.read_stdout(timeout=0), session.read_stderr(timeout=0)


def _is_ready(pod: client.V1Pod) -> bool:
    return any(one.type == "Ready" and one.status == "True" for one in pod.status.conditions or [])


@pytest.fixture
def user(shared_cluster: Cluster) -> Iterator[User]:
    api = config.new_client_from_config(shared_cluster.admin_kubeconfig, persist_config=False)
    namespace = f"user-{uuid.uuid4().hex[:6]}"
    core = client.CoreV1Api(api)
    core.create_namespace(client.V1Namespace(metadata={"name": namespace}))
    try:
        one = User(api, namespace)
        account = {"field_selector": "metadata.name=default"}
        one.until(core.list_namespaced_service_account, lambda found: True, **account)
        yield one
    finally:
        core.delete_namespace(namespace)
        api.close()


def test_a_deployment_is_made_watched_scaled_and_removed(user: User) -> None:
    box = client.V1Container(name="main", image=AGNHOST, args=_SERVE)
    template = client.V1PodTemplateSpec(
        metadata=client.V1ObjectMeta(labels=_APP),
        spec=client.V1PodSpec(containers=[box], termination_grace_period_seconds=1),
    )
    spec = client.V1DeploymentSpec(replicas=2, selector={"matchLabels": _APP}, template=template)
    user.apps.create_namespaced_deployment(user.namespace, client.V1Deployment(metadata={"name": "web"}, spec=spec))
    user.until(user.apps.list_namespaced_deployment, lambda one: one.status.ready_replicas == 2)
    user.apps.patch_namespaced_deployment_scale("web", user.namespace, {"spec": {"replicas": 3}})
    user.until(user.apps.list_namespaced_deployment, lambda one: one.status.ready_replicas == 3)
    pods = user.core.list_namespaced_pod(user.namespace, label_selector="app=web").items
    assert {one.spec.node_name for one in pods} == {"node1", "node2"}
    assert len({one.status.pod_ip for one in pods}) == 3
    assert all(one.status.container_statuses[0].state.running.started_at for one in pods)
    user.apps.delete_namespaced_deployment("web", user.namespace, propagation_policy="Foreground")
    user.until_deleted(user.apps.list_namespaced_deployment, "web")
    left = user.core.list_namespaced_pod(user.namespace, label_selector="app=web").items
    assert [one.metadata.name for one in left if one.metadata.deletion_timestamp is None] == []


def test_exec_logs_and_a_forwarded_port(user: User) -> None:
    user.run("web", args=_SERVE)
    assert user.execute("web", "sh", "-c", "echo out; echo err >&2; exit 7") == (7, "out\n", "err\n")
    assert user.execute("web", "head", "-c", "5", sent="hello and more") == (0, "hello", "")
    forwarded = stream.portforward(
        user.core.connect_get_namespaced_pod_portforward, "web", user.namespace, ports="8080"
    )
    with contextlib.closing(forwarded.socket(8080)) as connection:
        connection.settimeout(_SECONDS)
        connection.sendall(b"GET /hostname HTTP/1.0\r\nHost: web\r\n\r\n")
        answer = b"".join(iter(lambda: connection.recv(4096), b""))
    assert answer.endswith(b"web") and forwarded.error(8080) is None
    text = user.core.read_namespaced_pod_log("web", user.namespace, tail_lines=5)
    assert "GET /hostname" in text
    lines = watch.Watch().stream(user.core.read_namespaced_pod_log, "web", user.namespace, _request_timeout=_SECONDS)
    assert any("GET /hostname" in line for line in lines)


def test_a_pod_is_changed_debugged_and_evicted(user: User) -> None:
    user.run("web", args=_SERVE)
    user.core.patch_namespaced_pod("web", user.namespace, {"metadata": {"labels": {"stage": "live"}}})
    debug = {"name": "debug", "image": BUSYBOX, "command": ["sleep", "3600"], "targetContainerName": "main"}
    user.core.patch_namespaced_pod_ephemeralcontainers(
        "web", user.namespace, {"spec": {"ephemeralContainers": [debug]}}
    )

    def debugged(pod: client.V1Pod) -> bool:
        return any(one.state.running for one in pod.status.ephemeral_container_statuses or [])

    found = user.until(user.core.list_namespaced_pod, debugged)
    assert found.metadata.labels["stage"] == "live"
    events = user.core.list_namespaced_event(user.namespace, field_selector="involvedObject.name=web").items
    assert {"Scheduled", "Pulled", "Created", "Started"} <= {one.reason for one in events}
    eviction = client.V1Eviction(metadata=client.V1ObjectMeta(name="web", namespace=user.namespace))
    user.core.create_namespaced_pod_eviction("web", user.namespace, eviction)
    user.until_deleted(user.core.list_namespaced_pod, "web")


def test_what_nodes_and_pods_say_of_themselves_has_the_types_of_the_api(user: User) -> None:
    """What the client's models do not know is lost on the way through them; so is what has another type."""
    user.run("web", args=_SERVE, resources=client.V1ResourceRequirements(limits={"memory": "64Mi", "cpu": "100m"}))
    for listing, model in (
        (user.core.list_node, "V1NodeList"),
        (user.core.list_pod_for_all_namespaces, "V1PodList"),
    ):
        raw = json.loads(listing(_preload_content=False).data)
        typed = user.api.sanitize_for_serialization(user.api.deserialize(json.dumps(raw), model, "application/json"))
        for sent, kept in zip(raw["items"], typed["items"], strict=True):
            assert _lost(sent["status"], kept["status"]) == [], sent["metadata"]["name"]


def _lost(before: Any, after: Any, where: str = "status") -> list[str]:
    """The places where a value is missing or another one. Times may be written in another way, and null is none."""
    places: dict[str, tuple[Any, Any]] = {}
    if isinstance(before, dict):
        other = after if isinstance(after, dict) else {}
        places = {f"{where}.{key}": (value, other.get(key)) for key, value in before.items() if value is not None}
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        places = {f"{where}[{at}]": pair for at, pair in enumerate(zip(before, after, strict=True))}
    if places or before == after or before in ({}, []):
        return [lost for place, pair in places.items() for lost in _lost(*pair, place)]
    is_time = isinstance(before, str) and isinstance(after, str) and before[10:11] == "T" and before[-1:] == "Z"
    return [] if is_time and before[:19] == after[:19] else [where]
